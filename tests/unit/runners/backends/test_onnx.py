"""The backends that execute an ONNX graph: what needs neither torch nor a runtime."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from runners.backends import make_backend
from runners.backends import onnx_export as exporting
from runners.backends import onnxruntime_session as sessions
from runners.backends.onnx_backend import OnnxBackend
from runners.backends.onnxruntime_nodes import Executed, executed_in, node_facts
from runners.backends.onnxruntime_runs import BoundRuns, GraphRuns, PlainRuns
from runners.backends.openvino import reason_of, require_capability
from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.workloads import make_workload
from runners.workloads.base import Unsupported

SHAPE = WorkloadSpec("tiny-bert", batch=3, sequence_length=16)
SPEC = TrialSpec(SHAPE, BackendSpec("onnxruntime", {}), "float32", "cpu", threads=1, seed=0, protocol=Protocol())
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def backend(spec: TrialSpec = SPEC, **options: Any) -> OnnxBackend:
    made = make_backend(make_workload(replace(spec, backend=BackendSpec(spec.backend.name, options))))
    assert isinstance(made, OnnxBackend)
    return made


def of_today(
    model: Any, args: Any, f: Any, *, input_names: Any = None, dynamo: bool = True, dynamic_shapes: Any = None
) -> None:
    """The signature of an export with both exporters."""


def of_2022(model: Any, args: Any, f: Any, input_names: Any = None, dynamic_axes: Any = None) -> None:
    """The signature of an export with the tracing exporter alone."""


@pytest.mark.parametrize(
    ("export", "onnxscript", "asked", "chosen"),
    [
        (of_today, True, "auto", "dynamo"),
        (of_today, True, "legacy", "legacy"),
        (of_today, False, "auto", "legacy"),
        (of_2022, False, "auto", "legacy"),
        (of_2022, True, "legacy", "legacy"),
        # Dynamo is never replaced silently
        (of_2022, False, "dynamo", "torch 1.0 has no dynamo exporter"),
        (of_today, False, "dynamo", "the dynamo exporter needs onnxscript, which the environment lacks"),
    ],
)
def test_auto_takes_the_newest_exporter_that_is_there(
    monkeypatch: pytest.MonkeyPatch, export: Callable[..., None], onnxscript: bool, asked: str, chosen: str
) -> None:
    torch = SimpleNamespace(__version__="1.0", onnx=SimpleNamespace(export=export))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(exporting.importlib.util, "find_spec", lambda name: object() if onnxscript else None)
    refused = pytest.raises(Unsupported, match=f"^{chosen}; take exporter: legacy$")
    with refused if asked == "dynamo" else nullcontext():
        assert exporting.choose_exporter(asked) == chosen


def test_the_reason_of_a_failed_export_is_what_went_wrong_first() -> None:
    wrapper = RuntimeError("Failed to export the model. Next steps: read the advice")
    wrapper.__cause__ = ValueError("\n  Could not guard on\tu0\nsecond line")
    assert exporting.reason_of(wrapper) == "ValueError: Could not guard on u0"
    assert exporting.reason_of(KeyError()) == "KeyError: no message"
    assert len(exporting.reason_of(ValueError("x" * 9999))) == 300


def test_running_out_of_memory_is_no_refusal() -> None:
    assert exporting.memory_ran_out(MemoryError())
    assert exporting.memory_ran_out(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    assert not exporting.memory_ran_out(RuntimeError("Could not find an implementation for Add(14)"))


@pytest.mark.parametrize(("dtype", "device"), [("float32", "cpu"), ("float16", "cuda")])
def test_what_a_gpu_runs_is_exported_where_torch_of_2022_has_kernels_for_it(dtype: str, device: str) -> None:
    exported = backend(replace(SPEC, dtype=dtype, device="cuda")).exported_spec()
    assert (exported.device, exported.dtype, exported.workload.batch) == (device, dtype, 2)


def test_a_batch_that_became_a_constant_is_refused() -> None:
    backend().check_batch([[3, 16], ["batch", 16]])
    with pytest.raises(Unsupported, match="has batch 2, not 3$"):
        backend().check_batch([[3, 16], [2, 16]])


@pytest.mark.parametrize(
    ("options", "device", "words"),
    [
        ({"cuda_graph": True}, "cpu", "cuda_graph: true needs device cuda"),
        ({"synchronous": False}, "cpu", "a CPU has no queue"),
        ({"cuda_graph": True, "io_binding": False}, "cuda", "io_binding: false has none"),
    ],
)
def test_options_that_contradict_the_device_are_refused(options: dict[str, Any], device: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        backend(replace(SPEC, device=device), **options).require()


@pytest.mark.parametrize(
    ("active", "wanted", "right"),
    [
        ([CPU], CPU, True),
        ([CUDA, CPU], CUDA, True),
        ([CPU], CUDA, False),
        ([CUDA, CPU], CPU, False),
        (["TensorrtExecutionProvider", CUDA, CPU], CUDA, False),
        ([], CPU, False),
    ],
)
def test_a_session_on_another_provider_is_refused(active: list[str], wanted: str, right: bool) -> None:
    session = SimpleNamespace(get_providers=lambda: active)
    with nullcontext() if right else pytest.raises(Unsupported, match=f"not {wanted}$"):
        sessions.check_providers(session, wanted)


def use_runtime(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(__version__="9.9", **parts))


def test_a_build_without_the_provider_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    use_runtime(monkeypatch, get_available_providers=lambda: [CPU])
    sessions.require_provider("cpu")
    with pytest.raises(Unsupported, match=f"9.9 was built without {CUDA}; it has {CPU}"):
        sessions.require_provider("cuda")


def test_a_refused_graph_is_unsupported_and_exhausted_memory_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        def __init__(self, path: str, options: Any, providers: Any = None, **more: Any) -> None:
            # A failure must not lead to another provider
            assert (providers, more) == ([CPU], {"enable_fallback": 0})
            raise RuntimeError(path)

    use_runtime(
        monkeypatch,
        InferenceSession=Session,
        SessionOptions=lambda: SimpleNamespace(add_session_config_entry=lambda name, value: None),
        GraphOptimizationLevel=SimpleNamespace(ORT_ENABLE_ALL=99),
    )
    settings = sessions.SessionSettings("NOT_IMPLEMENTED :\n  Add(14)", "cpu", 1, 3, spinning=True, dimensions={})
    with pytest.raises(Unsupported, match=r"ONNX Runtime 9.9 refuses the graph: NOT_IMPLEMENTED : Add\(14\)"):
        sessions.open_session(settings)
    with pytest.raises(RuntimeError, match="Failed to allocate memory"):
        sessions.open_session(replace(settings, path="Failed to allocate memory for requested buffer"))


def test_a_graph_that_fits_the_example_only_is_refused_when_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(names: list[str], feeds: dict[str, Any]) -> None:
        raise RuntimeError(f"{names} {feeds}: Reshape\nfailed")

    use_runtime(monkeypatch)
    named = [SimpleNamespace(name="y")]
    runs = PlainRuns(SimpleNamespace(run=run, get_inputs=list, get_outputs=lambda: named), ["input_0"])
    with pytest.raises(Unsupported, match=r"9.9 cannot run the graph: \['y'\] \{\}: Reshape failed"):
        runs({})


PROFILE = [
    {"cat": "Session", "name": "model_run", "args": {}},
    {"cat": "Node", "name": "fc_fence_before", "args": {"op_name": "Gemm"}},
    {"cat": "Node", "name": "fc_kernel_time", "args": {"op_name": "Gemm", "provider": CUDA}},
    {"cat": "Node", "name": "act_kernel_time", "args": {"op_name": "Relu", "provider": CPU}},
]


def test_a_node_counts_once_however_many_events_it_has() -> None:
    assert executed_in(PROFILE) == (Executed("fc", "Gemm", CUDA), Executed("act", "Relu", CPU))


def test_fused_is_what_the_runtime_made_and_is_more_than_one_step() -> None:
    exported = {("norm", "LayerNormalization"), ("fc", "MatMul"), ("act", "Relu")}
    executed = (
        Executed("norm", "LayerNormalization", CUDA),
        # Under an old name, too
        Executed("fc", "FusedMatMul", CUDA),
        Executed("conv_nchwc", "Conv", CUDA),
        Executed("conv_2_nchwc", "Conv", CUDA),
        Executed("order", "ReorderOutput", CUDA),
        Executed("cast", "Cast", CPU),
        Executed("body", "Erf", CPU),
    )
    assert node_facts(executed, exported, CUDA) == {
        "ort_nodes_executed": 7,
        "ort_provider_nodes": 5,
        "ort_cpu_nodes": 2,
        "ort_operators": "Conv 2, Cast 1, Erf 1, FusedMatMul 1, LayerNormalization 1, ReorderOutput 1",
        "ort_fused_nodes": 3,
        "ort_fused": "Conv 2, FusedMatMul 1",
        "ort_inserted_casts": 1,
    }
    nothing = node_facts((Executed("act", "Relu", CPU),), exported, CPU)
    assert (nothing["ort_fused_nodes"], nothing["ort_fused"], nothing["ort_cpu_nodes"]) == (0, "none", 1)


class Tensor:
    """As much of a tensor as a binding asks for."""

    dtype = "torch.int64"
    device = SimpleNamespace(type="cuda", index=0)
    shape = (1,)

    def __init__(self, value: int) -> None:
        self.value = value

    def clone(self) -> "Tensor":
        return Tensor(self.value)

    def contiguous(self) -> "Tensor":
        return self

    def copy_(self, other: "Tensor") -> None:
        self.value = other.value

    def data_ptr(self) -> int:
        return id(self)


def bound_session(bound: dict[str, int], run: Callable[[Any, Any], None]) -> Any:
    """A session with two inputs and one output, which notes the addresses that are bound."""
    binding = SimpleNamespace(
        bind_input=lambda name, *place: bound.__setitem__(name, place[-1]),
        bind_output=lambda name, *place: bound.__setitem__(name, place[-1]),
    )
    return SimpleNamespace(
        io_binding=lambda: binding,
        get_inputs=lambda: [SimpleNamespace(name="input_1"), SimpleNamespace(name="input_0")],
        get_outputs=lambda: [SimpleNamespace(name="result")],
        run=None,
        run_with_iobinding=run,
    )


def test_a_call_that_is_timed_for_dispatch_does_not_wait_and_one_that_cannot_do_so_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Options(dict[str, str]):
        add_run_config_entry = dict.__setitem__

    use_runtime(monkeypatch, RunOptions=Options)
    asked: list[Any] = []
    session = bound_session({}, lambda binding, options: asked.append(options))
    runs = BoundRuns(session, ["input_0", "input_1"], (Tensor(0),), synchronous=True)
    queued = runs.without_waiting()
    assert queued is not None
    [binding] = runs.native((Tensor(1), Tensor(2)))
    assert runs(binding) is queued(binding)  # the outputs that all calls share
    assert asked == [None, {"disable_synchronize_execution_providers": "1"}]
    assert PlainRuns(session, ["input_0"]).without_waiting() is None
    made = backend(replace(SPEC, device="cuda"))
    made._runs = runs  # type: ignore[attr-defined]
    for knows in (True, False):
        monkeypatch.setattr("runners.backends.onnxruntime.library_knows", lambda name, knows=knows: knows)
        assert (made.dispatched(runs) is not None) == knows


def test_a_cuda_graph_reads_its_inputs_where_it_was_recorded() -> None:
    read: list[tuple[int, ...]] = []
    bound: dict[str, int] = {}
    written = Tensor(0)
    session = bound_session(bound, lambda given, options: read.append(tuple(tensor.value for tensor in runs._static)))
    runs = GraphRuns.__new__(GraphRuns)
    runs.__init__(session, ["input_0", "input_1"], (written,), True, (Tensor(1), Tensor(2)))  # type: ignore[misc]
    fixed = dict(bound)
    assert runs(*runs.native((Tensor(3), Tensor(4)))) == (written,)
    assert read == [(1, 2), (3, 4)]
    assert runs.without_waiting() is None  # a replay waits all the same
    assert bound == fixed == {"input_0": id(runs._static[0]), "input_1": id(runs._static[1]), "result": id(written)}


def test_openvino_computes_in_a_dtype_that_the_cpu_has_or_not_at_all() -> None:
    require_capability(["FP32", "BF16"], "bfloat16")
    with pytest.raises(Unsupported, match="no float16 on this CPU; it has BF16, FP32"):
        require_capability(["FP32", "BF16"], "float16")


def test_the_reason_of_openvino_has_no_places_of_its_source() -> None:
    message = (
        "Exception from src/core.cpp:84:\nCheck 'false' failed at src/report.cpp:151:\nNo rule\nfor: NoSuchOp-20\n\n"
    )
    assert reason_of(RuntimeError(message)) == "No rule for: NoSuchOp-20"
    assert reason_of(RuntimeError("Exception from src/core.cpp:84:")) == "no message"
