"""The timed loops. Nothing is allocated, printed or decided inside a sample.

The kernel adds the CPU time of a process's other threads in steps of a scheduler tick (4 ms at 250 Hz), so with
several threads the CPU time of one short sample means little; sums over a series are right.
"""

import itertools
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, List, Optional, Sequence, Tuple

from runners.contract import Protocol, Series
from runners.workloads.base import Call

_WINDOW = 10
_MIN_CALLS_TO_JUDGE = 6
_STEADY_TOLERANCE = 0.05
_MAX_BLOCK_CALLS = 1_000_000
_OVERRUN = 3
_OVERRUN_SAMPLES = 3

_NS_PER_MS = 1_000_000

Sample = Tuple[int, int]


@dataclass(frozen=True)
class WarmUp:
    """The calls before the timed ones."""

    series: Series
    steady: Optional[bool]
    """None if the calls are so slow that there were too few to judge."""
    seconds: float

    @property
    def last_ns(self) -> float:
        """Wall time of the last call: the best guess for the next."""
        return float(self.series.durations_ns[-1])


def time_one(call: Call, inputs: Any) -> Tuple[Any, Sample]:
    """One call with its wall and CPU time."""
    cpu = time.process_time_ns()
    start = time.perf_counter_ns()
    result = call(inputs)
    wall = time.perf_counter_ns() - start
    return result, (wall, time.process_time_ns() - cpu)


def warm_up(call: Call, ring: Sequence[Any], protocol: Protocol, first: Sequence[Sample]) -> WarmUp:
    """Calls until the latency no longer falls.

    Args:
        call: what is measured.
        ring: native inputs.
        protocol: the minimum of calls and time, and the cap.
        first: samples of the calls that were already made; they count.
    """
    start = time.perf_counter_ns()
    samples = list(first)
    earlier = sum(wall for wall, _ in samples)
    for inputs in itertools.cycle(ring):
        elapsed = earlier + time.perf_counter_ns() - start
        steady = _verdict([wall for wall, _ in samples[-2 * _WINDOW :]])
        enough = len(samples) >= protocol.warmup_min_calls and elapsed >= protocol.warmup_min_ms * _NS_PER_MS
        capped = elapsed >= protocol.warmup_max_ms * _NS_PER_MS or len(samples) >= protocol.max_samples
        if capped or (enough and steady is not False):
            return WarmUp(_series("warmup", 1, samples), steady, elapsed / 1e9)
        samples.append(time_one(call, inputs)[1])
    raise AssertionError("the ring of inputs is empty")


def time_sync(
    call: Call, ring: Sequence[Any], protocol: Protocol, reserved: int = 0, expected_ns: float = 0.0
) -> Series:
    """Times each call alone.

    Args:
        call: what is measured.
        ring: native inputs.
        protocol: budget and numbers of samples.
        reserved: samples that will be added afterwards; they count for the minimum, and for the budget.
        expected_ns: how long a call is likely to take.
    """
    min_samples = max(0, protocol.sync_min_samples - reserved)
    budget_ns = protocol.sync_budget_ms * _NS_PER_MS - reserved * expected_ns
    if min_samples == 0 and budget_ns <= 0:
        return _series("sync", 1, [])
    stop = _stopping_rule(budget_ns, min_samples, protocol.max_samples)
    return _series("sync", 1, _take(call, [[inputs] for inputs in ring], stop, protocol.max_samples))


def extended(series: Series, samples: Sequence[Sample]) -> Series:
    """A series of single calls with more samples at its end."""
    more = _series(series.mode, 1, samples)
    return replace(series, durations_ns=series.durations_ns + more.durations_ns, cpu_ns=series.cpu_ns + more.cpu_ns)


def time_pipelined(call: Call, ring: Sequence[Any], protocol: Protocol, sync_median_ns: float) -> Series:
    """Times blocks of back-to-back calls; a sample is the mean of its block."""
    calls = block_calls(protocol.pipelined_block_ms, sync_median_ns)
    stop = _stopping_rule(
        protocol.pipelined_budget_ms * _NS_PER_MS, protocol.pipelined_min_samples, protocol.max_samples
    )
    source = itertools.cycle(ring)
    # Short blocks: as many of them as it takes to visit every input
    number = 1 if calls >= len(ring) else len(ring)
    blocks = [list(itertools.islice(source, calls)) for _ in range(number)]
    return _series("pipelined", calls, _take(call, blocks, stop, protocol.max_samples))


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


def _stopping_rule(budget: float, min_samples: int, max_samples: int) -> Callable[[int, int], bool]:
    def stop(samples: int, elapsed_ns: int) -> bool:
        if samples >= max_samples or (samples >= min_samples and elapsed_ns >= budget):
            return True
        return samples >= _OVERRUN_SAMPLES and elapsed_ns >= _OVERRUN * budget

    return stop


def _take(call: Call, blocks: List[List[Any]], stop: Callable[[int, int], bool], max_samples: int) -> List[Sample]:
    perf_counter_ns, process_time_ns = time.perf_counter_ns, time.process_time_ns
    samples = [(0, 0)] * max_samples
    count = 0
    begin = perf_counter_ns()
    for block in itertools.cycle(blocks):
        cpu = process_time_ns()
        start = perf_counter_ns()
        for inputs in block:
            call(inputs)
        end = perf_counter_ns()
        samples[count] = (end - start, process_time_ns() - cpu)
        count += 1
        if stop(count, end - begin):
            break
    return samples[:count]


def _series(mode: str, calls: int, samples: Sequence[Sample]) -> Series:
    return Series(
        mode=mode,
        calls_per_sample=calls,
        durations_ns=tuple(round(wall / calls) for wall, _ in samples),
        cpu_ns=tuple(round(cpu / calls) for _, cpu in samples),
    )
