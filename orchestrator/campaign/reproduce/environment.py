"""Whether a host provides the environment that stored trials ran in."""

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.boundary import validated
from orchestrator.environments import (
    BuiltImage,
    ImageIdentity,
    StoredImage,
    differences,
    engine_problem,
    look_for_image,
    mapping_differences,
    short_digest,
)
from orchestrator.errors import ForeignDataError, InfrastructureError, some_of
from orchestrator.execution import INSTALLED, copy_code
from orchestrator.planning import EnvironmentPin, Isolation

_OBSERVE = "import json; from runners.system import observe_versions; print(json.dumps(observe_versions()))"
_LIMIT_S = 60
_SHOWN = 8
"""Differences that are named; the others are counted."""


@dataclass(frozen=True)
class EnvironmentMatch:
    """What the comparison of two environments gave."""

    differences: tuple[str, ...]
    """Expected is what the store says, found what the host has; empty if they are identical."""
    compared: str
    """What was compared, for a person."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The differences; of many the first, and how many more there are."""
        return tuple(some_of(self.differences, _SHOWN))

    @property
    def text(self) -> str:
        """The differences in one line."""
        return "; ".join(self.lines)


def compare(
    stored: EnvironmentPin,
    found: EnvironmentPin,
    versions: Mapping[str, str] | None = None,
    installed: Mapping[str, str] | None = None,
) -> EnvironmentMatch:
    """Compares a stored environment with one of a host, as far as that is known: an image may be to be had still.

    Args:
        stored: as the rows say.
        found: what the host has.
        versions: of the distributions that were seen inside then.
        installed: versions in a virtual environment of now, of `observed_versions`; null for an image, and before one
            is made.
    """
    lines: list[str] = []
    if stored.lock_sha256 != found.lock_sha256:
        lines.append(f"lock: expected {_short(stored.lock_sha256)}, found {_short(found.lock_sha256)}")
    if stored.isolation is not found.isolation:
        ways = f"isolation: expected {stored.isolation.value}, found {found.isolation.value} ({found.reason})"
        return EnvironmentMatch((ways, *lines), "isolation")
    if found.isolation is Isolation.PROCESS and installed is not None:
        lines += mapping_differences(versions or {}, installed)
        return EnvironmentMatch(tuple(lines), "lock and installed versions")
    if found.isolation is not Isolation.DOCKER or found.image_id is None:
        return EnvironmentMatch(tuple(lines), "lock")
    expected, here = image_identity(stored), image_identity(found)
    if expected is None or here is None:
        lines.append(f"image: expected {_short(stored.image_id)}, found {_short(found.image_id)}")
        return EnvironmentMatch(tuple(lines), "lock and the id of the image, whose layers are not known")
    lines += differences(expected, here)
    return EnvironmentMatch(tuple(lines), f"lock and {len(here.layers)} layers and settings of the image")


def image_identity(pin: EnvironmentPin) -> ImageIdentity | None:
    """The identity of an environment's image; null where there is no image, or it is not known."""
    if not pin.image_layers or pin.image_config_sha256 is None:
        return None
    return ImageIdentity(pin.image_id or "", pin.image_config_sha256, pin.image_layers)


def stored_image(pin: EnvironmentPin) -> StoredImage:
    """The image of a stored trial, as engines are asked for it."""
    digest = pin.image_digest if pin.image_digest is not None and "@" in pin.image_digest else None
    return StoredImage(pin.name, pin.image_id, digest, image_identity(pin))


def without_image(image: StoredImage, nearest: ImageIdentity | None, host: str, why: str) -> EnvironmentMatch:
    """In what the nearest image of a host's engine differs from the one that cannot be had.

    Args:
        image: that is wanted.
        nearest: the nearest that the engine has; null if it has none of that environment.
        host: its name.
        why: no registry gives it.
    """
    lines = [f"image: the engine of {host} does not have {_short(image.image_id)}, and {why}"]
    if nearest is None:
        lines.append(f"that engine has no other image of {image.environment} either")
    elif image.identity is None:
        lines.append(f"image id: found {_short(nearest.image_id)}")
    else:
        lines += differences(image.identity, nearest)
    return EnvironmentMatch(tuple(lines), "image")


def image_here(image: StoredImage, recorded: Mapping[str, BuiltImage]) -> BuiltImage | None:
    """The image as this machine's usual engine has it, by its record; null if it does not."""
    for built in recorded.values():
        if image.identity is not None and not differences(image.identity, built.identity):
            has_it = engine_problem() is None and look_for_image(image, None).found is not None
            return built if has_it else None
    return None


def observed_versions(python: str) -> dict[str, str]:
    """Every distribution of a virtual environment, as its trials will see it.

    Raises:
        InfrastructureError: its Python does not start.
    """
    try:
        # A copy, as for a trial: the project's directory may hold metadata of distributions of its own.
        with tempfile.TemporaryDirectory() as directory:
            copy_code(INSTALLED, Path(directory))
            done = subprocess.run(
                [python, "-c", _OBSERVE],
                cwd=directory,
                env={"PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=True,
            )
        return validated(dict[str, str], done.stdout, "what it printed")
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise InfrastructureError(f"{python} cannot say what is installed: {last}") from None
    except (OSError, subprocess.TimeoutExpired, ForeignDataError) as error:
        raise InfrastructureError(f"{python} cannot say what is installed: {error}") from None


def _short(digest: str | None) -> str:
    return "unknown" if digest is None else short_digest(digest)
