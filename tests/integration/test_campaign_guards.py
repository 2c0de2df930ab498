"""Guards from a sweep file to the store: a real runner beside a real neighbour, and a resume that tries again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.campaign import (
    CampaignOrder,
    ProjectFiles,
    ReadyHost,
    ResumePolicy,
    choose_campaign,
    run_campaign,
)
from orchestrator.config import load_sweep
from orchestrator.execution import ProcessSettings
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.scheduling import LocalScheduler
from orchestrator.store import Store, open_store

CORE = max(os.sched_getaffinity(0))
PIN = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "0" * 64)
SWEEP = """
version: 1
name: guarded
environments: cpu
workloads: [{name: synthetic-sleep, batch: 1}]
backends: [python]
threads: 1
rounds: 1
protocol: {warmup_min_ms: 1, sync_budget_ms: 1000, pipelined_budget_ms: 20, pipelined_min_samples: 2, floor_budget_ms: 0}
"""


@contextmanager
def neighbour() -> Iterator[None]:
    """Somebody who keeps the trial's core busy."""
    command = ["taskset", "--cpu-list", str(CORE), sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path


def run(project: Path, guards: str) -> str:
    path = project / "sweep.yaml"
    path.write_text(SWEEP + guards)
    wanted = load_sweep(path)
    settings = ProcessSettings(Path(sys.executable), (CORE,), 2**31, Path())
    host = ReadyHost(PlanningHost("h1", {}, (CORE,), {"cpu": PIN}), {"cpu": settings})
    store = Store.open(project / "results")
    chosen = choose_campaign(wanted, [host.planning], store, ResumePolicy.AUTO)
    order = CampaignOrder(chosen, [host], wanted.name, "sweep", "inventory", "0", None)
    run_campaign(order, LocalScheduler(), store, ProjectFiles(project), lambda _: None)
    return chosen.campaign_id


def test_what_a_guard_forbids_is_a_row_and_a_resume_with_other_guards_measures_it(project: Path) -> None:
    with neighbour():
        first = run(project, "guards: {load: {policy: wait, max_busy_permille: 500, wait_s: 1}, throttling: off}")
        second = run(project, "guards: {load: {policy: flag, max_busy_permille: 500}, throttling: off}")
    assert second == first
    refused, measured = Store.open(project / "results").trials().sort_by("attempt").to_pylist()
    assert (refused["status"], refused["attempt"]) == ("infrastructure_error", 1)
    assert refused["reason"] == (
        "guard load: others keep the trial's cores busy, still after waiting 1 s; the trial did not run"
    )
    assert refused["guard_flags"] == []
    [before] = [one for one in refused["guards"] if one["guard"] == "load"]
    assert (before["policy"], before["outcome"], before["limit"]) == ("wait", "failed", 500)
    assert before["waited_s"] >= 1
    assert (measured["status"], measured["attempt"]) == ("ok", 2)
    assert "load" in measured["guard_flags"]
    assert measured["trial_key"] == refused["trial_key"]


def test_the_views_have_what_the_guards_saw(project: Path) -> None:
    with neighbour():
        run(project, "guards: {load: {policy: flag, max_busy_permille: 500}, throttling: off, clocks: off}")
    results = open_store(project / "results")
    rows = results.sql(
        "SELECT guard.guard, guard.moment, guard.outcome, guard.observed > guard.limit, guard.unit "
        "FROM (SELECT unnest(guards) AS guard FROM latest) ORDER BY guard.moment"
    ).fetchall()
    assert rows == [
        ("load", "after", "flagged", True, "permille"),
        ("load", "before", "flagged", True, "permille"),
    ]
    assert results.sql("SELECT count(*) FROM trials WHERE coalesce(len(guard_flags), 0) = 0").fetchall() == [(0,)]
