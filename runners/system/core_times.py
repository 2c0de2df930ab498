"""What others take of some processors: the time in which they were not idle, less what this process tree used.

Read per core from /proc/stat, which shows the whole machine also inside a container. The load average follows too
slowly, and the kernel's pressure information does not say where.
"""

import re
import resource
import time
from dataclasses import dataclass
from typing import Dict, Iterable, Optional, Tuple

from runners.system.reading import parse_list, read_text

_TICKS_PER_S = 100
"""Of /proc/stat: the kernel counts in USER_HZ there, on every architecture that is served."""

_CREDIBLE = 0.5
"""Of the time that passed, the share that the kernel must have counted: a made-up /proc stands still."""


@dataclass(frozen=True)
class CoreTimes:
    """One look at some cores."""

    at_s: float
    """On the clock of `time.monotonic`."""
    idle_s: Dict[int, float]
    """By core, since the system started; time in which it waits for a disk is idle, too."""
    counted_s: Dict[int, float]
    """By core, all that the kernel counted, whatever for."""
    own_s: float
    """CPU time of this process and of its descendants that have ended."""


def look(cores: Iterable[int], root: str = "/") -> Optional[CoreTimes]:
    """Looks at some cores; None where the system does not list each of them."""
    own_s, at_s = own_cpu_s(), time.monotonic()
    lines = (line.split() for line in (read_text(root, "/proc/stat") or "").splitlines())
    found = {words[0][3:]: [int(word) for word in words[1:9]] for words in lines if words[:1] and _is_core(words)}
    wanted = {core: found.get(str(core)) for core in cores}
    known = {core: ticks for core, ticks in wanted.items() if ticks is not None}
    if not known or len(known) < len(wanted):
        return None
    return CoreTimes(
        at_s,
        {core: (ticks[3] + ticks[4]) / _TICKS_PER_S for core, ticks in known.items()},
        {core: sum(ticks) / _TICKS_PER_S for core, ticks in known.items()},
        own_s,
    )


def others_permille(first: CoreTimes, second: CoreTimes) -> Optional[float]:
    """Between two looks, of the time of all cores the part that others took, in thousandths; None if nobody counted.

    Exact to one step of the kernel's clock (10 ms) per core.
    """
    passed_s = second.at_s - first.at_s
    counted_s = sum(second.counted_s[core] - first.counted_s[core] for core in first.counted_s)
    available_s = passed_s * len(first.idle_s)
    if available_s <= 0 or counted_s < _CREDIBLE * available_s:
        return None
    idle_s = sum(min(passed_s, max(0.0, second.idle_s[core] - first.idle_s[core])) for core in first.idle_s)
    others_s = available_s - idle_s - (second.own_s - first.own_s)
    return 1000 * min(1.0, max(0.0, others_s / available_s))


def own_cpu_s() -> float:
    """CPU time of this process and of its descendants that were waited for, in seconds."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def cores_text(cores: Iterable[int]) -> str:
    """Processors as the kernel lists them: `0-3,8`."""
    runs: "list[Tuple[int, int]]" = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], core)
        else:
            runs.append((core, core))
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in runs)


def cores_in(text: str) -> "Tuple[int, ...]":
    """The processors of such a list, in order.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise ValueError("%r is no list of processors" % text)
    return tuple(sorted(parse_list(text)))


def _is_core(words: "list[str]") -> bool:
    return words[0].startswith("cpu") and words[0][3:].isdigit() and len(words) > 8
