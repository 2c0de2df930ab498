"""Whether a machine had the environment that the sweep names, judged by what was seen inside."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.campaign.exchange.machine import BY_HAND, locked_pin
from orchestrator.campaign.exchange.manifest import LockedEnvironment
from orchestrator.environments import EnvironmentEntry, Pin, lock_differences, lock_sha256, read_lock
from orchestrator.planning import EnvironmentPin, Isolation, trial_key
from runners.contract import Trial, digest
from runners.contract.catalogue import BACKENDS, WORKLOADS


@dataclass(frozen=True)
class Provided:
    """The environment in which trials ran."""

    pin: EnvironmentPin
    lock_sha256: str | None
    """Null if it is not what the lock says."""

    def key(self, trial: Trial) -> str:
        """The trial's key in this environment."""
        return trial.trial_key if self.lock_sha256 is not None else trial_key(trial.spec, self.pin)


def describe(entry: EnvironmentEntry) -> LockedEnvironment:
    """An environment of the catalogue as an export carries it.

    Raises:
        ConfigurationError: the lock is malformed.
    """
    versions = {name: pin.version for name, pin in sorted(read_lock(entry.lock_path).items())}
    return LockedEnvironment(python=entry.python, lock_sha256=lock_sha256(entry), versions=versions)


def differences(locked: LockedEnvironment, versions: Mapping[str, str]) -> list[str]:
    """Each way in which an environment differs from its lock, by the rule for virtual environments that are built here.

    Python and the frameworks come first.

    Args:
        locked: what the lock says.
        versions: what was seen, `python` included.
    """
    pins = {name: Pin(name, version, frozenset()) for name, version in locked.versions.items()}
    listed = [{"name": name, "version": version} for name, version in versions.items() if name != "python"]
    python = versions.get("python", "absent")
    fits = python == locked.python or python.startswith(f"{locked.python}.")
    others = sorted(lock_differences(pins, listed), key=lambda text: text.partition(" ")[0] not in _frameworks())
    return [*([] if fits else [f"python is {python} instead of {locked.python}"]), *others]


def as_locked(name: str, locked: LockedEnvironment) -> Provided:
    """The environment of the lock."""
    return Provided(locked_pin(name, locked.lock_sha256), locked.lock_sha256)


def as_found(name: str, versions: Mapping[str, str]) -> Provided:
    """An environment that differs from its lock: nothing of it shares a name or a key with the locked one.

    In the keys the digest of what was found takes the place of the lock's, so that two such environments do not
    share keys either.
    """
    found = digest(dict(versions))
    return Provided(EnvironmentPin(f"{name}+found-{found[:8]}", Isolation.PROCESS, BY_HAND, found), None)


def _frameworks() -> set[str]:
    needed = [info.frameworks for info in BACKENDS.values()] + [info.frameworks for info in WORKLOADS.values()]
    return {name for names in needed for name in names}
