"""ONNX Runtime and OpenVINO for real, through `python -m runners` in the `cpu` environment."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.contract import BackendSpec, Status, Trial, TrialRecord, TrialSpec, WorkloadSpec
from tests.contract.conftest import facts_of
from tests.tasks import BRIEF, recorded

pytestmark = pytest.mark.environment

# The tracing exporter takes a fraction of the other's time
LEGACY = {"exporter": "legacy"}
Facts = dict[str, Any]


def trial(name: str, backend: str = "onnxruntime", **changes: Any) -> Trial:
    """A trial of the smallest model; changes are options of the backend, or fields that have a name below."""
    batch, threads, mask = changes.pop("of_batch", 1), changes.pop("threads", 1), changes.pop("mask", "none")
    dtype, protocol, seed = changes.pop("dtype", "float32"), changes.pop("protocol", BRIEF), changes.pop("seed", 3)
    device = changes.pop("device", "cpu")
    shape = WorkloadSpec("tiny-bert", batch, sequence_length=16, options={"mask": mask})
    spec = TrialSpec(shape, BackendSpec(backend, changes), dtype, device, threads, seed, protocol)
    return Trial(name, name, 0, 0, 0, 1, 120, spec)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, cpu_python: Path) -> dict[str, TrialRecord]:
    """One task for all that can be seen in a record."""
    two_inputs = {"mask": "ptb", **LEGACY}
    return recorded(
        tmp_path_factory.mktemp("task"),
        cpu_python,
        *(trial(f"level-{level}", optimization=level, **LEGACY) for level in range(4)),
        *(trial(f"two-{batch}", of_batch=batch, **two_inputs) for batch in (1, 3)),
        trial("bound", of_batch=3, io_binding=True, **two_inputs),
        trial("bound-unoptimized", io_binding=True, optimization=0, **LEGACY),
        trial("sleeping", threads=2, spinning=False, **LEGACY),
        trial("fixed", of_batch=3, batch="fixed", **two_inputs),
        trial("half", dtype="float16", **LEGACY),
        trial("floor", protocol=replace(BRIEF, floor_budget_ms=5), **LEGACY),
        trial("dynamo"),
        trial("ov-1", backend="openvino", **two_inputs),
        trial("ov-3", backend="openvino", of_batch=3, threads=2, **two_inputs),
        trial("ov-bf16", backend="openvino", dtype="bfloat16", **LEGACY),
        trial("ov-half", backend="openvino", dtype="float16", **LEGACY),
    )


def facts(records: dict[str, TrialRecord], name: str) -> Facts:
    return dict(facts_of(records[name]))


def test_every_level_is_right_and_none_executes_more_nodes_than_the_one_below(records: dict[str, TrialRecord]) -> None:
    levels = [facts(records, f"level-{level}") for level in range(4)]
    counts = [level["operations"] for level in levels]
    assert counts == [level["ort_nodes_executed"] for level in levels]
    assert counts == sorted(counts, reverse=True)
    assert counts[3] < counts[1] < counts[0] <= levels[0]["onnx_nodes"]
    assert [level["onnx_optimization"] for level in levels] == [0, 1, 2, 3]
    assert levels[0]["ort_fused_nodes"] == 0 < levels[1]["ort_fused_nodes"] < levels[2]["ort_fused_nodes"]
    assert "SkipLayerNormalization 5" in levels[3]["ort_fused"]
    assert {level["ort_provider_nodes"] for level in levels} == set(counts)


def test_an_open_export_serves_several_batches_and_two_inputs(records: dict[str, TrialRecord]) -> None:
    one, three = facts(records, "two-1"), facts(records, "two-3")
    assert [records[name].phases.artifact_cache for name in ("two-1", "two-3")] == ["miss", "hit"]
    assert one["artifact_sha256"] == three["artifact_sha256"]
    assert one["onnx_batch"] == three["onnx_batch"] == "left open by the export, fixed by the session"
    assert (one["onnx_provider"], one["onnx_exporter"], one["input_mask"]) == ("CPUExecutionProvider", "legacy", "ptb")


def test_a_fixed_export_is_one_of_its_own(records: dict[str, TrialRecord]) -> None:
    assert facts(records, "fixed")["onnx_batch"] == "fixed by the export"
    assert records["fixed"].phases.artifact_cache == "miss"
    assert facts(records, "fixed")["artifact_sha256"] != facts(records, "two-3")["artifact_sha256"]


def test_outputs_that_are_written_in_place_are_right_for_each_input(records: dict[str, TrialRecord]) -> None:
    assert facts(records, "bound")["ort_io_binding"] is True
    assert facts(records, "two-3")["ort_io_binding"] is False
    verification = records["bound"].verification
    assert verification is not None
    assert verification.inputs_distinguished
    # Without optimization the session does not know the shapes of its outputs
    assert facts(records, "bound-unoptimized")["ort_io_binding"] is True


def test_threads_and_spinning_are_recorded(records: dict[str, TrialRecord]) -> None:
    sleeping = facts(records, "sleeping")
    assert (sleeping["ort_intra_op_threads"], sleeping["ort_spinning"], sleeping["torch_threads"]) == (2, False, 1)


def test_conversions_for_operators_without_a_kernel_are_counted(records: dict[str, TrialRecord]) -> None:
    assert facts(records, "half")["ort_inserted_casts"] > 0
    assert facts(records, "level-3")["ort_inserted_casts"] == 0


def test_the_floor_is_compared_by_nodes(records: dict[str, TrialRecord]) -> None:
    floor = facts(records, "floor")
    assert isinstance(floor["floor_operations"], int)
    assert "MatMul" in str(floor["operations_by_name"])
    assert floor["floor_alike"] is ("other operations" not in str(floor["floor_problem"]))
    assert "floor" in [series.mode for series in records["floor"].series]


def test_auto_is_dynamo_where_torch_has_it(records: dict[str, TrialRecord]) -> None:
    assert facts(records, "dynamo")["onnx_exporter"] == "dynamo"
    assert facts(records, "dynamo")["onnx_opset"] >= 18


def test_openvino_computes_in_the_dtype_of_the_trial(records: dict[str, TrialRecord]) -> None:
    one, three = facts(records, "ov-1"), facts(records, "ov-3")
    assert (one["openvino_precision"], one["openvino_streams"]) == ("f32", 1)
    assert "bf16" not in one["openvino_runtime_precisions"]
    assert "f16" not in one["openvino_runtime_precisions"]
    assert (one["openvino_threads"], three["openvino_threads"]) == (1, 2)
    assert one["operations"] == one["openvino_nodes"] > 0
    assert "FullyConnected" in one["openvino_operators"]
    assert records["ov-3"].phases.artifact_cache == "hit"


def test_openvino_refuses_what_the_cpu_cannot_do_and_does_the_rest(records: dict[str, TrialRecord]) -> None:
    for name, precision in (("ov-bf16", "bf16"), ("ov-half", "f16")):
        record = records[name]
        if record.status is Status.OK:
            assert precision in facts(records, name)["openvino_runtime_precisions"]
        else:
            assert (record.status, record.phases.artifact_s) == (Status.UNSUPPORTED, None)
            assert f"OpenVINO has no {record.reason and record.reason.split()[3]} on this CPU" in (record.reason or "")


SABOTAGE = """
import torch
from runners.backends import onnx_backend, onnx_export, onnxruntime, onnxruntime_session

