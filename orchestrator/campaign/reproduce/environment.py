"""Whether a host provides the environment that stored trials ran in."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

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
from orchestrator.errors import InfrastructureError
from orchestrator.execution import INSTALLED, copy_code
from orchestrator.hosts import HostAccess
from orchestrator.planning import EnvironmentPin, Isolation

_OBSERVE = "import json; from runners.system import observe_environment; print(json.dumps(observe_environment()[0]))"
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
        more = len(self.differences) - _SHOWN
        return (*self.differences[:_SHOWN], *([f"and {more} more"] if more > 0 else []))

    @property
    def text(self) -> str:
        """The differences in one line."""
        return "; ".join(self.lines)


def before_building(stored: EnvironmentPin, found: EnvironmentPin) -> EnvironmentMatch:
    """Compares what is known without building anything: isolation and lock, and the image if there is one already."""
    if stored.isolation is not found.isolation:
        ways = f"expected {stored.isolation.value}, found {found.isolation.value} ({found.reason})"
        return EnvironmentMatch((f"isolation: {ways}", *_locks(stored, found)), "isolation")
    if found.isolation is Isolation.DOCKER and found.image_id is not None:
        image = _images(stored, found)
        return EnvironmentMatch((*_locks(stored, found), *image.differences), f"lock and {image.compared}")
    return EnvironmentMatch(_locks(stored, found), "lock")


def compare(
    stored: EnvironmentPin, versions: Mapping[str, str], found: EnvironmentPin, installed: Mapping[str, str] | None
) -> EnvironmentMatch:
    """Compares a stored environment with one that is ready to run.

    Args:
        stored: as the rows say.
        versions: of the distributions that were seen inside then.
        found: what the host has.
        installed: versions in a virtual environment of now, of `observed_versions`; null for an image.
    """
    known = before_building(stored, found)
    if stored.isolation is not Isolation.PROCESS or installed is None:
        return known
    differing = mapping_differences(versions, installed)
    return EnvironmentMatch((*known.differences, *differing), "lock and installed versions")


def lacking(stored: EnvironmentPin, nearest: ImageIdentity | None, host: str, why: str) -> EnvironmentMatch:
    """What is said where the image of stored trials cannot be had.

    Args:
        stored: as the rows say.
        nearest: another image of the same environment that the host's engine has; null if there is none.
        host: where it was looked for.
        why: it cannot be brought there.
    """
    lines = [f"image: the engine of {host} does not have {_short(stored.image_id)}, and {why}"]
    if nearest is None:
        return EnvironmentMatch((*lines, f"that engine has no other image of {stored.name} either"), "image")
    expected = image_identity(stored)
    if expected is None:
        lines.append(f"image id: found {_short(nearest.image_id)}")
    else:
        lines += differences(expected, nearest)
    return EnvironmentMatch(tuple(lines), "image")


def image_identity(pin: EnvironmentPin) -> ImageIdentity | None:
    """The identity of an environment's image; null where there is no image, or it is not known."""
    if not pin.image_layers or pin.image_config_sha256 is None:
        return None
    return ImageIdentity(pin.image_id or "", pin.image_config_sha256, pin.image_layers)


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


def _images(stored: EnvironmentPin, found: EnvironmentPin) -> EnvironmentMatch:
    expected, here = image_identity(stored), image_identity(found)
    if expected is None or here is None:
        line = f"image: expected {_short(stored.image_id)}, found {_short(found.image_id)}"
        return EnvironmentMatch((line,), "the id of the image, whose layers are not known")
    return EnvironmentMatch(differences(expected, here), f"{len(here.layers)} layers and settings of the image")


def _short(digest: str | None) -> str:
    return "unknown" if digest is None else short_digest(digest)


def stored_image(pin: EnvironmentPin) -> StoredImage:
    """The image of a stored trial."""
    digest = pin.image_digest if pin.image_digest is not None and "@" in pin.image_digest else None
    return StoredImage(pin.name, pin.image_id, digest, image_identity(pin))


def at_hand(pin: EnvironmentPin, access: HostAccess, recorded: Mapping[str, BuiltImage]) -> EnvironmentMatch:
    """Whether a host's engine has the image of a stored trial, or may get it: in what it differs, if neither.

    Args:
        pin: of the trial.
        access: of the host where it is to run.
        recorded: images that were built on this machine.

    Raises:
        InfrastructureError: an engine does not answer.
    """
    stored = stored_image(pin)
    with access.engine() as engine:
        looked = engine.look(stored)
    if looked.found is not None or stored.registry_digest is not None or _to_send(stored, recorded) is not None:
        return EnvironmentMatch((), "image")
    return lacking(pin, looked.nearest, access.name, "it was never pushed into a registry")


def obtain(
    pin: EnvironmentPin, access: HostAccess, recorded: Mapping[str, BuiltImage], say: Callable[[str], None]
) -> ImageIdentity | EnvironmentMatch:
    """The image of a stored trial as the host's engine has it: found, pulled, or sent from this machine's engine.

    Args:
        pin: of the trial.
        access: of the host where it is to run.
        recorded: images that were built on this machine.
        say: told about long steps.

    Returns:
        The image; in what the engine's nearest one differs, if it cannot be had.

    Raises:
        InfrastructureError: an engine does not answer.
    """
    stored = stored_image(pin)
    with access.engine() as engine:
        looked = engine.look(stored)
        if looked.found is not None:
            return looked.found
        why = "it was never pushed into a registry"
        if stored.registry_digest is not None:
            say(f"pulling {stored.registry_digest}")
            try:
                return engine.pull(stored)
            except InfrastructureError as error:
                why = str(error)
        here = _to_send(stored, recorded)
        return lacking(pin, looked.nearest, access.name, why) if here is None else engine.send(here, say)


def pin_of_then(stored: EnvironmentPin, found: ImageIdentity, reason: str) -> EnvironmentPin:
    """What is identical keeps its lock and its names: what the engine calls it stands in the settings."""
    return replace(stored, reason=reason, image_layers=found.layers, image_config_sha256=found.config_sha256)


def _to_send(stored: StoredImage, recorded: Mapping[str, BuiltImage]) -> BuiltImage | None:
    """The image as this machine's usual engine has it, by its record; null if it does not."""
    wanted = stored.identity
    for image in recorded.values():
        if wanted is not None and image.identity is not None and not differences(wanted, image.identity):
            has_it = engine_problem() is None and look_for_image(stored, None).found is not None
            return image if has_it else None
    return None
