"""The same runner in environments four years apart."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.environments import BuiltImage, connect
from orchestrator.execution import DockerSettings, stage
from runners.contract import Environment, Status, TrialRecord
from tests.conftest import PROJECT
from tests.recording import run_staged

pytestmark = pytest.mark.engine

GIB = 1 << 30
CORES = tuple(sorted(os.sched_getaffinity(0)))
WORKLOADS = {"tiny-bert": {"sequence_length": 16}, "resnet18": {"image_size": 64}}
BACKENDS = ("eager", "torchscript", "onnxruntime")

CACHED = """
import os, torch
from runners.workloads.tensors import TensorArithmetic

class Evil:
    def __reduce__(self):
        return os.mkdir, ("/tmp/ran",)

arithmetic, path = TensorArithmetic(), "/tmp/document"
kinds = "float64 float32 float16 bfloat16 int64 int8 uint8 bool complex64".split()
tensors = [(torch.arange(6) % 3).reshape(2, 3).to(getattr(torch, kind)) for kind in kinds]
tensors += [torch.tensor(0.5), torch.empty(0, 4), torch.arange(12.0).reshape(3, 4).t()]
arithmetic.save({"outputs": [tuple(tensors)], "facts": {"a": 1, "b": [1.5, None]}}, path)
document = arithmetic.load(path)
assert document["facts"] == {"a": 1, "b": [1.5, None]}
for saved, loaded in zip(tensors, document["outputs"][0]):
    assert saved.dtype == loaded.dtype and saved.shape == loaded.shape and torch.equal(saved, loaded)
torch.save({"outputs": Evil()}, path)
try:
    arithmetic.load(path)
except ValueError:
    print("refused", os.path.exists("/tmp/ran"))
"""
"""Writes and reads what trials share, and then reads a pickle of another trial."""


@pytest.mark.parametrize("image", ["cpu_image", "cpu_2022_image"])
def test_what_other_trials_left_in_the_cache_is_read_and_not_run(image: str, request: pytest.FixtureRequest) -> None:
    built: BuiltImage = request.getfixturevalue(image)
    code = {str(PROJECT / "runners"): {"bind": "/code/runners", "mode": "ro"}}
    with closing(connect()) as client:
        said = client.containers.run(
            built.image_id,
            ["python", "-B", "-c", CACHED],
            working_dir="/code",
            volumes=code,
            network_mode="none",
            remove=True,
        )
    assert said.decode() == "refused False\n"


@pytest.mark.parametrize(
    ("image", "torch", "python"), [("cpu_image", "2.13.0", "3.11"), ("cpu_2022_image", "1.12.1", "3.9")]
)
def test_models_run_verified_in_both_eras(image, torch, python, request, make_trial, make_task, tmp_path: Path) -> None:
    built: BuiltImage = request.getfixturevalue(image)
    trials = [
        make_trial(workload, f"{workload}/{backend}", backend=backend, timeout_s=200, **shape)
        for workload, shape in WORKLOADS.items()
        for backend in BACKENDS
    ]
    task = make_task(make_trial("synthetic-null"), *trials)
    stage(task, tmp_path / "task")
    settings = DockerSettings(built.image_id, None, CORES, 4 * GIB, tmp_path / "cache")
    lines = run_staged(settings, task, tmp_path / "task").lines
    [environment] = [line for line in lines if isinstance(line, Environment)]
    assert environment.versions["torch"].startswith(torch)
    assert environment.versions["python"].startswith(python)
    records = {line.trial_id: line for line in lines if isinstance(line, TrialRecord)}
    assert {name: (record.status, record.reason) for name, record in records.items()} == {
        trial.trial_id: (Status.OK, None) for trial in task.trials
    }
    for record in records.values():
        assert record.verification is not None
        assert record.verification.after_timing
        assert {"warmup", "sync", "pipelined"} <= {series.mode for series in record.series}
