"""What a driver does about hosts that fail, do not answer, come back or are full: without hosts and without waiting."""

import errno
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from orchestrator.campaign.control import (
    CampaignPhase,
    CampaignProgressState,
    ControlFiles,
    HostPhase,
    Request,
    RequestKind,
)
from orchestrator.campaign.driver.driver import Driver
from orchestrator.campaign.driver.host_work import HostWork, hopeless, silent
from orchestrator.campaign.driver.leftovers import BREAK_S, PAUSE_S, RECOVERY_S, ListeningClock, Recovery, ask
from orchestrator.campaign.driver.requests import Requests
from orchestrator.campaign.driver.task_tracker import RunningTask, TaskTracker
from orchestrator.config import Faults, Sweep
from orchestrator.errors import InfrastructureError
from orchestrator.execution import TaskOutcome
from orchestrator.files import ProjectFiles
from orchestrator.planning import PlannedTask, plan
from orchestrator.scheduling import (
    Acknowledgement,
    Disposal,
    HostObserved,
    LeftoverPiece,
    Leftovers,
    RecordPiece,
    Returned,
    TaskEnded,
    TaskRequest,
    WorkerProcess,
    is_there,
    recover,
)
from orchestrator.scheduling.host_calls import end_worker, this_worker
from orchestrator.store import Ingest, Store
from runners.contract import EXIT_CANNOT_RECORD, Begin, Environment, encode_line
from runners.system import collect
from tests.conftest import Patch
from tests.scripted_campaign import ready, sweep

FAULTS = Faults(silence_s=10, return_s=300, queue_s=120)
NOTHING = cast("Any", None)


def tasks(host: str) -> list[PlannedTask]:
    return list(plan(sweep(rounds=3), [ready(host).planning], "c").tasks)


def work(host: str = "h1") -> HostWork:
    return HostWork(host, waiting=deque(tasks(host)))


def started(host: HostWork, heard_s: float = 0, *, has_begun: bool = True) -> str:
    planned = host.next_task()
    assert planned is not None
    host.running[planned.task.task_id] = RunningTask(planned, NOTHING, NOTHING, heard_s, has_begun=has_begun)
    return planned.task.task_id


def test_a_task_is_lost_after_its_time_and_no_sooner() -> None:
    for has_begun, limit_s, why in (
        (True, 10, "no sign of life for 10 s"),
        (False, 120, "the task did not begin within 120 s"),
    ):
        host = work()
        task_id = started(host, 20, has_begun=has_begun)
        assert silent(host, 20 + limit_s, FAULTS) == {}
        assert silent(host, 20.1 + limit_s, FAULTS) == {task_id: why}
        host.running[task_id].ended = TaskEnded("h1", task_id, None, None, 0)
        assert silent(host, 1000, FAULTS) == {}, "it has ended"


def test_time_in_which_a_driver_took_nothing_counts_for_nobody() -> None:
    now = [100.0]
    clock = ListeningClock(lambda: now[0])
    for step_s, listened_s in ((1, 1), (BREAK_S, 4), (BREAK_S + 0.1, 4), (600, 4), (0.5, 4.5)):
        now[0] += step_s
        clock.tick()
        assert clock.now_s == pytest.approx(listened_s)
    now[0] += 1
    clock.skip()
    clock.tick()
    assert clock.now_s == pytest.approx(4.5)


def in_slots(*slots: int) -> list[PlannedTask]:
    return [replace(task, slot=slot) for task, slot in zip(tasks("h1"), slots, strict=True)]


@pytest.mark.parametrize(("slots", "expected"), [(1, [0]), (2, [0, 2])])
def test_each_slot_of_a_host_runs_one_task_at_a_time_in_their_order(slots: int, expected: list[int]) -> None:
    planned = in_slots(0, 0, 1)
    host = HostWork("h1", slots, deque(planned))
    ids = [started(host) for _ in expected]
    assert ids == [planned[number].task.task_id for number in expected]
    assert host.next_task() is None
    host.running.clear()
    assert host.next_task() == planned[1]


def test_phases_say_what_a_host_does_and_only_one_that_is_fit_starts_something() -> None:
    host = work()
    assert host.phase is HostPhase.READY
    started(host)
    assert host.phase is HostPhase.RUNNING
    host.running.clear()
    host.is_drained = True
    assert (host.next_task(), host.phase, host.reason) == (None, HostPhase.DRAINED, "asked for")
    host.is_drained = False
    host.lose("gone", 0, None)
    assert (host.next_task(), host.phase, host.reason) == (None, HostPhase.LOST, "gone")
    host.given_up = "gone for good"
    assert (host.next_task(), host.phase, host.reason) == (None, HostPhase.GIVEN_UP, "gone for good")
    host.given_up = None
    host.waiting.clear()
    assert host.phase is HostPhase.DONE


