"""What a device did for each call, out of a trace: pure values and arithmetic on them, all in nanoseconds."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

_KERNEL_LAUNCH = re.compile(r"(cudaLaunch\w*Kernel|cuLaunch\w*Kernel)")
_GRAPH_LAUNCH = re.compile(r"cu(da)?GraphLaunch")
# Clocks of host and device are matched to within microseconds: H100s were seen to start kernels "before" their launch
_CLOCK_SKEW_NS = 20_000
# A clock that is this coarse against the busy time spoils it
_MAX_ROUNDING_SHARE = 0.05


class ActivityKind(str, Enum):
    """What a device can be busy with."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"


@dataclass(frozen=True)
class Activity:
    """One interval during which a stream of the device was busy."""

    kind: ActivityKind
    start_ns: int
    duration_ns: int
    correlation: Optional[int]
    """Number that the activity shares with the call of the driver that caused it."""
    stream: Optional[int]
    iteration: Optional[int]
    """The iteration that caused it; null if none did."""
    occupancy: Optional[float] = None
    """Of a kernel: share of the warps that fit, as the profiler estimates it from its launch."""


@dataclass(frozen=True)
class Launch:
    """One call that launches a kernel or a graph of kernels."""

    name: str
    start_ns: int
    correlation: int
    iteration: Optional[int]

    @property
    def is_graph(self) -> bool:
        """It stands for any number of kernels."""
        return _GRAPH_LAUNCH.match(self.name) is not None


@dataclass(frozen=True)
class Trace:
    """The part of a profiler's trace that matters here."""

    iterations: int
    activities: Tuple[Activity, ...]
    launches: Tuple[Launch, ...]
    operators: Optional[Tuple[int, ...]]
    """Per iteration, aten operators that no other aten operator called; null if the clock is too coarse to tell."""
    resolution_ns: int
    """Step of the trace's clock: 1000 in traces that hold whole microseconds."""
    waits: Tuple[int, ...] = ()
    """Per iteration, calls of the runtime that wait for the device, that at its end included."""


@dataclass(frozen=True)
class Iteration:
    """The device's share of one iteration."""

    busy_ns: int
    """Length of the union of all activities."""
    kernel_sum_ns: int
    """Plain sum over the kernels: above `busy_ns` if streams overlap, below it if there are copies."""
    kernels: int
    launches: int
    gaps: int
    gap_ns: int
    """Idle time between the first and the last activity, as long as the profiler made it."""


@dataclass(frozen=True)
class Analysis:
    """Iteration by iteration, and every reason not to believe it."""

    iterations: Tuple[Iteration, ...]
    kernels_without_launch: int
    """Kernels of an iteration whose launch was not recorded: the number of launches is too low then."""
    problems: Tuple[str, ...]
    early_ns: Tuple[int, ...] = ()
    """Of kernels that start before their launch: by how much. The clocks of host and device differ by so much."""
    occupancy: Optional[float] = None
    """Mean over the time of the kernels; null if the trace does not tell it."""


def is_launch(name: str) -> bool:
    """Whether this function of the runtime or driver starts kernels."""
    return bool(_KERNEL_LAUNCH.match(name) or _GRAPH_LAUNCH.match(name))


