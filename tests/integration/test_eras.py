"""The same runner in environments four years apart."""

import os
from pathlib import Path

import pytest

from orchestrator.environments import BuiltImage
from orchestrator.execution import DockerSettings, stage
from runners.contract import Environment, Status, TrialRecord
from tests.recording import run_staged

pytestmark = pytest.mark.engine

GIB = 1 << 30
CORES = tuple(sorted(os.sched_getaffinity(0)))
WORKLOADS = {"tiny-bert": {"sequence_length": 16}, "resnet18": {"image_size": 64}}
BACKENDS = ("eager", "torchscript", "onnxruntime")


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
