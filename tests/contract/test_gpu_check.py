"""`python -m runners.check`: on a machine without a GPU, and its whole way on a device that is not there."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.store import Store
from runners.check.running import EXIT_SKIPPED, NAMES
from runners.contract import (
    CONTRACT_VERSION,
    BackendSpec,
    Status,
    Task,
    TaskFiles,
    Trial,
    TrialRecord,
    TrialSpec,
    WorkloadSpec,
    compact_json,
    decode_line,
)
from tests.conftest import PROJECT, QUICK

ENERGY, CLOCK = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo"
FAKE = PROJECT / "tests" / "fake_gpu"


def lines(out: Path) -> dict[str, dict[str, Any]]:
    read = [json.loads(line) for line in (out / "check.jsonl").read_text().splitlines()]
    return {line["check"]: line for line in read}


def check(out: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "runners.check", str(out), *options]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)


def test_without_a_framework_or_a_gpu_all_is_skipped_at_once_with_the_reason(tmp_path: Path) -> None:
    # what a killed run and one before it have left: none of it is of this run
    (tmp_path / "out" / "rows" / "tasks" / "cells").mkdir(parents=True)
    for name in ("rows.tar", "check.log", "check.jsonl"):
        (tmp_path / "out" / name).write_text("of an earlier run\n")
    start = time.monotonic()
    done = check(tmp_path / "out")
    assert time.monotonic() - start < 10
    assert done.returncode == EXIT_SKIPPED, done.stderr
    found = lines(tmp_path / "out")
    assert tuple(found) == NAMES
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["check.jsonl"]
    assert [json.loads(line) for line in done.stdout.splitlines()] == list(found.values())
    assert {line["status"] for line in found.values()} == {"skipped"}
    assert {line["reason"] for line in found.values()} <= {
        f"{sys.executable} has no torch",
        "there is no CUDA driver: libcuda.so.1 cannot be loaded",
    }


def test_a_check_that_does_not_exist_and_too_short_a_time_are_refused(tmp_path: Path) -> None:
    done = check(tmp_path, "--only", "nvml,clock")
    assert done.returncode == 2
    assert "no check is called clock; there are nvml, fork, cells" in done.stderr
    done = check(tmp_path, "--seconds", "8")
    problem = "python3 -m runners.check: error: --seconds 8: expected 30 or more"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, problem)


@dataclass(frozen=True)
class Device:
    """A device that is not there, and notes what it is asked."""

    environ: dict[str, str]
    """Of a process that is to see it."""
    notes: Path

    def steps(self) -> dict[str, list[str]]:
        """What it was asked: by process, in order."""
        steps: dict[str, list[str]] = {}
        for line in self.notes.read_text().splitlines():
            pid, step = line.split()
            steps.setdefault(pid, []).append(step)
        return steps


@pytest.fixture(scope="module")
def make_device(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Device]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for a driver that is not there")

    def make() -> Device:
        directory = tmp_path_factory.mktemp("device")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", directory / "libcuda.so.1", FAKE / "cuda.c"], check=True)
        notes = directory / "notes"
        notes.touch()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TAXMETER")}
        own = {"LD_LIBRARY_PATH": str(directory), "PYTHONPATH": f"{PROJECT}:{FAKE}", "TAXMETER_FAKE_GPU": str(notes)}
        return Device(kept | own, notes)

    return make


def test_the_passes_of_a_trial_disturb_none_that_comes_later_and_a_lost_profile_is_made_again(
    make_device: Callable[[], Device], cpu_python: Path, tmp_path: Path
) -> None:
    device = make_device()
    workload = WorkloadSpec("tiny-bert", 1, sequence_length=8, options={"size": "shrunk"})
    protocol = replace(
        QUICK, warmup_max_ms=1000, dispatch_budget_ms=20, graph_budget_ms=20, profile_calls=2, energy_window_ms=20
    )
    spec = TrialSpec(workload, BackendSpec("eager", {}), "float32", "cuda", 1, 1, protocol)
    trial = Trial("id", "key", round=1, order=0, replicate=0, attempt=1, timeout_s=120, spec=spec)
    files = TaskFiles(str(tmp_path))
    Path(files.task).write_bytes(compact_json(Task(CONTRACT_VERSION, "campaign", "task", "cpu", (trial,))))
    environ = {**device.environ, "TAXMETER_FAKE_GPU_LOSES": str(tmp_path / "lost")}
    subprocess.run([cpu_python, "-m", "runners", tmp_path], env=environ, check=True, timeout=200)
    [record] = [
        line
        for line in map(decode_line, Path(files.records).read_bytes().splitlines())
        if isinstance(line, TrialRecord)
    ]
    assert record.status is Status.OK, record.reason
    facts = record.facts
    # D7: in another process, and the row says that there was a first one
    assert (facts["profiler_valid"], facts["profiler_problem"]) == (True, None)
    assert str(facts["profiler_retried"]).startswith("2 of 2 launches have no kernel record")
    examined, again = [steps for steps in device.steps().values() if "profile" in steps]
    assert "capture" not in again
    # D3: nothing that is timed follows the profiler
    order = [examined.index(step) for step in ("reset_peak", ENERGY, "capture", "profile")]
    assert order == sorted(order)
    assert not {"reset_peak", ENERGY, "capture"} & set(examined[order[-1] :])
    # D5: clocks of calls are read when the device has just worked, those of the graph too
    timed = [steps for steps in device.steps().values() if {CLOCK, "synchronize"} <= set(steps)]
    assert len(timed) == 3  # measured, examined, profiled again
    for steps in timed:
        assert {steps[number - 1] for number, step in enumerate(steps) if step == CLOCK} == {"synchronize"}
    assert CLOCK in examined[examined.index("capture") : examined.index("profile")]
    assert {facts[f"clock_{mode}_sm_mhz"] for mode in ("sync", "pipelined", "dispatch", "graph")} == {1980}
    # D19
    wait_s = facts["synchronize_s"]
    assert isinstance(wait_s, float)
    assert 0 < wait_s < statistics.median(next(s.durations_ns for s in record.series if s.mode == "sync")) / 1e9


def whole_run(test: Any) -> Any:
    """Of tests that need a whole run: minutes on two cores."""
    return pytest.mark.long(pytest.mark.timeout(2700)(test))


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory, make_device: Callable[[], Device], cpu_python: Path) -> Path:
    """What a run of all checks on a device that is not there has left."""
    out = tmp_path_factory.mktemp("rehearsal") / "out"
    done = subprocess.run(
        [cpu_python, "-m", "runners.check", out, "--rehearse"],
        cwd=PROJECT,
        env=make_device().environ,
        capture_output=True,
        text=True,
        timeout=2400,
    )
    assert done.returncode in (0, 1), done.stderr
    return out


@whole_run
def test_every_check_ends_by_itself_and_says_what_it_saw(rehearsal: Path) -> None:
    found = lines(rehearsal)
    assert tuple(found) == NAMES
    for name, line in found.items():
        assert line["status"] in ("passed", "failed"), line
        assert line["values"], name
        # What a device that is not there gets wrong are times; nothing breaks
        assert not [text for text in line["problems"] if "Error" in text or "no answer" in text], line
    assert found["nvml"]["status"] == "passed", found["nvml"]
    assert found["fork"]["values"] == {"works_in_children": True, "driver_status": 3}
    cells = found["cells"]["values"]
    assert cells["tiny-bert b2 float32 eager"]["status"] == "ok"
    assert cells["tiny-bert b2 float32 onnxruntime"]["reason"].startswith("ONNX Runtime 1.")
    assert len(list(rehearsal.iterdir())) <= 8


@whole_run
def test_its_rows_are_an_export(rehearsal: Path, tmp_path: Path) -> None:
    with tarfile.open(rehearsal / "rows.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    arguments = ["results", "import", str(tmp_path / "rows"), "--results", str(tmp_path / "store")]
    assert run([*arguments, "--accept-versions"]) == ExitCode.OK
    rows = Store.open(tmp_path / "store").trials(["device", "environment", "gpu_uuid"]).to_pylist()
    assert {row["device"] for row in rows} == {"cuda"}
    assert all(row["environment"].startswith("gpu-check+found-") for row in rows)
    assert {row["gpu_uuid"] for row in rows} == {"GPU-34bf77d1-c686-6821-79a8-32d326c5039c"}
