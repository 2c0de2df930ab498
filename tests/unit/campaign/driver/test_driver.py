"""What a driver does about hosts that fail, come back or are full: without hosts and without waiting."""

import errno
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from orchestrator.campaign.control import (
    CampaignPhase,
    CampaignProgressState,
    ControlFiles,
    Request,
    RequestKind,
)
from orchestrator.campaign.driver.driver import Driver
from orchestrator.campaign.driver.host_work import HostWork
from orchestrator.campaign.driver.leftovers import ask
from orchestrator.campaign.driver.requests import Requests
from orchestrator.campaign.driver.task_tracker import TaskTracker
from orchestrator.config import Sweep
from orchestrator.execution import TaskOutcome
from orchestrator.files import ProjectFiles
from orchestrator.scheduling import (
    HostObserved,
    RecordPiece,
    TaskEnded,
    WorkerProcess,
)
from orchestrator.store import Store
from orchestrator.store.ingest import Ingest
from runners.contract import EXIT_CANNOT_RECORD, Begin, Environment, encode_line
from runners.system import collect
from tests.conftest import Patch
from tests.scripted_campaign import ready, sweep
from tests.unit.campaign.driver.test_faults import FAULTS, NOTHING, Hosts, Told, in_slots, work


class Driving:
    """A driver of hosts that say what a test has them say, by a clock that a test sets."""

    def __init__(self, files: ProjectFiles, ingest: Ingest, works: Sequence[HostWork], wanted: Sweep | None) -> None:
        self.works = {work.name: work for work in works}
        self.hosts, self.now_s, self.told = Hosts(), 0.0, list[str]()
        self.control = ControlFiles(files.control)
        everyone = {name: ready(name) for name in self.works}
        requests = Requests("c", everyone, files, "store", collect())
        tracker = TaskTracker(requests, ingest, lambda told: self.told.append(getattr(told, "text", "")))
        state = CampaignProgressState("c", "s", 0, 0, CampaignPhase.RUNNING, (), 0, 6, 0, 1, "here", "results", 0, None)
        hosts, recall, clock = cast("Any", self.hosts), lambda planned: planned, lambda: self.now_s
        self.driver = Driver(self.works, hosts, tracker, self.control, state, FAULTS, wanted, {}, recall, clock=clock)

    def start(self) -> list[str]:
        """Submits what can start, which begins at once; returns the ids."""
        before = len(self.hosts.submitted)
        self.driver._submit()
        new = self.hosts.submitted[before:]
        for number, request in enumerate(new):
            worker = WorkerProcess(1001 + number, 7)
            self.driver._take(HostObserved(request.host, request.task.task_id, collect(), worker))
        return [request.task.task_id for request in new]

    def goes_on(self, to_s: float) -> None:
        """The driver listens until then, and looks around."""
        while self.now_s < to_s:
            self.now_s += 1
            self.driver._listening.tick()
        self.looks()

    def looks(self) -> None:
        self.driver._looked_s = float("-inf")
        self.driver._look()
        running = [task for work in self.works.values() for task in work.running.values()]
        while any(task.ended and not task.intake.is_settled for task in running):
            self.driver._end_settled()
        self.driver._end_settled()

    def answers(self) -> None:
        """The host that was asked last whether it is there says so."""
        self.hosts.pings[-1].items.append("here")
        self.looks()


Drive = Callable[..., Driving]


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Drive]:
    files, store = ProjectFiles(tmp_path), Store.open(tmp_path / "results")
    with ControlFiles(files.control).driving(), store.writer() as writer, Ingest(store, writer, print) as ingest:
        yield lambda *works, wanted=None: Driving(files, ingest, works, wanted)


def test_tasks_of_other_hosts_on_the_same_disk_are_no_leftovers(drive: Drive) -> None:
    driving = drive(work("h1"), work("h2"))
    [lost, running] = driving.start()
    driving.driver._take(TaskEnded("h1", lost, None, "its node died", None))
    driving.looks()
    driving.answers()
    [returned] = driving.hosts.returned
    assert returned.running == set()
    assert returned.leftovers.in_use == {driving.works["h2"].running[running].intake.directory.name}


def test_a_full_disk_only_keeps_others_from_seeing_how_the_campaign_is(drive: Drive, monkeypatch: Patch) -> None:
    publish = Mock(side_effect=[OSError(number, "cannot") for number in (errno.ENOSPC, errno.EDQUOT, errno.EACCES)])
    monkeypatch.setattr(ControlFiles, "publish", publish)
    driver = drive(work("h1")).driver
    driver._publish(CampaignPhase.ENDED)
    driver._publish(CampaignPhase.ENDED)
    with pytest.raises(PermissionError):
        driver._publish(CampaignPhase.ENDED)


