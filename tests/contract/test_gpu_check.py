"""`python -m runners.check`: on a machine without a GPU, and its whole way on a device that is not there."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.store import Store
from runners.check.running import EXIT_SKIPPED, NAMES
from tests.conftest import PROJECT

FAKE = PROJECT / "tests" / "fake_gpu"


def lines(out: Path) -> dict[str, dict[str, Any]]:
    read = [json.loads(line) for line in (out / "check.jsonl").read_text().splitlines()]
    return {line["check"]: line for line in read}


def test_without_a_framework_or_a_gpu_all_is_skipped_at_once_with_the_reason(tmp_path: Path) -> None:
    start = time.monotonic()
    command = [sys.executable, "-m", "runners.check", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert time.monotonic() - start < 10
    assert done.returncode == EXIT_SKIPPED, done.stderr
    found = lines(tmp_path / "out")
    assert tuple(found) == NAMES
    assert [json.loads(line) for line in done.stdout.splitlines()] == list(found.values())
    assert {line["status"] for line in found.values()} == {"skipped"}
    assert {line["reason"] for line in found.values()} <= {
        f"{sys.executable} has no torch",
        "there is no CUDA driver: libcuda.so.1 cannot be loaded",
    }


def test_a_check_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "runners.check", str(tmp_path), "--only", "nvml,clock"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no check is called clock; there are nvml, fork, cells" in done.stderr


@dataclass(frozen=True)
class Rehearsal:
    """A run of all checks on a device that notes what it is asked."""

    out: Path
    found: dict[str, dict[str, Any]]
    steps: dict[str, list[str]]
    """By process, in order."""


def whole_run(test: Any) -> Any:
    """Of tests that need a whole run: minutes on two cores."""
    return pytest.mark.long(pytest.mark.timeout(2700)(test))


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory, cpu_python: Path) -> Rehearsal:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for a driver that is not there")
    directory = tmp_path_factory.mktemp("rehearsal")
    library = directory / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, FAKE / "cuda.c"], check=True)
    notes = directory / "notes"
    notes.touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAXMETER")}
    environment |= {"LD_LIBRARY_PATH": str(directory), "PYTHONPATH": str(FAKE), "TAXMETER_FAKE_GPU": str(notes)}
    out = directory / "out"
    done = subprocess.run(
        [cpu_python, "-m", "runners.check", out, "--rehearse"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2400,
    )
    assert done.returncode in (0, 1), done.stderr
    steps: dict[str, list[str]] = {}
    for line in notes.read_text().splitlines():
        pid, step = line.split()
        steps.setdefault(pid, []).append(step)
    return Rehearsal(out, lines(out), steps)


@whole_run
def test_every_check_ends_by_itself_and_says_what_it_saw(rehearsal: Rehearsal) -> None:
    assert tuple(rehearsal.found) == NAMES
    for name, line in rehearsal.found.items():
        assert line["status"] in ("passed", "failed"), line
        assert line["values"], name
        # What a device that is not there gets wrong are times; nothing breaks
        assert not [text for text in line["problems"] if "Error" in text or "no answer" in text], line
    assert rehearsal.found["nvml"]["status"] == "passed", rehearsal.found["nvml"]
    assert rehearsal.found["fork"]["values"] == {"driver_status_after_imports": None, "works_in_children": True}
    cells = rehearsal.found["cells"]["values"]
    assert cells["tiny-bert b2 float32 eager"]["status"] == "ok"
    assert cells["tiny-bert b2 float32 onnxruntime"]["reason"].startswith("ONNX Runtime 1.")
    assert len(list(rehearsal.out.iterdir())) <= 8


@whole_run
def test_the_profiler_comes_last_and_a_clock_is_read_after_each_series(rehearsal: Rehearsal) -> None:
    examined = [steps for steps in rehearsal.steps.values() if "capture" in steps and "profile" in steps]
    assert examined
    for steps in examined:
        profile = steps.index("profile")
        after = steps[profile + 1 :]
        assert "nvmlDeviceGetTotalEnergyConsumption" not in after
        assert "reset_peak" not in after
    measured = [steps for steps in rehearsal.steps.values() if {"nvmlDeviceGetClockInfo", "synchronize"} <= set(steps)]
    assert measured
    for steps in measured:
        reads = [number for number, step in enumerate(steps) if step == "nvmlDeviceGetClockInfo"]
        assert any(steps[number - 1] == "synchronize" for number in reads if number)


@whole_run
def test_its_rows_are_an_export(rehearsal: Rehearsal, tmp_path: Path) -> None:
    with tarfile.open(rehearsal.out / "rows.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    arguments = ["results", "import", str(tmp_path / "rows"), "--results", str(tmp_path / "store")]
    assert run([*arguments, "--accept-versions"]) == ExitCode.OK
    rows = (
        Store.open(tmp_path / "store")
        .trials(["workload", "device", "environment", "gpu_uuid", "dispatch_s"])
        .to_pylist()
    )
    assert {row["device"] for row in rows} == {"cuda"}
    assert all(row["environment"].startswith("gpu-check+found-") for row in rows)
    assert {row["gpu_uuid"] for row in rows} == {"GPU-34bf77d1-c686-6821-79a8-32d326c5039c"}
