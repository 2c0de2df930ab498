"""What a host keeps between campaigns: taken, refused when it was changed, and left out where everything is to be cold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store
from tests.conftest import PROJECT

pytestmark = pytest.mark.cluster

SWEEP = """
version: 1
name: kept
environments: [cpu]
workloads: [{name: tiny-bert, batch: 1, sequence_length: 16}]
backends: [onnxruntime]
seed: %d
rounds: 1
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, turn_ms: 20, cycles: 3, min_cycles: 2,
   floor_budget_ms: 0}
"""


def test_a_second_campaign_takes_what_the_first_made_unless_it_was_changed_or_is_cold(
    tmp_path: Path, cpu_python: Path
) -> None:
    assert cpu_python.exists()
    sweep, kept = tmp_path / "kept.yaml", PROJECT / ".taxmeter" / "kept" / "cpu-process"
    # No earlier run of this test made any of it
    sweep.write_text(SWEEP % int.from_bytes(os.urandom(3), "big"))
    before = set(kept.glob("*-*"))

    def states(*options: str) -> tuple[str, str]:
        command = [sys.executable, "-m", "orchestrator", "sweep", "run", str(sweep), "--resume", "never", *options]
        done = subprocess.run(
            [*command, "--results", str(tmp_path / "results")],
            cwd=PROJECT,
            env={**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == ExitCode.OK, done.stdout + done.stderr
        rows = Store.open(tmp_path / "results").trials(["started_at", "reference_cache", "artifact_cache"])
        row = rows.sort_by("started_at").to_pylist()[-1]
        return row["reference_cache"], row["artifact_cache"]

    assert states() == ("miss", "miss")
    assert states() == ("hit", "hit")
    [artifact] = {entry for entry in kept.glob("artifact-*") if entry not in before}
    poisoned = next(path for path in sorted(artifact.rglob("*.onnx*")))
    poisoned.write_bytes(poisoned.read_bytes()[:-1] + b"?")
    assert states() == ("hit", "refused")
    assert states("--cold") == ("miss", "miss")
