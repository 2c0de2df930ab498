"""A driver that is killed again and again in one sweep: each trial is measured, and stored once."""

import random
import signal
import time
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from tests.conftest import Patch
from tests.project import Project, sleeps
from tests.recording import processes_naming

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

KILLS = 20
TRIALS = 96


def test_each_trial_is_stored_once_however_often_the_driver_is_killed(
    cpu_python: object, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    project, log = Project.here(tmp_path / "project"), tmp_path / "log"
    command = ("sweep", "run", project.write(sleeps(rounds=12, turn_ms=300, batches="[1, 2, 3, 4, 5, 6, 7, 8]")))
    moments = random.Random(15)
    acknowledged: set[str] = set()
    for life in range(KILLS):
        driver = project.start(log, *command)
        # Half of them die on the way to their first trial, the others between a record and its acknowledgement
        wanted = len(acknowledged) + moments.randint(2, 4) if life % 2 else TRIALS
        ends_s = time.monotonic() + (120.0 if life % 2 else moments.uniform(0.3, 12.0))
        while len(project.stored()) < wanted and time.monotonic() < ends_s:
            assert driver.poll() is None, f"life {life} ended by itself: {log.read_text()[-4000:]}"
            time.sleep(moments.uniform(0.01, 0.2))
        assert not life % 2 or len(project.stored()) >= wanted, f"life {life}: {log.read_text()[-4000:]}"
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        now = project.stored()
        assert acknowledged <= now, "what was stored is lost"
        acknowledged = now
    assert len(acknowledged) < TRIALS, "the sweep was too short for so many deaths"

    project.taxmeter(*command, code=ExitCode.OK, timeout_s=600)
    rows = project.rows()
    assert len(rows) == len({row["trial_id"] for row in rows}) == TRIALS
    assert {(row["status"], row["attempt"]) for row in rows} == {("ok", 1)}
    assert acknowledged <= {row["trial_id"] for row in rows}
    [campaign] = {row["campaign_id"] for row in rows}
    assert not list(project.files.campaigns.glob(f"{campaign}/*/records.jsonl")), "nobody asks for them"
    assert processes_naming(campaign) == []
