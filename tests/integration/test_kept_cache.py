"""What a host keeps between campaigns: taken, refused when it was changed, and left out where everything is to be cold."""

from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from tests.project import Project

pytestmark = pytest.mark.cluster

SWEEP = """
version: 1
name: kept
environments: [cpu]
workloads: [{name: tiny-bert, batch: 1, sequence_length: 16}]
backends: [onnxruntime]
rounds: 1
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, turn_ms: 20, cycles: 3, min_cycles: 2,
   floor_budget_ms: 0}
"""


def test_a_second_campaign_takes_what_the_first_made_unless_it_was_changed_or_is_cold(
    tmp_path: Path, cpu_python: Path
) -> None:
    assert cpu_python.exists()
    project = Project.here(tmp_path / "project")
    command = ("sweep", "run", project.write(SWEEP), "--resume", "never")

    def states(*options: str) -> tuple[str, str]:
        project.taxmeter(*command, *options, code=ExitCode.OK, DOCKER_HOST="unix:///nonexistent/docker.sock")
        row = max(project.rows(), key=lambda row: row["started_at"])
        return row["reference_cache"], row["artifact_cache"]

    assert states() == ("miss", "miss")
    assert states() == ("hit", "hit")
    [model] = project.files.state.glob("kept/cpu-process/artifact-*/*.onnx")
    model.write_bytes(model.read_bytes()[:-1] + b"?")
    assert states() == ("hit", "refused")
    assert states("--cold") == ("miss", "miss")
