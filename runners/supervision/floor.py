"""The dispatch floor of a structure: its shrunk twins, each measured in a process of its own, and what they prove."""

import time
from dataclasses import dataclass, replace
from typing import Callable, Dict, Mapping, Optional, Tuple

from runners.contract import Series, Status, Trial, TrialSpec, WorkloadSpec, digest
from runners.contract.record import FactValue
from runners.examination.counts import parsed_counts
from runners.protocol.answer import Answer
from runners.workloads import make_workload
from runners.workloads.base import Unsupported

LEAST_SAMPLES = 100
"""With fewer, a tenth of them is a handful of calls."""

MOST_WAITING = 0.75
"""Share of a twin's calls that waited for a CPU. The tenth quantile withstands many of them, and then no more."""

MOST_PRESSURE = 0.5
"""Share of the time in which some process of the machine waited for a CPU. With several threads nothing else tells."""

_WAITED = 1.1
"""A call on one thread waited if it took so many times its CPU time."""

_WARMUP_MS = 100
_DIFFERENCES_NAMED = 4

Facts = Dict[str, FactValue]
Measure = Callable[[TrialSpec], Answer]
"""Measures a specification in a process of its own, with no other beside it."""


@dataclass(frozen=True)
class Twin:
    """What became of one twin."""

    series: Optional[Series]
    facts: Mapping[str, FactValue]
    problem: Optional[str]
    is_missing: bool = False
    """There is none of this structure, which is nothing that went wrong."""


@dataclass(frozen=True)
class Floor:
    """The twins of one structure."""

    small: Twin
    """On one thread, whatever the trial has."""
    large: Twin
    """The same with `TWIN_GROWTH` times the elements: what it takes more is arithmetic."""
    threaded: Optional[Twin]
    """The small one on the trial's threads; null if that is one."""
    structure: str
    """Identity of what the twins have in common with those of other tasks, rounds and numbers of threads."""
    measured_by: str
    """The trial for which it was measured; others of the same structure share it."""


class Floors:
    """Measures the floor of each structure of a task once."""

    def __init__(self) -> None:
        self._known: Dict[str, Floor] = {}

    def extended(self, answer: Answer, trial: Trial, measure: Measure) -> Answer:
        """The answer of a trial and what its floor adds. What was timed stands, whatever becomes of the floor."""
        start = time.monotonic()
        try:
            spec = twin_spec(trial.spec)
        except Unsupported as reason:
            return replace(answer, facts=dict(answer.facts, floor_valid=None, floor_problem=str(reason)))
        key = digest(spec)
        fresh = key not in self._known
        if fresh:
            self._known[key] = _measured(trial.trial_id, spec, measure)
        floor = self._known[key]
        twins = (floor.small, floor.large, floor.threaded)
        return replace(
            answer,
            phases=replace(answer.phases, floor_s=time.monotonic() - start if fresh else None),
            series=(*answer.series, *(twin.series for twin in twins if twin is not None and twin.series is not None)),
            facts=dict(answer.facts, **floor_facts(floor, answer.facts)),
        )


def twin_spec(spec: TrialSpec) -> TrialSpec:
    """The trial that measures the small twin: single calls, and nothing beside them.

    Raises:
        Unsupported: the workload has no such twin.
    """
    protocol = replace(
        spec.protocol,
        warmup_min_ms=min(_WARMUP_MS, spec.protocol.warmup_min_ms),
        sync_budget_ms=spec.protocol.floor_budget_ms,
        sync_min_samples=LEAST_SAMPLES,
        pipelined_budget_ms=0,
        floor_budget_ms=0,
        energy_window_ms=0,
    )
    return replace(spec, workload=make_workload(spec).shrunk(), protocol=protocol)


def structure(spec: TrialSpec) -> str:
    """Identity of a twin: what is executed and how, but neither how long it is measured nor on how many threads."""
    workload: WorkloadSpec = spec.workload
    return digest([workload, spec.backend, spec.dtype, spec.device, spec.seed])


def series_problem(series: Series, threads: int) -> Optional[str]:
    """Why the samples of a twin are no floor; None if they are.

    Args:
        series: its single calls.
        threads: that it computed on.
    """
    count = len(series.durations_ns)
    if count < LEAST_SAMPLES:
        return "the twin has %d samples, not %d" % (count, LEAST_SAMPLES)
    if threads == 1:
        share = _waiting_share(series)
        if share > MOST_WAITING:
            return "taken under pressure: %.0f %% of the calls waited for a CPU" % (100 * share)
        return None
    taken_ns = sum(series.durations_ns)
    if series.pressure_total_ns is not None and series.pressure_total_ns > MOST_PRESSURE * taken_ns:
        share = min(1.0, series.pressure_total_ns / taken_ns)
        return "taken under pressure: some process waited for a CPU in %.0f %% of the time" % (100 * share)
    return None


