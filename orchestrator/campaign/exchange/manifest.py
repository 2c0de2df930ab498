"""`export.json`: what was exported, so that the import needs nothing else of the project."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue, ValidationError

from orchestrator.config import StrictModel
from orchestrator.errors import ConfigurationError

MANIFEST = "export.json"
FORMAT = 1

_Directory = Annotated[str, Field(pattern=r"^tasks/[A-Za-z0-9][A-Za-z0-9_.-]*$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class LockedEnvironment(StrictModel):
    """What the lock of an environment says."""

    python: str
    """Minor version, such as `3.11`."""
    lock_sha256: _Sha256
    versions: dict[str, str]
    """Version of each distribution by its canonical name."""


class ExportedTask(StrictModel):
    """One task directory."""

    directory: _Directory
    task_id: str
    environment: str
    trials: int
    task_sha256: _Sha256
    """Digest of the bytes of its `task.json`."""


class ExportedSkip(StrictModel):
    """A trial that was known to be impossible."""

    environment: str
    reason: str
    trial: JsonValue
    """A `Trial` as the contract writes it."""


class Manifest(StrictModel):
    """The whole document."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)]
    campaign_id: str
    exported_at_ns: Annotated[int, Field(ge=0, lt=2**63)]
    """Nanoseconds since the epoch."""
    host: str
    labels: dict[str, str]
    cores: str
    """The number of cores that the plan assumes, or a list such as `0-15`."""
    sweep: str
    sweep_document: str
    plan_digest: str
    planned_trials: int
    contract_version: int
    method_version: int
    taxmeter_version: str
    git_commit: str | None
    environments: dict[str, LockedEnvironment]
    tasks: Annotated[tuple[ExportedTask, ...], Field(min_length=1)]
    skips: tuple[ExportedSkip, ...]


def read_manifest(directory: Path) -> Manifest:
    """Reads the description of an exported directory.

    Raises:
        ConfigurationError: the directory is no export, or what stands there cannot be understood.
    """
    path = directory / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(
            f"not a directory that `taxmeter task export` wrote: it has no {MANIFEST}", file=directory
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot be read: {error}", file=path) from None
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or None
        raise ConfigurationError(f"damaged: {first['msg']}; copy it again", file=path, key=place) from None
    unknown = [task for task in manifest.tasks if task.environment not in manifest.environments]
    unknown_skips = [skip for skip in manifest.skips if skip.environment not in manifest.environments]
    if unknown or unknown_skips:
        raise ConfigurationError(
            "damaged: an environment is named and not described; copy it again", file=path, key="environments"
        )
    return manifest