def merged(intervals: Iterable[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """The union of intervals (start, end) as disjoint intervals in order; those that only touch become one."""
    union: List[Tuple[int, int]] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def analyse(trace: Trace) -> Analysis:
    """Adds up each iteration and checks whether the trace is complete."""
    activities: List[List[Activity]] = [[] for _ in range(trace.iterations)]
    launches: List[List[Launch]] = [[] for _ in range(trace.iterations)]
    for activity in trace.activities:
        if activity.iteration is not None:
            activities[activity.iteration].append(activity)
    for launch in trace.launches:
        if launch.iteration is not None:
            launches[launch.iteration].append(launch)
    iterations = tuple(_iteration(*each) for each in zip(activities, launches))
    known = {launch.correlation for launch in trace.launches}
    flat = [activity for each in activities for activity in each]
    orphans = sum(a.kind is ActivityKind.KERNEL and a.correlation not in known for a in flat)
    every_launch = [launch for each in launches for launch in each]
    problems = _problems(trace, flat, every_launch, iterations)
    return Analysis(iterations, orphans, problems, _early(flat, every_launch), _occupancy(flat))


def _iteration(activities: Sequence[Activity], launches: Sequence[Launch]) -> Iteration:
    union = merged((a.start_ns, a.start_ns + max(0, a.duration_ns)) for a in activities)
    kernels = [a for a in activities if a.kind is ActivityKind.KERNEL]
    busy = sum(end - start for start, end in union)
    return Iteration(
        busy_ns=busy,
        kernel_sum_ns=sum(max(0, kernel.duration_ns) for kernel in kernels),
        kernels=len(kernels),
        launches=len(launches),
        gaps=max(0, len(union) - 1),
        gap_ns=union[-1][1] - union[0][0] - busy if union else 0,
    )


def _problems(
    trace: Trace, activities: Sequence[Activity], launches: Sequence[Launch], iterations: Sequence[Iteration]
) -> Tuple[str, ...]:
    """The profiler loses records without a word (pytorch#192021), so a trace is believed only if it adds up."""
    if not iterations:
        return ("the trace holds no iteration",)
    if not activities and not launches:
        return ("no device activity was recorded",)
    found = (
        _missing(activities, launches),
        _impossible(activities, trace.resolution_ns),
        _skewed(_early(activities, launches)),
        _unequal([iteration.kernels for iteration in iterations]),
        _coarse(trace.resolution_ns, activities, sum(iteration.busy_ns for iteration in iterations)),
    )
    return tuple(problem for problem in found if problem is not None)


def _missing(activities: Sequence[Activity], launches: Sequence[Launch]) -> Optional[str]:
    kernels = {a.correlation for a in activities if a.kind is ActivityKind.KERNEL}
    anything = {a.correlation for a in activities}
    # A graph may hold copies alone, but it does something
    lost = [each for each in launches if each.correlation not in (anything if each.is_graph else kernels)]
    if not lost:
        return None
    what = "no device activity" if all(each.is_graph for each in lost) else "no kernel record"
    return "%d of %d launches have %s (first: %s)" % (len(lost), len(launches), what, lost[0].name)


def _impossible(activities: Sequence[Activity], resolution_ns: int) -> Optional[str]:
    # Below a coarse clock's step a duration is zero and still right
    least = 1 if resolution_ns == 1 else 0
    bad = sum(activity.duration_ns < least for activity in activities)
    return "%d device activities last no time" % bad if bad else None


def _early(activities: Sequence[Activity], launches: Sequence[Launch]) -> Tuple[int, ...]:
    starts: Dict[Optional[int], int] = {launch.correlation: launch.start_ns for launch in launches}
    kernels = (a for a in activities if a.kind is ActivityKind.KERNEL and a.correlation in starts)
    leads = (starts[kernel.correlation] - kernel.start_ns for kernel in kernels)
    return tuple(lead for lead in leads if lead > 0)


def _skewed(early_ns: Sequence[int]) -> Optional[str]:
    far = [lead for lead in early_ns if lead > _CLOCK_SKEW_NS]
    return "%d kernels start up to %d us before their launch" % (len(far), max(far) // 1000) if far else None


def _occupancy(activities: Sequence[Activity]) -> Optional[float]:
    known = [(a.occupancy, a.duration_ns) for a in activities if a.occupancy is not None and a.duration_ns > 0]
    total_ns = sum(duration_ns for _, duration_ns in known)
    return sum(occupancy * duration_ns for occupancy, duration_ns in known) / total_ns if total_ns else None


def _unequal(kernels: Sequence[int]) -> Optional[str]:
    if len(set(kernels)) == 1:
        return None
    return "the number of kernels differs between iterations: %d to %d" % (min(kernels), max(kernels))


def _coarse(resolution_ns: int, activities: Sequence[Activity], busy_ns: int) -> Optional[str]:
    rounding_ns = resolution_ns * len(activities)
    if resolution_ns == 1 or rounding_ns <= _MAX_ROUNDING_SHARE * busy_ns:
        return None
    return "the trace's clock steps by %d ns: up to %d us of %d us busy time are rounding" % (
        resolution_ns,
        rounding_ns // 1000,
        busy_ns // 1000,
    )