def test_a_lost_host_is_given_up_only_when_nothing_else_is_left_to_do() -> None:
    gone, other = work("h1"), work("h2")
    gone.lose("gone", 100, None)
    hosts = {"h1": gone, "h2": other}
    assert hopeless(hosts, 10_000, FAULTS) == []
    other.waiting.clear()
    assert hopeless(hosts, 399, FAULTS) == []
    assert hopeless(hosts, 400, FAULTS) == [gone]
    gone.is_drained = True
    assert hopeless(hosts, 10_000, FAULTS) == [], "nobody waits for it"
    gone.is_drained = False
    gone.waiting.clear()
    assert hopeless(hosts, 10_000, FAULTS) == []


@dataclass
class Told:
    """What a host says, as a test has it."""

    items: list[Any] = field(default_factory=list)
    is_over: bool = False
    problem: InfrastructureError | None = None
    is_dropped: bool = False

    def take(self) -> list[Any]:
        taken, self.items = self.items, []
        return taken

    def drop(self) -> None:
        self.is_dropped = True


@dataclass
class Hosts:
    """Reaches nobody."""

    pings: list[Told] = field(default_factory=list)
    streams: list[Told] = field(default_factory=list)
    returned: list[Any] = field(default_factory=list)
    """What was to be done on each host that is back."""
    submitted: list[TaskRequest] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def submit(self, request: TaskRequest) -> None:
        self.submitted.append(request)

    def cancel(self, task_id: str) -> None:
        self.cancelled.append(task_id)

    def stream(self, question: object, host: str, asked: object) -> Told:
        if question is recover:
            self.returned.append(asked)
        asked_before = {is_there: self.pings, recover: self.streams}[question]  # type: ignore[index]
        asked_before.append(Told())
        return asked_before[-1]


PIECE = LeftoverPiece(Path("/task"), b"")
REMOVED = [Acknowledgement(PIECE.directory, 1, Disposal.REMOVE)]


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture
def intake() -> Mock:
    """Takes what comes, and is settled when a test says so."""
    return Mock(is_settled=True, acknowledgements=lambda: REMOVED)


@pytest.fixture
def back(hosts: Hosts, intake: Mock) -> Recovery:
    returned = Returned(Leftovers(Path("/nowhere"), "store"), "c", (), frozenset(), ())
    return Recovery(cast("Any", hosts), "h1", lambda: returned, cast("Any", lambda: intake))


def test_a_host_that_answers_is_made_fit_and_what_it_has_is_stored_before_it_takes_tasks(
    hosts: Hosts, back: Recovery, intake: Mock
) -> None:
    assert back.look(0) is None
    assert (len(hosts.pings), hosts.streams) == (1, [])
    hosts.pings[0].items.append("h1")
    assert back.look(1) is None
    assert back.is_under_way
    hosts.streams[0].items.append(PIECE)
    assert back.look(2, may_take=False) is None
    intake.take.assert_not_called()
    assert back.look(2) is None
    intake.take.assert_called_once_with(PIECE)
    hosts.streams[0].is_over, intake.is_settled = True, False
    assert back.look(3) is None
    intake.is_settled = True
    assert back.look(4) == REMOVED


def test_a_host_that_cannot_be_made_fit_says_why_and_is_tried_again_after_a_pause(hosts: Hosts, back: Recovery) -> None:
    back.look(0)
    hosts.pings[0].problem, hosts.pings[0].is_over = InfrastructureError("the node died"), True
    back.look(0)
    back.look(PAUSE_S - 0.1)
    assert (len(hosts.pings), back.problem) == (1, None)
    back.look(PAUSE_S)
    hosts.pings[1].items.append("h1")
    back.look(PAUSE_S)
    hosts.streams[0].problem, hosts.streams[0].is_over = InfrastructureError("the engine is down"), True
    assert back.look(PAUSE_S) is None
    assert (back.problem, back.is_under_way) == ("the engine is down", False)
    now = 2 * PAUSE_S
    back.look(now)
    hosts.pings[2].items.append("h1")
    back.look(now)
    back.look(now + RECOVERY_S + 0.1)
    assert hosts.streams[1].is_dropped
    assert "it answers" in str(back.problem)
    back.look(now + RECOVERY_S + PAUSE_S + 0.2)
    back.drop()
    assert hosts.pings[3].is_dropped


def test_a_stuck_process_is_killed_even_if_it_is_frozen_and_nobody_kills_himself() -> None:
    assert not end_worker(this_worker())
    process = subprocess.Popen(["sleep", "600"])
    try:
        ticks = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        os.kill(process.pid, signal.SIGSTOP)
        assert not end_worker(WorkerProcess(process.pid, ticks + 1)), "another process has this number now"
        assert process.poll() is None
        assert end_worker(WorkerProcess(process.pid, ticks))
        assert process.wait(20) == -signal.SIGKILL
        assert not end_worker(WorkerProcess(process.pid, ticks))
    finally:
        process.kill()
        process.wait()


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
