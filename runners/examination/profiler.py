"""The profiler pass: how long the device was busy for each call, and whether the record of it is complete."""

import itertools
import os
import statistics
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from runners.contract.record import FactValue
from runners.examination import kineto
from runners.examination.trace import Analysis, Trace, analyse

QUEUED_LAUNCHES = 900
"""The queue of a stream takes about 1,024 launches; after so many a launch may have to wait for the device."""

_LONGEST = 1.1
"""Busy time over latency that noise explains, and busy time of a replay over that of a call."""
_OTHER = 0.05
"""Share of a call's kernels by which its recording may differ and still be of the same work."""
_REPLAYS = 3

_WAIT = 1
_WARM_UP = 5


def profile(
    call: Callable[..., Any],
    ring: Sequence[Tuple[Any, ...]],
    synchronize: Optional[Callable[[], None]],
    calls: int,
    replay: Optional[Callable[[], Any]] = None,
) -> Dict[str, FactValue]:
    """Runs torch.profiler over a few calls, each followed by a synchronisation.

    Times of kernels stay usable under the profiler, times of the host do not: it slows them down. That is why its wall
    time is returned too, to be divided by the one without it.

    Args:
        call: what is examined; it is warm.
        ring: its inputs.
        synchronize: waits for the device; None on a CPU.
        calls: profiled calls; six more come before them.
        replay: runs the call as it was recorded in a graph; a few of these follow.

    Returns:
        Medians per call: `busy_s`, `kernel_sum_s`, `kernels`, `launches`, `profiler_gap_s` (idle between activities),
        `profiler_wall_s`, `profiler_operators` (top-level aten operators); `profiler_valid` with `profiler_problem`;
        `waits` (calls within it that wait for the device) and `dispatch_problem` (why the time until it returns is not
        that of dispatch); `graph_kernels` and `graph_busy_s` of a replay;
        `profiler_early_max_us` (how far clocks of host and device are apart) and
        `profiler_occupancy` (warps of those that fit, while a kernel runs, as it is estimated from the launches).
    """
    try:
        from torch.profiler import ProfilerActivity
    except ImportError:
        return _unknown("this torch has no torch.profiler")
    activities = [ProfilerActivity.CPU] if synchronize is None else [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        walls_ns = _run(call, ring, synchronize, calls, activities, path, replay)
        if not os.path.exists(path):
            return _unknown("the profiler wrote no trace")
        try:
            document = kineto.load(path)
            trace, replays = kineto.parse(document), kineto.parse(document, kineto.REPLAY)
        except kineto.TraceError as error:
            return _unknown(str(error))
    facts = facts_of(trace, walls_ns, has_device=synchronize is not None)
    return facts if replay is None else dict(facts, **_replayed(replays))


def facts_of(trace: Trace, walls_ns: Sequence[int], has_device: bool) -> Dict[str, FactValue]:
    """The facts of a trace.

    Args:
        trace: what the profiler recorded.
        walls_ns: wall time of each profiled call with its synchronisation.
        has_device: false on a CPU, where a trace holds host time alone.
    """
    facts = _unknown(None)
    facts["profiler_wall_s"] = _median_s(walls_ns)
    facts["profiler_operators"] = _common(trace.operators)
    if not has_device:
        facts["profiler_problem"] = "a CPU has no device activity: all of a call is host time"
        return facts
    analysis = analyse(trace)
    problems = list(analysis.problems)
    if trace.iterations != len(walls_ns):
        problems.insert(0, "the trace holds %d of %d calls" % (trace.iterations, len(walls_ns)))
    facts["profiler_valid"] = not problems
    if analysis.iterations:
        facts.update(_device_facts(analysis))
        # One wait of each call is our own, at its end
        facts["waits"] = max(0, max(trace.waits, default=0) - 1)
        facts["dispatch_problem"] = _dispatch_problem(facts["waits"], facts["launches"])
    if analysis.kernels_without_launch:
        # Busy time does not suffer from this
        facts["launches"] = None
        facts["dispatch_problem"] = None
        problems.append("launches are unknown: %d kernels have no launch record" % analysis.kernels_without_launch)
    facts["profiler_problem"] = "; ".join(problems) or None
    return facts


def other_work(facts: Mapping[str, FactValue]) -> Optional[str]:
    """Why a replay is no floor of the call that was recorded; null if it does the same, or nobody knows.

    Models look whether they are being recorded: BERT of transformers 5.17 then makes a mask that it does without
    otherwise, and its attention takes slower kernels, 413 instead of 154.
    """
    kernels, recorded = facts.get("kernels"), facts.get("graph_kernels")
    if isinstance(kernels, int) and isinstance(recorded, int) and abs(recorded - kernels) > _OTHER * kernels:
        return "recorded, the call has %d kernels instead of %d: its replay is no floor" % (recorded, kernels)
    busy_s, recorded_s = facts.get("busy_s"), facts.get("graph_busy_s")
    if isinstance(busy_s, float) and isinstance(recorded_s, float) and recorded_s > _LONGEST * busy_s:
        return "recorded, the call keeps the device busy for %.0f us instead of %.0f us: its replay is no floor" % (
            recorded_s * 1e6,
            busy_s * 1e6,
        )
    return None


def _replayed(trace: Trace) -> Dict[str, FactValue]:
    analysis = analyse(trace)
    if analysis.problems:
        return {"graph_kernels": None, "graph_busy_s": None}
    facts = _device_facts(analysis)
    return {"graph_kernels": facts["kernels"], "graph_busy_s": facts["busy_s"]}


def checked_by_latency(facts: Mapping[str, FactValue], latency_s: float) -> Dict[str, FactValue]:
    """What changes in the facts of a profile that says the device was busy for longer than a call takes.

    Args:
        facts: of the profile.
        latency_s: of a call alone, without the profiler.
    """
    busy_s = facts.get("busy_s")
    if facts.get("profiler_valid") is not True or not isinstance(busy_s, float) or busy_s <= _LONGEST * latency_s:
        return {}
    problem = "the device is busy for %.0f us of a call of %.0f us" % (busy_s * 1e6, latency_s * 1e6)
    return {"profiler_valid": False, "profiler_problem": problem}


def _device_facts(analysis: Analysis) -> Dict[str, FactValue]:
    iterations = analysis.iterations
    return {
        "busy_s": _median_s([iteration.busy_ns for iteration in iterations]),
        "kernel_sum_s": _median_s([iteration.kernel_sum_ns for iteration in iterations]),
        "profiler_gap_s": _median_s([iteration.gap_ns for iteration in iterations]),
        "kernels": statistics.median_high([iteration.kernels for iteration in iterations]),
        "launches": statistics.median_high([iteration.launches for iteration in iterations]),
        "profiler_early_max_us": max(analysis.early_ns, default=0) / 1000,
        "profiler_occupancy": analysis.occupancy,
    }


def _dispatch_problem(waits: Any, launches: Any) -> Optional[str]:
    if waits:
        return "a call waits for the device %d times" % waits
    if launches > QUEUED_LAUNCHES:
        return "a call has %d launches, and a queue of about 1,024 makes it wait" % launches
    return None


def _run(
    call: Callable[..., Any],
    ring: Sequence[Tuple[Any, ...]],
    synchronize: Optional[Callable[[], None]],
    calls: int,
    activities: List[Any],
    path: str,
    replay: Optional[Callable[[], Any]],
) -> List[int]:
    from torch import profiler

    walls_ns = []
    before = _WAIT + _WARM_UP
    steps = [(kineto.ITERATION, call, inputs) for inputs in itertools.islice(itertools.cycle(ring), before + calls)]
    steps += [] if replay is None else [(kineto.REPLAY, replay, ())] * _REPLAYS
    schedule = profiler.schedule(wait=_WAIT, warmup=_WARM_UP, active=len(steps) - before, repeat=1)
    with profiler.profile(
        activities=activities, schedule=schedule, on_trace_ready=lambda ready: ready.export_chrome_trace(path)
    ) as profiling:
        for name, function, inputs in steps:
            with profiler.record_function(name):
                start = time.perf_counter_ns()
                function(*inputs)
                if synchronize is not None:
                    synchronize()
                walls_ns.append(time.perf_counter_ns() - start)
            profiling.step()
    return walls_ns[before : before + calls]


def _unknown(problem: Optional[str]) -> Dict[str, FactValue]:
    names = (
        *("busy_s", "kernel_sum_s", "kernels", "launches", "profiler_gap_s", "profiler_wall_s", "profiler_operators"),
        *("waits", "dispatch_problem", "profiler_early_max_us", "profiler_occupancy"),
    )
    facts: Dict[str, FactValue] = dict.fromkeys(names)
    facts.update(profiler_valid=None, profiler_problem=problem)
    return facts


def _median_s(durations_ns: Sequence[int]) -> float:
    return statistics.median(durations_ns) / 1e9


def _common(counts: Optional[Sequence[int]]) -> Optional[int]:
    """What all iterations agree on."""
    return counts[0] if counts and len(set(counts)) == 1 else None
