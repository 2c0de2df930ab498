"""All checks on the GPU of this machine. It imports nothing of this project, so that it runs where only a framework is:
`python3 -m pytest tests/gpu`."""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(700)]

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, gpu_python: Path) -> dict[str, dict[str, object]]:
    out = tmp_path_factory.mktemp("check")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAXMETER")}
    subprocess.run([gpu_python, "-m", "runners.check", out], cwd=PROJECT, env=kept, timeout=650)
    read = [json.loads(line) for line in (out / "check.jsonl").read_text().splitlines()]
    return {line["check"]: line for line in read}


@pytest.mark.parametrize("check", ["nvml", "fork", "cells", "profiler", "queue", "clocks", "accuracy", "transition"])
def test_a_check_passes(found: dict[str, dict[str, object]], check: str) -> None:
    assert (found[check]["status"], found[check]["problems"]) == ("passed", []), found[check]
