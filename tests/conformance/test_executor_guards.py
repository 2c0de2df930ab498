"""A neighbour outside of a task is seen from within it, whatever separates the two."""

import os
from dataclasses import replace
from pathlib import Path
from sys import executable

import pytest

from orchestrator.environments import BuiltImage
from orchestrator.execution import DockerSettings, ProcessSettings, stage
from runners.contract import NO_GUARDS, GuardOutcome, LoadGuard, Protocol, Status, ThrottlingGuard, TrialRecord
from tests.recording import neighbour, run_staged

CORE = max(os.sched_getaffinity(0))
GIB = 1 << 30
PROTOCOL = Protocol(
    warmup_min_ms=1, warmup_max_ms=100, turn_ms=500, cycles=1, min_cycles=1, sync_budget_ms=500, floor_budget_ms=0
)


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.engine)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> DockerSettings | ProcessSettings:
    cache = tmp_path / "cache"
    if request.param == "docker":
        image: BuiltImage = request.getfixturevalue("cpu_image")
        return DockerSettings(image.image_id, None, (CORE,), 2 * GIB, cache)
    return ProcessSettings(Path(executable), (CORE,), 2 * GIB, cache)


def test_a_neighbour_on_the_host_is_seen_before_and_after_a_trial(settings, make_trial, make_task, tmp_path) -> None:
    task = make_task(make_trial("synthetic-sleep", protocol=PROTOCOL))
    guards = replace(NO_GUARDS, load=LoadGuard(max_busy_permille=500, window_ms=500), throttling=ThrottlingGuard())
    task = replace(task, guards=guards)
    stage(task, tmp_path / "task")
    with neighbour(CORE):
        lines = run_staged(settings, task, tmp_path / "task").lines
    [record] = [line for line in lines if isinstance(line, TrialRecord)]
    assert record.status is Status.OK, record.reason
    load = [one for one in record.guards if one.guard == "load"]
    assert [(one.moment.value, one.outcome) for one in load] == [
        ("before", GuardOutcome.FLAGGED),
        ("after", GuardOutcome.FLAGGED),
    ]
    assert {one.detail for one in load} == {f"cores {CORE}"}
    # No quota holds a trial back: cores are given whole
    throttling = {reading.outcome for reading in record.guards if reading.guard == "throttling"}
    assert throttling in ({GuardOutcome.PASSED}, {GuardOutcome.UNSEEN})
