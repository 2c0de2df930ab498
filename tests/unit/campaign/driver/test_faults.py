"""What is known of hosts that fail, do not answer, come back or are full: without hosts and without waiting."""

import os
import signal
import subprocess
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from orchestrator.campaign.control import (
    HostPhase,
)
from orchestrator.campaign.driver.host_work import HostWork, hopeless, silent
from orchestrator.campaign.driver.leftovers import BREAK_S, PAUSE_S, RECOVERY_S, ListeningClock, Recovery
from orchestrator.campaign.driver.task_tracker import RunningTask
from orchestrator.config import Faults
from orchestrator.errors import InfrastructureError
from orchestrator.planning import PlannedTask, plan
from orchestrator.scheduling import (
    Acknowledgement,
    Disposal,
    LeftoverPiece,
    Leftovers,
    Returned,
    TaskEnded,
    TaskRequest,
    WorkerProcess,
    is_there,
    recover,
)
from orchestrator.scheduling.host_calls import end_worker, this_worker
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
