"""The timed loops. Nothing is allocated, printed or decided inside a sample.

The kernel adds the CPU time of a process's other threads in steps of a scheduler tick (4 ms at 250 Hz), so with
several threads the CPU time of one short sample means little; sums over a series are right.
"""

import itertools
import statistics
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Deque, Iterator, List, Optional, Sequence, Tuple

from runners.contract import Protocol, Series, Stop
from runners.examination.gpu_clock import GpuClock
from runners.protocol.pressure import PressureGauge
from runners.protocol.stopping import StoppingRule
from runners.protocol.turns import Turns
from runners.workloads.base import Call, Inputs, Synchronize

_WINDOW = 10
_MIN_CALLS_TO_JUDGE = 6
_STEADY_TOLERANCE = 0.05
_MAX_BLOCK_CALLS = 1_000_000
# Below this length, reading the pressure between two samples would change what the caches hold
_MIN_SAMPLE_FOR_PRESSURE_NS = 1_000_000

_LEAST_CALLS_OF_A_TURN = 2
_ENOUGH_CALLS_OF_A_TURN = 4
"""Of slow calls a third of the time goes into those that wake up where two are timed, a fifth where four are."""

_NS_PER_MS = 1_000_000

Sample = Tuple[int, int]


@dataclass(frozen=True)
class Subject:
    """What is timed: a call, the inputs that it gets in turn, and how to wait for the device."""

    call: Call
    ring: Sequence[Inputs]
    synchronize: Optional[Synchronize] = None
    """None where a call returns only when its work is done."""
    clock: Optional[GpuClock] = None
    """Read when a series ends; None on a CPU, or where nothing tells it."""


@dataclass(frozen=True)
class WarmUp:
    """The calls before the timed ones."""

    series: Series
    steady: Optional[bool]
    """None if the calls are so slow that there were too few to judge."""
    seconds: float
    last_ns: float
    """Wall time of the last call: the best guess for the next."""


def time_one(subject: Subject, inputs: Inputs) -> Tuple[Any, Sample]:
    """One call with its wall and CPU time, from an idle device to an idle device."""
    synchronize = subject.synchronize
    if synchronize:
        synchronize()
    cpu = time.process_time_ns()
    start = time.perf_counter_ns()
    result = subject.call(*inputs)
    if synchronize:
        synchronize()
    wall = time.perf_counter_ns() - start
    return result, (wall, time.process_time_ns() - cpu)


def warm_up(subject: Subject, protocol: Protocol, first: Sequence[Sample]) -> WarmUp:
    """Calls until the latency no longer falls, and the clock of a GPU has settled.

    Of the calls the first `max_samples` are kept.

    Args:
        subject: what is measured.
        protocol: the minimum of calls and time, and the cap.
        first: samples of the calls that were already made; they count.
    """
    start = time.perf_counter_ns()
    samples = list(first)
    recent: Deque[int] = deque((wall for wall, _ in samples), 2 * _WINDOW)
    earlier = sum(wall for wall, _ in samples)
    for calls, inputs in enumerate(itertools.cycle(subject.ring), len(samples)):
        elapsed = earlier + time.perf_counter_ns() - start
        steady = _verdict(list(recent))
        enough = calls >= protocol.warmup_min_calls and elapsed >= protocol.warmup_min_ms * _NS_PER_MS
        settled = subject.clock is None or subject.clock.has_settled(elapsed)
        if elapsed >= protocol.warmup_max_ms * _NS_PER_MS or (enough and settled and steady is not False):
            return WarmUp(_series("warmup", 1, samples), steady, elapsed / 1e9, float(recent[-1]))
        sample = time_one(subject, inputs)[1]
        recent.append(sample[0])
        if len(samples) < protocol.max_samples:
            samples.append(sample)
    raise AssertionError("the ring of inputs is empty")


def warm_up_fixed(subject: Subject, calls: int, first: Sequence[Sample]) -> WarmUp:
    """Makes a set number of calls, whatever their latency does; `steady` is not judged."""
    samples = list(first)
    start = time.perf_counter_ns()
    for inputs in itertools.islice(itertools.cycle(subject.ring), max(0, calls - len(samples))):
        samples.append(time_one(subject, inputs)[1])
    seconds = (sum(wall for wall, _ in first) + time.perf_counter_ns() - start) / 1e9
    return WarmUp(_series("warmup", 1, samples), None, seconds, float(samples[-1][0]))


