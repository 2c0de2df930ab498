"""Whether a host provides the environment that a stored trial ran in."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.environments import ImageIdentity, differences, mapping_differences, short_digest
from orchestrator.errors import InfrastructureError
from orchestrator.execution import INSTALLED, ExecutionSettings, ProcessSettings, copy_code
from orchestrator.planning import EnvironmentPin, Isolation

_OBSERVE = "import json; from runners.system import observe_environment; print(json.dumps(observe_environment()[0]))"
_LIMIT_S = 60
_SHOWN = 8
"""Differences that are named; the others are counted."""


@dataclass(frozen=True)
class Identity:
    """What the comparison of two environments gave."""

    differences: tuple[str, ...]
    """Expected is what the store says, found what the host has; empty if they are identical."""
    compared: str
    """What was compared, for a person."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The differences; of many the first, and how many more there are."""
        more = len(self.differences) - _SHOWN
        return (*self.differences[:_SHOWN], *([f"and {more} more"] if more > 0 else []))

    @property
    def text(self) -> str:
        """The differences in one line."""
        return "; ".join(self.lines)


def before_building(stored: EnvironmentPin, found: EnvironmentPin) -> Identity:
    """Compares what is known without building anything: isolation and lock, and the image if there is one already."""
    if stored.isolation is not found.isolation:
        ways = f"expected {stored.isolation.value}, found {found.isolation.value} ({found.reason})"
        return Identity((f"isolation: {ways}", *_locks(stored, found)), "isolation")
    if found.isolation is Isolation.DOCKER and found.image_id is not None:
        image = _images(stored, found)
        return Identity((*_locks(stored, found), *image.differences), f"lock and {image.compared}")
    return Identity(_locks(stored, found), "lock")


def compare(
    stored: EnvironmentPin, versions: Mapping[str, str], found: EnvironmentPin, execution: ExecutionSettings
) -> Identity:
    """Compares a stored environment with one that is ready to run.

    Args:
        stored: as the rows say.
        versions: of the distributions that were seen inside then.
        found: what the host has.
        execution: how it is started.

    Raises:
        InfrastructureError: the virtual environment cannot be looked into.
    """
    known = before_building(stored, found)
    if stored.isolation is Isolation.PROCESS and isinstance(execution, ProcessSettings):
        now = observed_versions(execution.python)
        return Identity((*known.differences, *mapping_differences(versions, now)), "lock and installed versions")
    return known


def lacking(stored: EnvironmentPin, nearest: ImageIdentity | None, place: str, why: str) -> Identity:
    """What is said where the image of stored trials cannot be had.

    Args:
        stored: as the rows say.
        nearest: another image of the same environment that is there; null if there is none.
        place: where it was looked for.
        why: it cannot be brought there.
    """
    lines = [f"image: {place} does not have {_short(stored.image_id)}, and {why}"]
    if nearest is None:
        return Identity((*lines, f"{place} has no other image of {stored.name} either"), "image")
    expected = image_identity(stored)
    if expected is None:
        lines.append(f"image id (the store has no layers of this row): found {_short(nearest.image_id)}")
    else:
        lines += differences(expected, nearest)
    return Identity(tuple(lines), "image")


def image_identity(pin: EnvironmentPin) -> ImageIdentity | None:
    """The identity of an environment's image; null where the store has no layers of it, or there is no image."""
    if not pin.image_layers or pin.image_config_sha256 is None:
        return None
    return ImageIdentity(pin.image_id or "", pin.image_config_sha256, pin.image_layers)


def observed_versions(python: Path) -> dict[str, str]:
    """Every distribution of a virtual environment, as its trials will see it.

    Raises:
        InfrastructureError: its Python does not start.
    """
    try:
        # A copy, as for a trial: the project's directory may hold metadata of distributions of its own.
        with tempfile.TemporaryDirectory() as directory:
            copy_code(INSTALLED, Path(directory))
            done = subprocess.run(
                [str(python), "-c", _OBSERVE],
                cwd=directory,
                env={"PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=True,
            )
        seen: dict[str, str] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise InfrastructureError(f"{python} cannot say what is installed: {last}") from None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise InfrastructureError(f"{python} cannot say what is installed: {error}") from None
    return seen


def _locks(stored: EnvironmentPin, found: EnvironmentPin) -> tuple[str, ...]:
    if stored.lock_sha256 == found.lock_sha256:
        return ()
    return (f"lock: expected {_short(stored.lock_sha256)}, found {_short(found.lock_sha256)}",)


def _images(stored: EnvironmentPin, found: EnvironmentPin) -> Identity:
    expected, here = image_identity(stored), image_identity(found)
    if expected is not None and here is not None:
        return Identity(differences(expected, here), f"{len(here.layers)} layers and settings of the image")
    names = {stored.image_id, stored.image_digest} & {found.image_id, found.image_digest} - {None}
    # Rows from before layers were stored: an equal id still proves the same image, another id proves nothing alone.
    compared = "the id of the image, since the store has no layers of this row"
    if names:
        return Identity((), compared)
    shown = f"expected {_short(stored.image_id)}, found {_short(found.image_id)}"
    return Identity((f"image id (the store has no layers of this row): {shown}",), compared)


def _short(digest: str | None) -> str:
    return "unknown" if digest is None else short_digest(digest)
