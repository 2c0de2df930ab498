"""A driver that is killed again and again in one sweep: each trial is measured, and stored once."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store
from tests.recording import processes_naming

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

KILLS = 20
TRIALS = 96
SWEEP = """
version: 1
name: often
environments: [cpu]
workloads: [{name: synthetic-sleep, batch: [1, 2, 3, 4, 5, 6, 7, 8]}]
backends: [python]
rounds: 12
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, turn_ms: 300, cycles: 1, min_cycles: 1,
   floor_budget_ms: 0}
"""


def stored(results: Path) -> set[str]:
    if not (results / "STORE.json").exists():
        return set()
    return set(Store.open(results).trials(["trial_id"])["trial_id"].to_pylist())


def test_each_trial_is_stored_once_however_often_the_driver_is_killed(
    cpu_python: object, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    sweep, results, log = tmp_path / "often.yaml", tmp_path / "results", tmp_path / "log"
    sweep.write_text(SWEEP)
    command = [sys.executable, "-m", "orchestrator", "sweep", "run", str(sweep), "--results", str(results)]
    moments = random.Random(15)
    acknowledged: set[str] = set()
    for life in range(KILLS):
        with log.open("a") as stream:
            driver = subprocess.Popen(command, cwd=project, stdout=stream, stderr=stream)
        # Half of them die on the way to their first trial, the others between a record and its acknowledgement
        wanted = len(acknowledged) + moments.randint(2, 4) if life % 2 else TRIALS
        ends_s = time.monotonic() + (120.0 if life % 2 else moments.uniform(0.3, 12.0))
        while len(stored(results)) < wanted and time.monotonic() < ends_s:
            assert driver.poll() is None, f"life {life} ended by itself: {log.read_text()[-4000:]}"
            time.sleep(moments.uniform(0.01, 0.2))
        assert not life % 2 or len(stored(results)) >= wanted, f"life {life}: {log.read_text()[-4000:]}"
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        now = stored(results)
        assert acknowledged <= now, "what was stored is lost"
        acknowledged = now
    assert len(acknowledged) < TRIALS, "the sweep was too short for so many deaths"

    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    rows = Store.open(results).trials(["trial_id", "attempt", "status", "campaign_id"]).to_pylist()
    assert len(rows) == len({row["trial_id"] for row in rows}) == TRIALS
    assert {(row["status"], row["attempt"]) for row in rows} == {("ok", 1)}
    assert acknowledged <= {row["trial_id"] for row in rows}
    [campaign] = {row["campaign_id"] for row in rows}
    assert not list((project / ".taxmeter" / "campaigns" / campaign).glob("*/records.jsonl")), "nobody asks for them"
    assert processes_naming(campaign) == []
