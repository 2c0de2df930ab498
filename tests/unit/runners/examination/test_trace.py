"""What is read out of a trace, and when a trace is not believed."""

import json
from pathlib import Path
from typing import Any

import pytest

from runners.examination import kineto
from runners.examination.trace import Activity, ActivityKind, Analysis, Trace, analyse, is_launch

Events = list[dict[str, Any]]


def event(category: str, name: str, ts: Any, dur: Any, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def iteration(ts: float, dur: float = 90.0) -> dict[str, Any]:
    return event("user_annotation", "iteration", ts, dur)


def launch(
    ts: float, correlation: int, name: str = "cudaLaunchKernel", category: str = "cuda_runtime"
) -> dict[str, Any]:
    return event(category, name, ts, 2.5, correlation=correlation, cbid=211)


def kernel(ts: float, dur: float, correlation: int, stream: int = 7) -> dict[str, Any]:
    return event("kernel", "gemm", ts, dur, correlation=correlation, stream=stream, device=0)


def one_call(start: float, correlation: int) -> Events:
    """Two kernels, one after the other, with a pause of 5 us."""
    return [
        iteration(start),
        launch(start + 1, correlation),
        launch(start + 4, correlation + 1),
        kernel(start + 10, 10.0, correlation),
        kernel(start + 25, 20.5, correlation + 1),
    ]


def analysed(events: Events) -> Analysis:
    return analyse(kineto.parse({"traceEvents": events}))


def problems(events: Events) -> tuple[str, ...]:
    return analysed(events).problems


def test_a_clean_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = [*one_call(0.25, 1), *one_call(100.25, 11), {"ph": "M", "name": "x"}]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    analysis = analyse(kineto.parse(kineto.load(str(path))))
    assert analysis.problems == ()
    assert analysis.kernels_without_launch == 0
    assert len(analysis.iterations) == 2
    for each in analysis.iterations:
        assert (each.busy_ns, each.kernel_sum_ns) == (30_500, 30_500)
        assert (each.kernels, each.launches) == (2, 2)
        assert (each.gaps, each.gap_ns) == (1, 5_000)


CALLS: dict[str, tuple[Events, list[tuple[int, int, int, int, int]]]] = {
    "streams that overlap count once in the union and twice in the sum": (
        [iteration(0.0), launch(1.0, 1), launch(2.0, 2), kernel(10.0, 20.0, 1), kernel(15.0, 10.0, 2, stream=20)],
        [(20_000, 30_000, 2, 2, 0)],
    ),
    "copies and fills are busy time and no kernels": (
        [
            *one_call(0.0, 1),
            launch(6.0, 3, "cudaMemcpyAsync"),
            launch(7.0, 4, "cudaMemsetAsync"),
            event("gpu_memcpy", "Memcpy HtoD", 50.0, 4.0, correlation=3, stream=7),
            event("gpu_memset", "Memset (Device)", 52.0, 4.0, correlation=4, stream=8),
        ],
        [(36_500, 30_500, 2, 2, 2)],
    ),
    "a graph's launch stands for all its kernels": (
        [iteration(0.0), launch(1.0, 9, "cudaGraphLaunch"), *[kernel(5.0 + i, 1.0, 9) for i in range(40)]],
        [(40_000, 40_000, 40, 1, 0)],
    ),
    "a kernel belongs to the iteration that asked for it": (
        [
            *(iteration(0.0, 10.0), launch(1.0, 1), iteration(20.0, 50.0), launch(21.0, 2)),
            *(kernel(25.0, 30.0, 1), kernel(55.0, 10.0, 2)),
        ],
        [(30_000, 30_000, 1, 1, 0), (10_000, 10_000, 1, 1, 0)],
    ),
    "what happens outside the iterations is left out": (
        [launch(-50.0, 90), kernel(-40.0, 30.0, 90), *one_call(0.0, 1), launch(95.0, 91), kernel(97.0, 30.0, 91)],
        [(30_500, 30_500, 2, 2, 1)],
    ),
    "a launch seen in runtime and driver counts once": (
        [*one_call(0.0, 1), launch(1.5, 1, "cuLaunchKernel", "cuda_driver")],
        [(30_500, 30_500, 2, 2, 1)],
    ),
}


@pytest.mark.parametrize("promise", CALLS)
def test_what_belongs_to_a_call_is_counted(promise: str) -> None:
    events, expected = CALLS[promise]
    analysis = analysed(events)
    assert analysis.problems == ()
    found = [(each.busy_ns, each.kernel_sum_ns, each.kernels, each.launches, each.gaps) for each in analysis.iterations]
    assert found == expected


FAULTS = {
    "the trace holds no iteration": [kernel(1.0, 1.0, 1)],
    "no device activity was recorded": [iteration(0.0), event("cpu_op", "aten::mm", 1.0, 1.0)],
    "1 of 3 launches have no device activity (first: cudaGraphLaunch)": [
        *one_call(0.0, 1),
        launch(7.0, 9, "cudaGraphLaunch"),
    ],
    # A copy does not stand for a dropped kernel
    "1 of 2 launches have no kernel record (first: cudaLaunchKernel)": [
        *one_call(0.0, 1)[:-1],
        event("gpu_memcpy", "Memcpy", 50.0, 4.0, correlation=2),
    ],
    "1 kernels start up to 30 us before their launch": [iteration(0.0), launch(50.0, 1), kernel(19.5, 5.0, 1)],
}


@pytest.mark.parametrize("problem", FAULTS)
def test_a_trace_that_does_not_add_up_is_not_believed(problem: str) -> None:
    assert problems(FAULTS[problem]) == (problem,)


def test_a_skew_of_clocks_is_told() -> None:
    analysis = analysed([iteration(0.0), launch(20.0, 1), kernel(19.5, 5.0, 1)])
    assert (analysis.problems, analysis.early_ns) == ((), (500,))


def test_a_dropped_kernel_is_noticed() -> None:
    events = [*one_call(0.0, 1), *one_call(100.0, 11)[:-1]]
    assert problems(events) == (
        "1 of 4 launches have no kernel record (first: cudaLaunchKernel)",
        "the number of kernels differs between iterations: 1 to 2",
    )


def test_waits_are_counted_by_iteration_and_occupancy_is_that_of_the_kernels_time() -> None:
    waits = [
        event("cuda_runtime", "cudaStreamSynchronize", 7.0, 1.0, correlation=31),
        event("cuda_runtime", "cudaDeviceSynchronize", 8.0, 1.0, correlation=32),
        event("cuda_runtime", "cudaMemcpyAsync", 6.0, 1.0, correlation=33),
        event("cuda_runtime", "cudaDeviceSynchronize", 108.0, 1.0, correlation=34),
    ]
    trace = kineto.parse({"traceEvents": [*one_call(0.0, 1), *one_call(100.0, 11), *waits]})
    assert trace.waits == (2, 1)
    estimated = [kernel(10.0, 30.0, 1), kernel(50.0, 10.0, 2)]
    for each, percent in zip(estimated, (20, 60), strict=True):
        each["args"]["est. achieved occupancy %"] = percent
    events = [iteration(0.0), launch(1.0, 1), launch(2.0, 2), *estimated]
    assert analysed(events).occupancy == pytest.approx(0.3)
    assert analysed(one_call(0.0, 1)).occupancy is None


@pytest.mark.parametrize("duration", [0.0, -1.5])
def test_a_kernel_without_length_is_noticed(duration: float) -> None:
    events = [iteration(0.0), launch(1.0, 1), kernel(5.0, duration, 1)]
    analysis = analysed(events)
    assert analysis.problems == ("1 device activities last no time",)
    assert analysis.iterations[0].busy_ns == 0


def test_a_kernel_whose_launch_was_not_recorded_is_placed_by_its_own_time() -> None:
    analysis = analysed([*one_call(0.0, 1), kernel(60.0, 5.0, 77)])
    assert (analysis.kernels_without_launch, analysis.problems) == (1, ())
    assert analysis.iterations[0].busy_ns == 35_500


def test_what_launches() -> None:
    kernels = ("cudaLaunchKernel", "cudaLaunchKernelExC_v11060", "cudaLaunchCooperativeKernel", "cuLaunchKernelEx")
    graphs = ("cudaGraphLaunch_v10000", "cuGraphLaunch")
    others = ("cudaLaunchHostFunc", "cudaMemcpyAsync", "cudaGraphInstantiate")
    assert list(filter(is_launch, (*kernels, *graphs, *others))) == [*kernels, *graphs]


def test_names_of_old_traces() -> None:
    events = [
        event("user_annotation", "iteration", 1_795_271_196_495_000, 400),
        event("Runtime", "cudaLaunchKernel", 1_795_271_196_495_010, 5, correlation=1),
        event("Kernel", "gemm", 1_795_271_196_495_050, 200, correlation=1, stream=7),
        event("Memset", "Memset (Device)", 1_795_271_196_495_260, 0, correlation=2, stream=7),
        event("Operator", "aten::mm", 1_795_271_196_495_005, 20),
    ]
    trace = kineto.parse({"traceEvents": events})
    assert (trace.resolution_ns, trace.operators) == (1000, None)
    analysis = analyse(trace)
    # Less than a microsecond is zero there, and no fault
    assert analysis.problems == ()
    assert (analysis.iterations[0].busy_ns, analysis.iterations[0].launches) == (200_000, 1)


def test_whole_microseconds_are_too_coarse_for_short_kernels() -> None:
    kernels = tuple(Activity(ActivityKind.KERNEL, 10_000 * i, 4_000, i, 7, 0) for i in range(50))
    trace = Trace(1, kernels, (), None, 1000)
    assert analyse(trace).problems == (
        "the trace's clock steps by 1000 ns: up to 50 us of 200 us busy time are rounding",
    )


def test_times_since_the_epoch_keep_their_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = [iteration(1.0), kernel(1.0, 1.0, 1)]
    text = json.dumps({"traceEvents": events}).replace('"ts": 1.0', '"ts": 1795271196495586.123')
    path.write_text(text.replace('"dur": 1.0', '"dur": 0.007'))
    (activity,) = kineto.parse(kineto.load(str(path))).activities
    assert (activity.start_ns, activity.duration_ns) == (1_795_271_196_495_586_123, 7)


def test_only_outermost_aten_operators_count() -> None:
    events = [
        iteration(0.0),
        event("cpu_op", "aten::linear", 1.0, 20.5),
        event("cpu_op", "aten::addmm", 1.0, 10.0),
        event("cpu_op", "aten::copy_", 2.0, 1.0),
        event("cpu_op", "aten::add", 21.5, 3.0),
        event("cpu_op", "torch_call", 40.0, 3.0),
        {**event("cpu_op", "aten::mul", 2.0, 3.0), "tid": 2},
        event("cpu_op", "aten::outside", 95.0, 3.0),
    ]
    assert kineto.parse({"traceEvents": events}).operators == (3,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"traceEvents": [', "is no JSON"),
        ("[]", "has no list of events"),
        ('{"traceEvents": {}}', "has no list of events"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(kineto.TraceError, match=words):
        kineto.parse(kineto.load(str(path)))


def test_replays_are_read_apart_from_the_calls() -> None:
    replay = event("user_annotation", "replay", 200.0, 90.0)
    replayed = [replay, launch(201.0, 21, "cudaGraphLaunch"), *(kernel(205.0 + 9 * i, 8.0, 21) for i in range(5))]
    document = {"traceEvents": [*one_call(0.0, 1), *replayed]}
    assert [each.kernels for each in analyse(kineto.parse(document)).iterations] == [2]
    analysis = analyse(kineto.parse(document, kineto.REPLAY))
    assert analysis.problems == ()
    assert [(each.kernels, each.busy_ns) for each in analysis.iterations] == [(5, 40_000)]