def two_slots() -> HostWork:
    return HostWork("h1", 2, deque(in_slots(0, 1, 0)))


def test_a_second_task_that_is_lost_while_its_host_is_made_fit_is_seen_to_as_well(drive: Drive) -> None:
    driving = drive(two_slots())
    first, second = driving.start()
    driving.goes_on(1)
    driving.driver._take(RecordPiece("h1", second, 0, 0, b""))  # a sign of life
    driving.goes_on(11)
    driving.answers()
    driving.goes_on(12)
    assert driving.hosts.cancelled == [first, second]
    assert driving.hosts.streams[0].is_dropped
    driving.answers()
    assert [[worker.pid for worker in returned.lost] for returned in driving.hosts.returned] == [[1001], [1001, 1002]]
    assert [returned.running for returned in driving.hosts.returned] == [{second}, set()]


def test_what_ends_well_while_its_host_is_made_fit_is_still_acknowledged(drive: Drive) -> None:
    driving = drive(two_slots())
    first, second = driving.start()
    driving.driver._take(TaskEnded("h1", first, None, "its worker died", None))
    driving.looks()
    driving.answers()
    directory = driving.works["h1"].running[second].intake.directory
    driving.driver._take(TaskEnded("h1", second, TaskOutcome(0, None, None, ""), None, 0))
    driving.looks()
    driving.hosts.streams[0].is_over = True
    driving.looks()
    assert driving.works["h1"].loss is None
    assert [found.directory for found in driving.works["h1"].acknowledgements] == [directory]


def test_a_runner_that_cannot_write_its_records_is_no_fault_of_the_trial(drive: Drive) -> None:
    driving = drive(work("h1"))
    [task_id] = driving.start()
    trial, other = driving.hosts.submitted[0].task.trials
    begun = Begin(trial.trial_id, trial.attempt, 1)
    data = encode_line(Environment(task_id, {"python": "3"}, {}, "code")) + encode_line(begun)
    driving.driver._take(RecordPiece("h1", task_id, 0, 0, data))
    full = TaskOutcome(EXIT_CANNOT_RECORD, None, None, "records.jsonl: No space left on device")
    driving.driver._take(TaskEnded("h1", task_id, full, None, len(data)))
    driving.looks()
    host = driving.works["h1"]
    assert host.reason == "its runner could not write its records (records.jsonl: No space left on device)"
    left = [(left.trial_id, left.attempt) for left in host.waiting[0].task.trials]
    assert left == [(other.trial_id, 1), (trial.trial_id, 2)]


def test_a_driver_that_was_stopped_gives_nobody_up_for_it(drive: Drive) -> None:
    driving = drive(work("h1"))

    def looks_for(seconds: int) -> None:
        for _ in range(seconds):
            driving.now_s += 1
            driving.looks()

    driving.driver._lose(driving.works["h1"], "its node died")
    looks_for(5)
    driving.now_s += 600
    looks_for(FAULTS.return_s - 6)
    assert driving.works["h1"].given_up is None
    looks_for(2)
    assert driving.works["h1"].given_up == "it did not come back within 300 s: its node died"


def test_who_still_says_something_is_heard_to_the_end(monkeypatch: Patch) -> None:
    """As after the driver was stopped for longer than it waits."""
    monkeypatch.setattr("orchestrator.campaign.driver.leftovers.BREAK_S", 600.0)
    slow, silent_one = Told(["first"]), Told()
    streams = {"h1": slow, "h2": silent_one}
    scheduler = SimpleNamespace(stream=lambda question, host, asked: streams[host])
    heard: list[str] = []

    def take(host: str, item: str) -> None:
        heard.append(item)
        time.sleep(0.2)
        if item == "first":
            slow.items.append("second")
        else:
            slow.is_over = True

    told: list[str] = []
    everyone = dict.fromkeys(streams, NOTHING)
    assert ask(cast("Any", scheduler), NOTHING, everyone, 0.1, take, told.append) == {"h1"}
    assert heard == ["first", "second"]
    assert told == ["h2: it gave no answer within 0 s"]
    assert silent_one.is_dropped


@pytest.mark.parametrize("drained", [("h1",), ("h1", "h2")])
def test_a_spare_is_not_needed_once_everything_is_drained(drive: Drive, drained: tuple[str, ...]) -> None:
    driving, takes_part = drive(work("h1"), work("h2"), wanted=sweep("any")), len(drained) == 1
    driving.control.request(Request(RequestKind.DRAIN, drained))
    driving.looks()
    driving.control.offer(ready("h3"))
    driving.looks()
    assert ("h3" in driving.works) is takes_part
    assert ("h3 was offered, and is not needed" in driving.told) is not takes_part