def time_turns(subject: Subject, protocol: Protocol, turns: Turns, expected_ns: float = 0.0) -> Series:
    """Times each call alone, in turns. A call before the first timed one of a turn wakes up what was stopped.

    Args:
        subject: what is measured.
        protocol: length and number of the turns, their budget in all, and the largest number of samples.
        turns: given to this process.
        expected_ns: how long a call is likely to take.
    """
    most = max(1, protocol.max_samples // protocol.cycles)
    rule = StoppingRule(protocol.turn_ms * _NS_PER_MS, _least_calls(protocol, expected_ns), most)
    source = itertools.cycle(subject.ring)
    taken: List[Series] = []
    spent_ns = 0
    for _ in turns:
        # Also where a call is as long as a turn: eager's first one may take a percent more (docs/measured/turns.md)
        time_one(subject, next(source))
        taken.append(_take("sync", subject, ([inputs] for inputs in source), 1, rule, expected_ns))
        spent_ns += sum(taken[-1].durations_ns)
        turns.is_spent = spent_ns >= protocol.sync_budget_ms * _NS_PER_MS
    return replace(_joined(taken), stopped=turns.ended)


def _least_calls(protocol: Protocol, expected_ns: float) -> int:
    """Of each turn: what the budget has room for in the least number of turns, if it is known how long they are."""
    if not expected_ns:
        return _LEAST_CALLS_OF_A_TURN
    room = int(protocol.sync_budget_ms * _NS_PER_MS / protocol.min_cycles / expected_ns)
    return max(_LEAST_CALLS_OF_A_TURN, min(_ENOUGH_CALLS_OF_A_TURN, room))


def time_sync(subject: Subject, protocol: Protocol, expected_ns: float = 0.0) -> Series:
    """Times each call alone, at one stretch.

    Args:
        subject: what is measured.
        protocol: budget and numbers of samples.
        expected_ns: how long a call is likely to take.
    """
    rule = StoppingRule(protocol.sync_budget_ms * _NS_PER_MS, protocol.sync_min_samples, protocol.max_samples)
    return _take("sync", subject, _blocks(subject.ring, 1), 1, rule, expected_ns)


def time_dispatch(subject: Subject, protocol: Protocol, expected_ns: float) -> Series:
    """Times until a call returns, with an empty queue before it and without waiting for the device."""
    rule = StoppingRule(protocol.dispatch_budget_ms * _NS_PER_MS, protocol.sync_min_samples, protocol.max_samples)
    return _take("dispatch", subject, _blocks(subject.ring, 1), 1, rule, expected_ns, wait=False)


def time_pipelined(
    subject: Subject, protocol: Protocol, sync_median_ns: float, mode: str = "pipelined", budget_ms: int = 0
) -> Series:
    """Times blocks of back-to-back calls; a sample is the mean of its block.

    Args:
        subject: what is measured.
        protocol: budget and numbers of samples.
        sync_median_ns: decides how many calls make a block.
        mode: the name of the series.
        budget_ms: a budget other than that of the series `pipelined`.
    """
    calls = block_calls(protocol.pipelined_block_ms, sync_median_ns)
    rule = StoppingRule(
        budget_ns=(budget_ms or protocol.pipelined_budget_ms) * _NS_PER_MS,
        min_samples=protocol.pipelined_min_samples,
        max_samples=protocol.max_samples,
    )
    return _take(mode, subject, _blocks(subject.ring, calls), calls, rule, sync_median_ns * calls)


def time_passes(subject: Subject, passes: int) -> Series:
    """One sample: the mean of so many back-to-back calls, as the paper's scripts take it."""
    rule = StoppingRule(budget_ns=0, min_samples=1, max_samples=1)
    series = _take("legacy", subject, _blocks(subject.ring, passes), passes, rule, _MIN_SAMPLE_FOR_PRESSURE_NS)
    return replace(series, stopped=Stop.FIXED)


def block_calls(block_ms: int, sync_median_ns: float) -> int:
    """How many calls make a block of at least `block_ms`."""
    return max(1, min(_MAX_BLOCK_CALLS, -(-block_ms * _NS_PER_MS // max(1, int(sync_median_ns)))))


def is_steady(durations_ns: Sequence[int]) -> bool:
    """Whether the second half of a window is about as fast as the first, within its noise.

    Only a falling latency is a sign of warming up: a rising one comes from the machine, and waiting does not
    mend it. The noise of either half widens the tolerance, or a busy machine would never be warm.
    """
    middle = len(durations_ns) // 2
    (before, spread_before), (after, spread_after) = map(_centre, (durations_ns[:middle], durations_ns[middle:]))
    return before - after <= max(_STEADY_TOLERANCE * after, 2 * spread_before, 2 * spread_after)


def median_ns(series: Series) -> float:
    """The median wall time per call."""
    return statistics.median(series.durations_ns)


def _centre(durations_ns: Sequence[int]) -> Tuple[float, float]:
    middle = statistics.median(durations_ns)
    return middle, statistics.median(abs(duration - middle) for duration in durations_ns)


def _verdict(durations_ns: Sequence[int]) -> Optional[bool]:
    return is_steady(durations_ns) if len(durations_ns) >= _MIN_CALLS_TO_JUDGE else None


def _take(
    mode: str,
    subject: Subject,
    blocks: Iterator[List[Inputs]],
    calls: int,
    rule: StoppingRule,
    expected_ns: float,
    wait: bool = True,
) -> Series:
    """Takes a sample of each block, which has so many calls, until the rule ends it.

    With `wait` a sample ends when the device is idle; without, when the last call has returned.
    """
    call, before, after = subject.call, subject.synchronize, subject.synchronize if wait else None
    perf_counter_ns, process_time_ns = time.perf_counter_ns, time.process_time_ns
    gauge = PressureGauge()
    fine = expected_ns >= _MIN_SAMPLE_FOR_PRESSURE_NS
    durations: List[int] = []
    cpus: List[int] = []
    pressures: List[int] = []
    stopped = None
    first = last = gauge.total_ns()
    begin = perf_counter_ns()
    for block in blocks:
        if before:
            before()
        cpu = process_time_ns()
        start = perf_counter_ns()
        for inputs in block:
            call(*inputs)
        if after:
            after()
        end = perf_counter_ns()
        cpus.append(process_time_ns() - cpu)
        durations.append(end - start)
        if fine and last is not None:
            now = gauge.total_ns()
            assert now is not None
            pressures.append(now - last)
            last = now
        stopped = rule.verdict(len(durations), end - begin)
        if stopped is not None:
            break
    total = gauge.total_ns()
    gauge.close()
    if subject.clock is not None:
        subject.clock.note(mode)
    return replace(
        _series(mode, calls, list(zip(durations, cpus))),
        pressure_ns=tuple(pressures),
        pressure_total_ns=None if total is None or first is None else total - first,
        stopped=stopped,
    )


def _blocks(ring: Sequence[Inputs], calls: int) -> Iterator[List[Inputs]]:
    source = itertools.cycle(ring)
    # Short blocks: as many of them as it takes to visit every input
    number = 1 if calls >= len(ring) else len(ring)
    return itertools.cycle([list(itertools.islice(source, calls)) for _ in range(number)])


def _joined(turns: Sequence[Series]) -> Series:
    """One series of all turns. The pressure is that of the turns alone, not of the time between them."""
    totals = [turn.pressure_total_ns for turn in turns if turn.pressure_total_ns is not None]
    return replace(
        _series("sync", 1, []),
        durations_ns=tuple(ns for turn in turns for ns in turn.durations_ns),
        cpu_ns=tuple(ns for turn in turns for ns in turn.cpu_ns),
        pressure_ns=tuple(ns for turn in turns for ns in turn.pressure_ns),
        pressure_total_ns=sum(totals) if totals else None,
        turns=tuple(len(turn.durations_ns) for turn in turns),
    )


def _series(mode: str, calls: int, samples: Sequence[Sample]) -> Series:
    return Series(
        mode=mode,
        calls_per_sample=calls,
        durations_ns=tuple(round(wall / calls) for wall, _ in samples),
        cpu_ns=tuple(round(cpu / calls) for _, cpu in samples),
    )
