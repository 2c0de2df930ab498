"""The stopping rules and the shape of what the timed loops return. No durations are asserted."""

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runners.contract import Protocol, Stop
from runners.examination.gpu import NvmlDevice
from runners.examination.gpu_clock import GpuClock
from runners.protocol import timing
from runners.protocol import turns as turns_module
from runners.protocol.timing import Subject
from runners.protocol.turns import ENDS, GO, Turns

RING = [(number,) for number in range(8)]


class Recorder:
    """A call that remembers its inputs and advances a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, durations_ms: list[float]) -> None:
        self.inputs: list[Any] = []
        self.now = 0
        self._durations = itertools.chain(durations_ms, itertools.repeat(durations_ms[-1]))
        monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(timing.time, "process_time_ns", lambda: 2 * self.now)

    def __call__(self, inputs: Any) -> Any:
        self.inputs.append(inputs)
        self.now += int(next(self._durations) * 1_000_000)
        return inputs


@pytest.mark.parametrize(
    ("call_ms", "protocol", "samples", "stopped"),
    [
        (10, Protocol(sync_budget_ms=200, sync_min_samples=3), 20, Stop.BUDGET),
        (5000, Protocol(sync_budget_ms=1000, sync_min_samples=10), 10, Stop.BUDGET),
        (0.001, Protocol(max_samples=50), 50, Stop.SAMPLES),
    ],
)
def test_sync_spends_its_budget_takes_its_minimum_and_visits_every_input(
    monkeypatch: pytest.MonkeyPatch, call_ms: float, protocol: Protocol, samples: int, stopped: Stop
) -> None:
    call = Recorder(monkeypatch, [call_ms])
    series = timing.time_sync(Subject(call, RING), protocol)
    assert (series.stopped, series.durations_ns) == (stopped, (int(1e6 * call_ms),) * samples)
    assert series.cpu_ns == (2 * int(1e6 * call_ms),) * samples
    assert call.inputs == [number % 8 for number in range(samples)]


class ScriptedTurns(Turns):
    """So many turns, with what other processes do between them."""

    def __init__(self, number: int, between: Callable[[], None] = lambda: None) -> None:
        self.is_spent = False
        self.spent: list[bool] = []
        self.ended = Stop.CYCLES
        self._number, self._between = number, between

    def __iter__(self) -> Iterator[None]:
        for _ in range(self._number):
            self._between()
            yield
            self.spent.append(self.is_spent)


def test_a_turn_is_a_settling_call_and_calls_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Recorder(monkeypatch, [50])
    turns = ScriptedTurns(3)
    series = timing.time_turns(Subject(call, RING), Protocol(turn_ms=120, sync_budget_ms=400), turns)
    # three timed calls reach 120 ms, and the one before them is not timed
    assert (series.turns, series.stopped) == ((3, 3, 3), Stop.CYCLES)
    assert (series.durations_ns, series.cpu_ns) == ((50_000_000,) * 9, (100_000_000,) * 9)
    assert call.inputs == [*range(8), *range(4)]
    assert turns.spent == [False, False, True]


def test_a_turn_of_slow_calls_has_two_and_a_turn_of_quick_calls_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = Protocol(turn_ms=120, cycles=4, max_samples=100)
    slow = timing.time_turns(Subject(Recorder(monkeypatch, [900]), RING), protocol, ScriptedTurns(2))
    assert slow.turns == (2, 2)
    quick = timing.time_turns(Subject(Recorder(monkeypatch, [0.01]), RING), protocol, ScriptedTurns(2))
    assert quick.turns == (25, 25)


def test_what_happens_between_turns_is_in_no_sample_and_no_pressure(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Recorder(monkeypatch, [100])
    monkeypatch.setattr(timing.PressureGauge, "total_ns", lambda self: call.now // 1000)

    def wait() -> None:
        call.now += 3_600_000_000_000

    protocol = Protocol(turn_ms=150, sync_budget_ms=1000)  # no room for more than two calls in each of five turns
    series = timing.time_turns(Subject(call, RING), protocol, ScriptedTurns(2, wait), expected_ns=1e8)
    assert series.durations_ns == (100_000_000,) * 4
    assert series.pressure_ns == (100_000,) * 4
    assert series.pressure_total_ns == 400_000


def test_a_process_that_is_stopped_while_it_reports_its_turn_counts_that_as_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]

    def write(_: int, report: bytes) -> int:
        now_s[0] += 5.0
        return len(report)

    commands = [GO, ENDS[Stop.CYCLES]]
    monkeypatch.setattr(turns_module.os, "write", write)
    monkeypatch.setattr(turns_module.os, "read", lambda *_: commands.pop(0))
    monkeypatch.setattr(turns_module.time, "perf_counter", lambda: now_s[0])
    turns = Turns(0, 1)
    assert (len(list(turns)), turns.ended, turns.waited_s) == (1, Stop.CYCLES, 10.0)


def test_samples_wait_for_the_device_and_dispatch_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Recorder(monkeypatch, [1])

    def synchronize() -> None:
        call.now += 5_000_000 if call.inputs and call.inputs[-1] is not None else 0
        call.inputs.append(None)

    subject = Subject(call, RING, synchronize)
    protocol = Protocol(sync_budget_ms=30, dispatch_budget_ms=30, sync_min_samples=2)
    assert set(timing.time_sync(subject, protocol).durations_ns) == {6_000_000}
    call.inputs.clear()
    dispatch = timing.time_dispatch(subject, protocol, 1e6)
    assert (dispatch.mode, set(dispatch.durations_ns)) == ("dispatch", {1_000_000})


class Clock:
    """A GPU whose clock rises by 300 MHz each tenth of a second, up to 1980."""

    def __init__(self, call: Recorder) -> None:
        self.call, self.reads = call, 0
        self.library = SimpleNamespace(NVML_CLOCK_SM=1)

    def ask(self, name: str, clock: int) -> int:
        assert (name, clock) == ("nvmlDeviceGetClockInfo", 1)
        self.reads += 1
        return min(1980, 345 + 3 * self.call.now // 1_000_000)


def test_a_gpu_is_warm_when_its_clock_has_settled_and_the_clock_is_read_beside_each_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Recorder(monkeypatch, [1])
    device = Clock(call)
    clock = GpuClock(cast(NvmlDevice, device))
    subject = Subject(call, RING, lambda: None, clock)
    protocol = Protocol(warmup_min_calls=3, warmup_min_ms=10, warmup_max_ms=10_000, sync_budget_ms=5)
    warm = timing.warm_up(subject, protocol, [(1_000_000, 0)])
    # 1980 MHz are reached after 545 ms, and three readings have to agree
    assert 0.7 < warm.seconds < 0.9
    assert device.reads < 12
    timing.time_sync(subject, protocol)
    timing.time_turns(subject, Protocol(turn_ms=5), ScriptedTurns(2))
    assert clock.facts() == {"clock_sync_sm_mhz": 1980, "clock_sync_sm_least_mhz": 1980}


def test_warm_up_goes_on_for_its_time_however_short_a_call_is(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Recorder(monkeypatch, [0.02])
    protocol = Protocol(warmup_min_ms=500, warmup_max_ms=1000, max_samples=100)
    warm = timing.warm_up(Subject(call, RING), protocol, [(20_000, 0)])
    assert (len(warm.series.durations_ns), warm.seconds >= 0.5) == (100, True)
    assert len(call.inputs) >= 24_000


def test_the_papers_procedure_is_one_mean_of_its_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Recorder(monkeypatch, [10])
    warm = timing.warm_up_fixed(Subject(call, RING), 10, [(10_000_000, 0), (10_000_000, 0)])
    assert (len(warm.series.durations_ns), len(call.inputs), warm.steady) == (10, 8, None)
    series = timing.time_passes(Subject(call, RING), 100)
    assert (series.durations_ns, series.calls_per_sample, series.stopped) == ((10_000_000,), 100, Stop.FIXED)
    assert len(call.inputs) == 108


def test_pressure_is_read_between_long_samples_only(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = itertools.count(0, 7)
    monkeypatch.setattr(timing.PressureGauge, "total_ns", lambda self: next(counter))
    call = Recorder(monkeypatch, [10])
    protocol = Protocol(sync_budget_ms=30, sync_min_samples=1)
    slow = timing.time_sync(Subject(call, RING), protocol, expected_ns=10e6)
    assert (slow.pressure_ns, slow.pressure_total_ns) == ((7, 7, 7), 28)
    call = Recorder(monkeypatch, [10])
    quick = timing.time_sync(Subject(call, RING), protocol, expected_ns=1e4)
    assert (quick.pressure_ns, quick.pressure_total_ns) == ((), 7)


@pytest.mark.parametrize(
    ("median_ns", "calls"), [(1e6, 100), (3e6, 34), (1e8, 1), (5e9, 1), (0.0, 1_000_000), (10.0, 1_000_000)]
)
def test_a_block_is_as_long_as_asked_for(median_ns: float, calls: int) -> None:
    assert timing.block_calls(100, median_ns) == calls


@pytest.mark.parametrize(("call_ms", "budget_ms", "calls", "samples"), [(10, 250, 10, 3), (200, 1600, 1, 8)])
def test_pipelined_samples_are_means_of_blocks_that_visit_every_input(
    monkeypatch: pytest.MonkeyPatch, call_ms: int, budget_ms: int, calls: int, samples: int
) -> None:
    call = Recorder(monkeypatch, [call_ms])
    protocol = Protocol(pipelined_budget_ms=budget_ms, pipelined_min_samples=2, pipelined_block_ms=100)
    series = timing.time_pipelined(Subject(call, RING), protocol, sync_median_ns=1e6 * call_ms)
    assert (series.calls_per_sample, series.durations_ns) == (calls, (1_000_000 * call_ms,) * samples)
    assert (len(call.inputs), call.inputs[:8]) == (calls * samples, list(range(8)))


def test_warm_up_counts_the_calls_made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Recorder(monkeypatch, [400])
    protocol = Protocol(warmup_min_calls=2, warmup_min_ms=500)
    warm = timing.warm_up(Subject(call, RING), protocol, [(400_000_000, 0)])
    assert len(call.inputs) == 1
    assert warm.series.durations_ns == (400_000_000, 400_000_000)
    assert warm.steady is None


@pytest.mark.parametrize(("least", "made"), [(3, 1), (3, 5), (7, 0)])
def test_warm_up_makes_its_least_calls_and_no_more(monkeypatch: pytest.MonkeyPatch, least: int, made: int) -> None:
    call = Recorder(monkeypatch, [10])
    warm = timing.warm_up(
        Subject(call, RING), Protocol(warmup_min_calls=least, warmup_min_ms=0), [(10_000_000, 0)] * made
    )
    assert len(warm.series.durations_ns) == max(least, made)


def test_warm_up_goes_on_while_the_latency_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    falling = [100 * 0.8**i for i in range(15)]
    call = Recorder(monkeypatch, [*falling, 3])
    warm = timing.warm_up(Subject(call, RING), Protocol(warmup_min_calls=3, warmup_min_ms=400), [])
    assert len(call.inputs) > len(falling)
    assert warm.steady is True


def test_warm_up_ends_at_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Recorder(monkeypatch, [100 * 0.9**i for i in range(40)])
    warm = timing.warm_up(Subject(call, RING), Protocol(warmup_min_calls=3, warmup_min_ms=500, warmup_max_ms=800), [])
    assert warm.steady is False
    assert warm.seconds >= 0.8


@pytest.mark.parametrize(
    ("durations", "steady"),
    [
        ([100] * 6, True),
        ([200, 190, 180, 120, 110, 100], False),
        ([100, 100, 100, 130, 130, 130], True),  # slower is the machine, not the warm-up
        ([100, 180, 90, 170, 95, 160, 98, 175], True),  # noise
        ([500, 100, 100, 100, 100, 100], True),  # one slow first call
    ],
)
def test_steady_means_that_the_latency_no_longer_falls(durations: list[int], steady: bool) -> None:
    assert timing.is_steady(durations) is steady
