"""A sweep, and its trials once more, through the command line: a real model, Ray, both isolations."""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store

pytestmark = pytest.mark.cluster

MODEL = """
version: 1
name: model
environments: [cpu]
workloads: [{name: tiny-bert, batch: 2}]
backends: [eager, torchscript]
rounds: 3
seed: 5
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, sync_budget_ms: 50, sync_min_samples: 3,
   pipelined_budget_ms: 50, pipelined_min_samples: 2, pipelined_block_ms: 10, floor_budget_ms: 0}
"""


def taxmeter(project: Path, *arguments: object, code: ExitCode = ExitCode.OK) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "orchestrator", *map(str, arguments)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_a_trial_and_its_campaign_run_again(
    isolation: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, results = tmp_path / "model.yaml", tmp_path / "results"
    sweep.write_text(MODEL)
    taxmeter(project, "sweep", "run", sweep, "--results", results)
    then = Store.open(results).trials().to_pylist()
    [campaign] = {row["campaign_id"] for row in then}

    [first] = [row for row in then if row["backend"] == "eager" and row["round"] == 1]
    done = taxmeter(project, "reproduce", first["trial_id"][:20], "--results", results)
    now = [row for row in Store.open(results).trials().to_pylist() if row["reproduces"] == campaign]
    assert len(now) == 3
    same = ("trial_key", "environment_id", "isolation", "trial_cores", "memory_limit_bytes", "seed", "timeout_s")
    same += ("protocol", "image_id", "lock_sha256", "runner_sha256", "system_id", "host")
    for row in now:
        assert {name: row[name] for name in same} == {name: first[name] for name in same}
        assert (row["status"], row["reproduction_differs"]) == ("ok", None)
        assert row["reproduces_trial_key"] == first["trial_key"]
    assert "environment cpu is identical to the stored one" in done.stdout
    assert "trial keys: 1 of 1 are those of the stored trials" in done.stdout
    assert "Verdicts: " in done.stdout
    assert first["trial_key"] in done.stdout

    done = taxmeter(project, "reproduce", campaign, "--rounds", 1, "--results", results)
    assert "trial keys: 2 of 2 are those of the stored trials" in done.stdout
    # One process on a side gives no interval. The reason stands in a cell, which is folded as the others are wide.
    assert "inconclusive" in done.stdout.split("Verdicts: ")[1].splitlines()[0]

    if isolation == "docker":
        monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
        refused = taxmeter(project, "reproduce", campaign, "--results", results, code=ExitCode.NO_USABLE_HOST)
        assert "the trials ran in containers, but no Docker engine answers" in refused.stderr
        assert "start it, or add --allow-different-image" in refused.stderr
        assert refused.stderr.count("\n") == 1
