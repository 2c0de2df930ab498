"""Campaigns whose disk is full: they wait for room, go on when there is some, and end when told to."""

import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.campaign import (
    CampaignOrder,
    CampaignProgress,
    Notice,
    ProjectFiles,
    ReadyHost,
    ResumePolicy,
    TrialRecorded,
    choose_campaign,
    run_campaign,
)
from orchestrator.campaign.progress import Observer
from orchestrator.config import Sweep
from orchestrator.execution import FakeSettings
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.scheduling import LocalScheduler
from orchestrator.store import Store

SWEEP = Sweep.model_validate(
    {
        "version": 1,
        "name": "s",
        "environments": "cpu",
        "workloads": ({"name": "synthetic-null", "batch": (1, 2)},),
        "backends": ("python",),
        "rounds": 10,
    }
)
PIN = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "0" * 64)
HOST = ReadyHost(PlanningHost("h1", {}, (0, 1), {"cpu": PIN}), {"cpu": FakeSettings(0.05)})


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.ingest.RETRY_S", 0.1)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB for the results alone; only root can have one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting needs root")
    yield place
    gc.collect()  # the traceback of an interrupt keeps what it passed, and with it files
    subprocess.run(["umount", str(place)], check=True)


def run(directory: Path, disk: Path, observe: Observer) -> None:
    store = Store.open(disk / "results")
    continuation = choose_campaign(SWEEP, [HOST.planning], store, ResumePolicy.AUTO)
    order = CampaignOrder(continuation, [HOST], SWEEP.name, "sweep", "inventory", "0", None)
    run_campaign(order, LocalScheduler(), store, ProjectFiles(directory), observe)


def fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as file:
        while os.statvfs(disk).f_bavail:
            file.write(bytes(4096))


def rows(disk: Path) -> list[str]:
    names: list[str] = Store.open(disk / "results").trials(["trial_id"])["trial_id"].to_pylist()
    return names


def is_full(progress: CampaignProgress) -> bool:
    return isinstance(progress, Notice) and "is full: waiting for room" in progress.text


def test_a_campaign_goes_on_when_there_is_room_again(disk: Path, tmp_path: Path) -> None:
    told: list[CampaignProgress] = []

    def observe(progress: CampaignProgress) -> None:
        told.append(progress)
        if sum(isinstance(one, TrialRecorded) for one in told) == 3 and isinstance(progress, TrialRecorded):
            fill(disk)
        if is_full(progress):
            (disk / "ballast").unlink()

    run(tmp_path, disk, observe)
    assert len(rows(disk)) == len(set(rows(disk))) == 20
    assert [is_full(one) for one in told].count(True) == 1
    recorded = [one.trial.trial_id for one in told if isinstance(one, TrialRecorded)]
    assert sorted(recorded) == sorted(rows(disk))
    assert not list(tmp_path.glob(".taxmeter/campaigns/*/*/records*.jsonl"))


def test_an_interrupt_ends_the_waiting_and_what_waited_is_stored_by_the_next_run(disk: Path, tmp_path: Path) -> None:
    told: list[CampaignProgress] = []

    def observe(progress: CampaignProgress) -> None:
        told.append(progress)
        if sum(isinstance(one, TrialRecorded) for one in told) == 3 and isinstance(progress, TrialRecorded):
            fill(disk)
        if is_full(progress):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, disk, observe)
    before = rows(disk)
    assert list(tmp_path.glob(".taxmeter/campaigns/*/*/records.jsonl"))
    (disk / "ballast").unlink()
    again: list[CampaignProgress] = []
    run(tmp_path, disk, again.append)
    assert len(rows(disk)) == len(set(rows(disk))) == 20
    recorded = {one.trial.trial_id for one in again if isinstance(one, TrialRecorded)}
    assert len(recorded) < 20 - len(before)
    assert recorded.isdisjoint(before)
