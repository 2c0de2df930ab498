"""`export.json`: what was exported, so that the import needs nothing else of the project."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, JsonValue, ValidationError

from orchestrator.boundary import MAX_JSON_BYTES, load_json, read_foreign_file
from orchestrator.config import StrictModel
from orchestrator.environments import EnvironmentEntry, environment_differences, lock_sha256, read_lock
from orchestrator.errors import ConfigurationError, ForeignDataError
from orchestrator.planning import EnvironmentPin, Isolation
from orchestrator.store.origin import RowContext, TaskOrigin
from runners.contract import digest
from runners.contract.catalogue import BACKENDS, WORKLOADS

MANIFEST = "export.json"
FORMAT = 1

BY_HAND: Final = "the task directory was run by hand"
"""Why the isolation is `process`: it stands in each row as `executor_reason`."""

_NEEDED: Final = [info.frameworks for info in BACKENDS.values()] + [info.frameworks for info in WORKLOADS.values()]
_FIRST: Final = {"python", *(name for names in _NEEDED for name in names)}

_Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}$")]
_Directory = Annotated[str, Field(pattern=r"^tasks/[A-Za-z0-9][A-Za-z0-9_.-]*$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class LockedEnvironment(StrictModel):
    """What the lock of an environment says."""

    python: str
    """Minor version, such as `3.11`."""
    lock_sha256: _Sha256
    versions: dict[str, str]
    """Version of each distribution by its canonical name."""

    @classmethod
    def of(cls, entry: EnvironmentEntry) -> "LockedEnvironment":
        """That of an environment of the catalogue.

        Raises:
            ConfigurationError: the lock is malformed.
        """
        versions = {name: pin.version for name, pin in sorted(read_lock(entry.lock_path).items())}
        return cls(python=entry.python, lock_sha256=lock_sha256(entry), versions=versions)

    def differences(self, versions: Mapping[str, str]) -> list[str]:
        """Each way in which what was seen differs, by the rule for virtual environments that are made here.

        Python and the frameworks come first.

        Args:
            versions: what was seen, `python` included.
        """
        found = environment_differences(self.python, self.versions, versions)
        return sorted(found, key=lambda text: text.partition(" ")[0] not in _FIRST)


class ExportedTask(StrictModel):
    """One task directory."""

    directory: _Directory
    task_id: _Id
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
    campaign_id: _Id
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

    def origin(self, task_id: str | None, environment: str, versions: Mapping[str, str] | None = None) -> TaskOrigin:
        """Where rows of this export come from.

        An environment that differs from its lock shares neither name nor key with the locked one, nor with another
        that differs: the digest of what was found takes the place of the lock's.

        Args:
            task_id: of what made them; null if nothing did.
            environment: as the export names it.
            versions: what was seen in it; null if nobody looked.
        """
        locked = self.environments[environment]
        pin = locked_pin(environment, locked.lock_sha256)
        is_locked = versions is None or not locked.differences(versions)
        if not is_locked:
            found = digest(dict(versions or {}))
            pin = locked_pin(f"{environment}+found-{found[:8]}", found)
        context = RowContext(
            self.campaign_id,
            pin.name,
            task_id=task_id,
            host=self.host,
            isolation=pin.isolation.value,
            executor_reason=pin.reason,
            lock_sha256=pin.lock_sha256 if is_locked else None,
        )
        return TaskOrigin(context, pin)


def locked_pin(environment: str, lock: str) -> EnvironmentPin:
    """The pin of an environment that was installed by hand."""
    return EnvironmentPin(environment, Isolation.PROCESS, BY_HAND, lock)


def read_manifest(directory: Path) -> Manifest:
    """Reads the description of an exported directory.

    Raises:
        ConfigurationError: the directory is no export, or what stands there cannot be understood.
    """
    path = directory / MANIFEST
    try:
        text = read_foreign_file(path, MAX_JSON_BYTES)
        load_json(text, path.name)
    except FileNotFoundError:
        raise ConfigurationError(
            f"not a directory that `taxmeter task export` wrote: it has no {MANIFEST}", file=directory
        ) from None
    except ForeignDataError as error:
        raise ConfigurationError(f"damaged: {error}; copy it again", file=path) from None
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or None
        raise ConfigurationError(f"damaged: {first['msg']}; copy it again", file=path, key=place) from None
    named = {task.environment for task in manifest.tasks} | {skip.environment for skip in manifest.skips}
    if not named <= manifest.environments.keys():
        raise ConfigurationError(
            "damaged: an environment is named and not described; copy it again", file=path, key="environments"
        )
    return manifest