def _waiting_share(series: Series) -> float:
    pairs = list(zip(series.durations_ns, series.cpu_ns))
    return sum(wall > _WAITED * cpu for wall, cpu in pairs) / len(pairs) if pairs else 0.0


def floor_facts(floor: Floor, facts: Mapping[str, FactValue]) -> Facts:
    """What the row says about the floor. It holds only if the twin dispatches the operations of the trial.

    Args:
        floor: of the trial's structure.
        facts: of the trial, with its operations.
    """
    small, large, threaded = floor.small, floor.large, floor.threaded
    problem, alike, disturbed = small.problem, None, None
    if small.series is not None:
        problem, alike = _compared(small.facts, facts)
        disturbed = small.problem
        if disturbed is None and large.problem is not None and not large.is_missing:
            # Without the intercept the arithmetic of the small twin would count
            disturbed = "the large twin: " + large.problem
        problem = problem or disturbed
    return {
        "floor_operations": small.facts.get("operations"),
        "floor_alike": alike,
        "floor_waiting_share": None if small.series is None else _waiting_share(small.series),
        "floor_valid": alike and disturbed is None,
        "floor_problem": problem,
        "floor_large_problem": large.problem,
        "floor_threads_problem": None if threaded is None else threaded.problem,
        "floor_structure": floor.structure,
        "floor_measured_by": floor.measured_by,
    }


def difference(ours: Mapping[str, int], theirs: Mapping[str, int]) -> Optional[str]:
    """Which operations one of two calls has more often, in words; None if they have the same.

    Args:
        ours: of the twin, by name.
        theirs: of the trial.
    """
    gaps = {name: ours.get(name, 0) - theirs.get(name, 0) for name in {*ours, *theirs}}
    named = sorted((name for name, gap in gaps.items() if gap), key=lambda name: (-abs(gaps[name]), name))
    if not named:
        return None
    shown = ", ".join("%s %+d" % (name, gaps[name]) for name in named[:_DIFFERENCES_NAMED])
    more = len(named) - _DIFFERENCES_NAMED
    return shown + (" and %d more names" % more if more > 0 else "")


def _measured(trial_id: str, spec: TrialSpec, measure: Measure) -> Floor:
    lone = replace(spec, threads=1)
    small = _twin(lone, "floor", measure)
    large, threaded = Twin(None, {}, "there is no small one"), None
    if small.series is not None:
        large = _large_twin(lone, small, measure)
        if spec.threads > 1:
            threaded = _twin(spec, "floor_threads", measure)
    return Floor(small, large, threaded, structure(lone), trial_id)


def _large_twin(spec: TrialSpec, small: Twin, measure: Measure) -> Twin:
    """The large twin; one of another structure than the small one has no number."""
    try:
        enlarged = make_workload(spec).enlarged()
    except Unsupported as reason:
        return Twin(None, {}, str(reason), is_missing=True)
    large = _twin(replace(spec, workload=enlarged), "floor_large", measure)
    if large.series is None:
        return large
    problem, valid = _compared(large.facts, small.facts)
    if valid is False:
        return Twin(None, large.facts, "of another structure: %s" % problem, is_missing=True)
    return large


def _twin(spec: TrialSpec, mode: str, measure: Measure) -> Twin:
    answer = measure(spec)
    if answer.status is not Status.OK:
        return Twin(None, {}, "%s: %s" % (answer.status.value, answer.reason))
    [sync] = [series for series in answer.series if series.mode == "sync"]
    return Twin(replace(sync, mode=mode), answer.facts, series_problem(sync, spec.threads))


def _compared(twin: Mapping[str, FactValue], trial: Mapping[str, FactValue]) -> Tuple[Optional[str], Optional[bool]]:
    """What is wrong with the operations of a twin, and whether they are those of the trial."""
    counts = [facts.get("operations") for facts in (twin, trial)]
    if None in counts:
        return "the operations of this backend cannot be counted, so that the twin's structure is not proven", None
    names = [facts.get("operations_by_name") for facts in (twin, trial)]
    if all(isinstance(text, str) for text in names):
        found = difference(*(parsed_counts(str(text)) for text in names))
        return (None, True) if found is None else ("the twin dispatches other operations: " + found, False)
    if counts[0] == counts[1]:
        return None, True
    return "the twin dispatches %s operations, the trial %s" % (counts[0], counts[1]), False