class Replaced(torch.nn.Module):
    def __init__(self, model, body):
        super().__init__()
        self.model, self.body = model, body

    def forward(self, *inputs):
        return self.body(self.model, *inputs)

BODIES = {
    "wrong": lambda model, tokens: tuple(output * 1.001 for output in model(tokens)),
    "guarded": lambda model, tokens: model(tokens if tokens.sum() > 0 else tokens + 1),
    "missing": lambda model, tokens: (torch.fft.fft(model(tokens)[0]).real,),
}
NAMES = dict(enumerate(["wrong", "guarded", "missing", "baked", "elsewhere"]))
make_artifact, load = onnx_backend.OnnxBackend.make_artifact, onnxruntime.OnnxRuntime.load
settings = onnx_export._settings

def sabotaged_artifact(self, directory):
    name = NAMES[self.spec.seed]
    if name in BODIES:
        onnx_export._by_position = lambda model: Replaced(model, BODIES[name])
    if name == "baked":
        onnx_export._settings = lambda inputs, exporter, open_batch: settings(inputs, exporter, False)
    return make_artifact(self, directory)

def sabotaged_load(self, model, artifact):
    if NAMES[self.spec.seed] == "elsewhere":
        onnxruntime.require_provider = lambda device: None
        onnxruntime_session.provider_of = lambda device: "CUDAExecutionProvider"
    return load(self, model, artifact)

