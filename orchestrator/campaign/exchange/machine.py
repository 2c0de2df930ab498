"""The machine that an export is for: nothing about it is known here but what a person says."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.config import Sweep
from orchestrator.environments import EnvironmentEntry, lock_sha256
from orchestrator.errors import ConfigurationError
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost

BY_HAND = "the task directory was run by hand"
"""Why the isolation is `process`: it stands in each row as `executor_reason`."""

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_MOST_CORES = 4096


@dataclass(frozen=True)
class Cores:
    """The cores that trials may use there."""

    numbers: tuple[int, ...]
    text: str
    """As a person wrote them."""
    are_chosen: bool
    """Whether these very cores are meant, and not just as many."""


def parse_cores(text: str) -> Cores:
    """Reads `16` as that many cores, and `0-15`, `0,2,4` or `3-3` as these cores.

    Raises:
        ConfigurationError: it is neither.
    """
    if re.fullmatch(r"[1-9]\d{0,4}", text) and int(text) <= _MOST_CORES:
        return Cores(tuple(range(int(text))), text, are_chosen=False)
    numbers: set[int] = set()
    if re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", text) and re.search("[-,]", text):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
            numbers.update(range(int(first), int(last or first) + 1))
    if not numbers:
        raise ConfigurationError(f"--cores {text}: expected a number such as 16, or a list such as 0-15 or 0,2,4")
    return Cores(tuple(sorted(numbers)), text, are_chosen=True)


def exported_host(
    name: str, labels: Mapping[str, str], cores: Cores, entries: Sequence[EnvironmentEntry]
) -> PlanningHost:
    """The machine as planning sees it, with the locks' environments.

    Raises:
        ConfigurationError: the name cannot be that of a host.
    """
    if not _HOST.fullmatch(name):
        raise ConfigurationError(f"--host {name}: a host name consists of a-z, 0-9, '-' and '.'")
    pins = {entry.name: locked_pin(entry.name, lock_sha256(entry)) for entry in entries}
    return PlanningHost(name, dict(labels), cores.numbers, pins)


def locked_pin(environment: str, lock: str) -> EnvironmentPin:
    """The pin of an environment that was installed by hand and is what its lock says."""
    return EnvironmentPin(environment, Isolation.PROCESS, BY_HAND, lock)


def cores_of(sweep: Sweep, text: str | None) -> Cores | None:
    """The cores that a sweep is planned for; null if only a person can say."""
    if text is not None:
        return parse_cores(text)
    numbers = [threads for threads in sweep.threads if isinstance(threads, int)]
    return parse_cores(str(max(numbers))) if len(numbers) == len(sweep.threads) else None
