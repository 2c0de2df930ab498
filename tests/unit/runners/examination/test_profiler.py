"""The facts of the profiler pass, from traces that were never recorded."""

import pytest

from runners.examination.profiler import QUEUED_LAUNCHES, facts_of, other_work
from runners.examination.trace import Activity, ActivityKind, Launch, Trace


def trace(
    durations_ns: list[int],
    launched: bool = True,
    operators: tuple[int, ...] | None = (3, 3, 3),
    waits: tuple[int, ...] = (1, 1, 1),
    launches_of_each: int = 1,
) -> Trace:
    """One kernel per iteration."""
    starts = [1_000_000 * i for i in range(len(durations_ns))]
    kernels = [
        Activity(ActivityKind.KERNEL, start + 5_000, duration, i, 7, i)
        for i, (start, duration) in enumerate(zip(starts, durations_ns, strict=True))
    ]
    launches = [Launch("cudaLaunchKernel", start, i, i) for i, start in enumerate(starts)] * launches_of_each
    return Trace(len(starts), tuple(kernels), tuple(launches) if launched else (), operators, 1, waits)


def test_facts_are_medians_per_call() -> None:
    facts = facts_of(trace([10_000, 12_000, 90_000]), [200_000, 300_000, 400_000], has_device=True)
    assert facts == {
        "busy_s": 12e-6,
        "kernel_sum_s": 12e-6,
        "kernels": 1,
        "launches": 1,
        "profiler_gap_s": 0.0,
        "profiler_wall_s": 300e-6,
        "profiler_operators": 3,
        "profiler_valid": True,
        "profiler_problem": None,
        "waits": 0,
        "dispatch_problem": None,
        "profiler_early_max_us": 0.0,
        "profiler_occupancy": None,
    }


def test_a_call_that_waits_or_fills_the_queue_has_no_dispatch() -> None:
    facts = facts_of(trace([10_000] * 3, waits=(3, 3, 3)), [1, 1, 1], has_device=True)
    assert (facts["waits"], facts["dispatch_problem"]) == (2, "a call waits for the device 2 times")
    facts = facts_of(trace([10_000] * 3, launches_of_each=QUEUED_LAUNCHES + 1), [1, 1, 1], has_device=True)
    assert "901 launches" in str(facts["dispatch_problem"])


@pytest.mark.parametrize(
    ("given", "busy_s", "launches", "valid", "problem"),
    [
        (trace([10_000, 0, 10_000]), 10e-6, 1, False, "1 device activities last no time"),
        (trace([10_000, 10_000]), 10e-6, 1, False, "the trace holds 2 of 3 calls"),
        (
            trace([10_000] * 3, launched=False),
            10e-6,
            None,
            True,
            "launches are unknown: 3 kernels have no launch record",
        ),
        (Trace(0, (), (), None, 1), None, None, False, "the trace holds 0 of 3 calls; the trace holds no iteration"),
    ],
)
def test_a_faulty_trace_keeps_its_numbers_and_says_what_is_wrong(
    given: Trace, busy_s: float | None, launches: int | None, valid: bool, problem: str
) -> None:
    facts = facts_of(given, [1, 1, 1], has_device=True)
    found = (facts["busy_s"], facts["launches"], facts["profiler_valid"], facts["profiler_problem"])
    assert found == (busy_s, launches, valid, problem)


def test_a_cpu_has_host_time_alone() -> None:
    facts = facts_of(Trace(3, (), (), (5, 5, 5), 1), [1_000, 2_000, 3_000], has_device=False)
    assert {name: value for name, value in facts.items() if value is not None} == {
        "profiler_wall_s": 2e-6,
        "profiler_operators": 5,
        "profiler_problem": "a CPU has no device activity: all of a call is host time",
    }


def test_operators_that_differ_between_calls_are_unknown() -> None:
    facts = facts_of(trace([10_000] * 3, operators=(5, 6, 5)), [1, 1, 1], has_device=True)
    assert facts["profiler_operators"] is None


@pytest.mark.parametrize(
    ("call", "replay", "problem"),
    [
        ((154, 809e-6), (154, 812e-6), None),
        ((154, 809e-6), (160, 860e-6), None),
        ((154, 809e-6), (383, 1770e-6), "recorded, the call has 383 kernels instead of 154: its replay is no floor"),
        (
            (154, 6787e-6),
            (154, 18010e-6),
            "recorded, the call keeps the device busy for 18010 us instead of 6787 us: its replay is no floor",
        ),
        ((None, None), (383, 1770e-6), None),
        ((154, 809e-6), (None, None), None),
    ],
)
def test_a_replay_of_other_work_is_no_floor(
    call: tuple[int | None, float | None], replay: tuple[int | None, float | None], problem: str | None
) -> None:
    names = ("kernels", "busy_s", "graph_kernels", "graph_busy_s")
    assert other_work(dict(zip(names, (*call, *replay), strict=True))) == problem