onnx_backend.OnnxBackend.make_artifact = sabotaged_artifact
onnxruntime.OnnxRuntime.load = sabotaged_load
"""


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory: pytest.TempPathFactory, cpu_python: Path) -> dict[str, TrialRecord]:
    """Trials of which each is made to go wrong in its own way, told apart by their seeds."""
    names = ("wrong", "guarded", "missing", "baked", "elsewhere")
    asked = [
        trial(name, of_batch=3, exporter="dynamo" if name == "guarded" else "legacy", seed=seed)
        for seed, name in enumerate(names)
    ]
    return recorded(tmp_path_factory.mktemp("sabotaged"), cpu_python, *asked, before=SABOTAGE)


def test_a_wrong_export_is_caught(sabotaged: dict[str, TrialRecord]) -> None:
    record = sabotaged["wrong"]
    assert record.status is Status.WRONG_OUTPUT
    assert "before timing: input 0, output 0: relative_l2 is 0.001" in (record.reason or "")
    assert record.series == ()


@pytest.mark.parametrize(
    ("name", "exporter", "words"),
    [
        ("guarded", "dynamo", "Could not guard on data-dependent expression"),
        ("missing", "legacy", "Exporting the operator 'aten::fft_fft"),
    ],
)
def test_a_failed_export_says_why(sabotaged: dict[str, TrialRecord], name: str, exporter: str, words: str) -> None:
    record = sabotaged[name]
    assert record.status is Status.UNSUPPORTED
    assert (record.reason or "").startswith(f"torch.onnx export ({exporter}) failed: ")
    assert words in (record.reason or "")
    assert "Traceback" in record.log_tail


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("baked", "torch.onnx export (legacy) fixed the batch of the example, 2; take the option batch: fixed"),
        ("elsewhere", "ONNX Runtime took the providers CPUExecutionProvider, not CUDAExecutionProvider"),
    ],
)
def test_what_is_not_what_was_asked_for_is_not_measured(
    sabotaged: dict[str, TrialRecord], name: str, reason: str
) -> None:
    assert (sabotaged[name].status, sabotaged[name].reason) == (Status.UNSUPPORTED, reason)


@pytest.fixture(scope="module")
def cuda_python() -> Path:
    """Python of an environment whose torch and ONNX Runtime are built for CUDA, where somebody has made one."""
    if "TAXMETER_GPU_PYTHON" not in os.environ:
        pytest.skip("TAXMETER_GPU_PYTHON names no Python with torch and ONNX Runtime for CUDA")
    return Path(os.environ["TAXMETER_GPU_PYTHON"])


@pytest.mark.gpu
def test_on_a_gpu_all_nodes_run_there_with_and_without_a_graph(tmp_path: Path, cuda_python: Path) -> None:
    asked = {
        "plain": trial("plain", device="cuda", of_batch=3, mask="ptb"),
        "copied": trial("copied", device="cuda", of_batch=3, mask="ptb", io_binding=False),
        "queued": trial("queued", device="cuda", of_batch=3, mask="ptb", synchronous=False),
        "graph": trial("graph", device="cuda", of_batch=3, mask="ptb", cuda_graph=True),
        "half": trial("half", device="cuda", of_batch=3, mask="ptb", dtype="float16"),
    }
    found = recorded(tmp_path, cuda_python, *asked.values())
    for name in asked:
        assert (found[name].status, found[name].reason) == (Status.OK, None)
        here = found[name].facts
        assert here["onnx_provider"] == "CUDAExecutionProvider"
        assert here["ort_cpu_nodes"] == 0
        assert here["ort_cuda_use_tf32"] == "0"
        assert here["ort_io_binding"] is (name != "copied")
    assert found["graph"].facts["ort_cuda_graph"] is True
