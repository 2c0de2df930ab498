"""What a driver decides about hosts that do not answer, without hosts and without waiting."""

import os
import signal
import subprocess
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign.control import HostPhase
from orchestrator.campaign.driving.host_work import (
    BREAK_S,
    HostWork,
    ListeningClock,
    RunningTask,
    hopeless,
    move,
    silent,
    trials_of,
)
from orchestrator.campaign.driving.recovery import PAUSE_S, PING_S, RECOVERY_S, Recovery
from orchestrator.campaign.provision import ReadyHost
from orchestrator.config import Faults
from orchestrator.errors import InfrastructureError
from orchestrator.execution import FakeSettings
from orchestrator.planning import GpuFacts, Machine, PlannedTask, PlanningHost, plan
from orchestrator.scheduling import (
    Acknowledgement,
    Disposal,
    LeftoverPart,
    LeftoverPiece,
    Leftovers,
    Returned,
    TaskEnded,
    WorkerProcess,
    is_there,
    recover,
)
from orchestrator.scheduling.workers import end_worker, this_worker
from tests.scripted_campaign import PIN, sweep

FAULTS = Faults(silence_s=10, return_s=300, queue_s=120)


MACHINE = Machine("580.1", (GpuFacts("NVIDIA H100", "9.0", 80 * 2**30),), None, 2**33)


def ready(name: str) -> ReadyHost:
    return ReadyHost(PlanningHost(name, {}, (0, 1), {"cpu": PIN}, machine=MACHINE), {"cpu": FakeSettings()})


def tasks(host: str, targets: object = "each-host") -> list[PlannedTask]:
    return list(plan(sweep(targets, rounds=3), [ready(host).planning], "c").tasks)


def work(host: str = "h1", **more: Any) -> HostWork:
    return HostWork(host, waiting=deque(tasks(host)), **more)


def started(host: HostWork, *, heard_s: float, has_begun: bool) -> str:
    planned = host.next_task()
    assert planned is not None
    host.running[planned.task.task_id] = RunningTask(planned, Path("/task"), heard_s, has_begun)
    return planned.task.task_id


def test_a_task_is_lost_when_its_host_was_silent_for_too_long_and_no_sooner() -> None:
    host = work()
    task_id = started(host, heard_s=20, has_begun=True)
    assert silent(host, 30, FAULTS) == {}
    assert silent(host, 30.1, FAULTS) == {task_id: "no sign of life for 10 s"}


def test_a_task_that_does_not_begin_is_lost_after_the_time_for_queues() -> None:
    host = work()
    task_id = started(host, heard_s=0, has_begun=False)
    assert silent(host, 120, FAULTS) == {}
    assert silent(host, 120.1, FAULTS) == {task_id: "the task did not begin within 120 s"}


def test_a_task_that_has_ended_is_not_silent() -> None:
    host = work()
    task_id = started(host, heard_s=0, has_begun=True)
    host.running[task_id].ended = TaskEnded("h1", task_id, None, None, 0)
    assert silent(host, 1000, FAULTS) == {}


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


def test_tasks_of_a_host_run_one_at_a_time_and_in_their_order() -> None:
    host = work()
    first = host.next_task()
    assert first is not None
    assert first.task.trials[0].round == 1
    host.running["x"] = RunningTask(first, Path("/task"), 0)
    assert host.next_task() is None
    host.running.clear()
    second = host.next_task()
    assert second is not None
    assert second.task.trials[0].round == 2


def test_each_slot_of_a_host_runs_its_own_tasks() -> None:
    one, two, three = tasks("h1")
    host = HostWork(
        "h1",
        2,
        deque([PlannedTask("h1", one.task, 0), PlannedTask("h1", two.task, 0), PlannedTask("h1", three.task, 1)]),
    )
    taken = []
    while (planned := host.next_task()) is not None:
        taken.append(planned.task)
        host.running[planned.task.task_id] = RunningTask(planned, Path("/task"), 0)
    assert taken == [one.task, three.task]


@pytest.mark.parametrize("change", ["lost", "drained", "given up"])
def test_a_host_that_is_not_fit_starts_nothing(change: str) -> None:
    host = work()
    if change == "lost":
        host.lose("gone", 0, None)
    elif change == "drained":
        host.is_drained = True
    else:
        host.given_up = "gone"
    assert host.next_task() is None
    expected = {"lost": HostPhase.LOST, "drained": HostPhase.DRAINED, "given up": HostPhase.GIVEN_UP}
    assert host.phase is expected[change]


def test_phases_say_what_a_host_does() -> None:
    host = work()
    assert host.phase is HostPhase.READY
    started(host, heard_s=0, has_begun=True)
    assert host.phase is HostPhase.RUNNING
    host.waiting.clear()
    host.running.clear()
    assert host.phase is HostPhase.DONE
    host.lose("gone", 0, None)
    assert host.phase is HostPhase.DONE


def test_a_lost_host_is_given_up_only_when_nothing_else_is_left_to_do() -> None:
    gone, other = work("h1"), work("h2")
    gone.lose("gone", 100, None)
    hosts = {"h1": gone, "h2": other}
    assert hopeless(hosts, 10_000, FAULTS) == []
    other.waiting.clear()
    assert hopeless(hosts, 399, FAULTS) == []
    assert hopeless(hosts, 400, FAULTS) == [gone]
    gone.waiting.clear()
    assert hopeless(hosts, 10_000, FAULTS) == []


def test_a_drained_host_that_is_lost_is_not_waited_for() -> None:
    gone = work()
    gone.lose("gone", 0, None)
    gone.is_drained = True
    assert not gone.is_awaited
    assert hopeless({"h1": gone}, 10_000, FAULTS) == []


@pytest.mark.parametrize("targets", ["any", "each-gpu-model"])
def test_what_waits_moves_to_a_host_that_stands_for_the_lost_one(targets: str) -> None:
    gone, spare = HostWork("h1", waiting=deque(tasks("h1", targets)), total=6), HostWork("h2")
    able = trials_of(plan(sweep(targets, rounds=3), [ready("h2").planning], "c"))
    before = [trial for planned in gone.waiting for trial in planned.task.trials]
    assert move([gone], spare, ready("h2"), able) == {"h1": 6}
    assert [trial for planned in spare.waiting for trial in planned.task.trials] == before
    assert {one.host for one in spare.waiting} == {"h2"}
    assert all(one.task.task_id.startswith("c-h2-cpu-r") for one in spare.waiting)
    assert not gone.waiting
    assert (gone.total, spare.total) == (0, 6)


def test_what_belongs_to_a_host_alone_never_moves() -> None:
    gone, spare = work("h1"), HostWork("h2")
    able = trials_of(plan(sweep(rounds=3), [ready("h2").planning], "c"))
    assert move([gone], spare, ready("h2"), able) == {}
    assert len(gone.waiting) == 3
    assert not spare.waiting


@dataclass
class Asked:
    """A question that a test answers."""

    question: object
    answer: object = None
    is_dropped: bool = False

    def reply(self) -> Any:
        return self.answer

    def drop(self) -> None:
        self.is_dropped = True


@dataclass
class Told:
    """What a host says, as a test has it."""

    items: list[LeftoverPiece] = field(default_factory=list)
    is_over: bool = False
    problem: InfrastructureError | None = None
    is_dropped: bool = False

    def take(self) -> list[LeftoverPiece]:
        taken, self.items = self.items, []
        return taken

    def drop(self) -> None:
        self.is_dropped = True


@dataclass
class Hosts:
    """Reaches nobody."""

    asked: list[Asked] = field(default_factory=list)
    streams: list[Told] = field(default_factory=list)

    def begin(self, question: object, host: str, asked: object) -> Asked:
        self.asked.append(Asked(question))
        return self.asked[-1]

    def stream(self, question: object, host: str, asked: object) -> Told:
        assert question is recover
        self.streams.append(Told())
        return self.streams[-1]


@dataclass
class Intake:
    """Takes what comes, and is settled when a test says so."""

    pieces: list[LeftoverPiece] = field(default_factory=list)
    is_settled: bool = True

    def take(self, piece: LeftoverPiece) -> None:
        self.pieces.append(piece)

    def acknowledgements(self) -> list[Acknowledgement]:
        return [Acknowledgement(piece.directory, 1, Disposal.REMOVE) for piece in self.pieces]


PIECE = LeftoverPiece(Path("/task"), LeftoverPart.END)


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture
def intake() -> Intake:
    return Intake()


@pytest.fixture
def back(hosts: Hosts, intake: Intake) -> Recovery:
    leftovers = Leftovers("h1", Path("/nowhere"), "store")
    returned = Returned(leftovers, "c", (), frozenset(), ())
    return Recovery(hosts, "h1", lambda: returned, lambda: intake)  # type: ignore[arg-type, return-value]


def test_a_host_that_answers_is_made_fit_and_what_it_has_is_stored_before_it_takes_tasks(
    hosts: Hosts, back: Recovery, intake: Intake
) -> None:
    assert back.look(0) is None
    assert [asked.question for asked in hosts.asked] == [is_there]
    hosts.asked[0].answer = "h1"
    assert back.look(1) is None
    assert back.is_under_way
    hosts.streams[0].items.append(PIECE)
    assert back.look(2, may_take=False) is None
    assert intake.pieces == []
    assert back.look(2) is None
    assert intake.pieces == [PIECE]
    hosts.streams[0].is_over, intake.is_settled = True, False
    assert back.look(3) is None
    intake.is_settled = True
    assert back.look(4) == [Acknowledgement(Path("/task"), 1, Disposal.REMOVE)]


def test_a_host_that_does_not_answer_is_asked_again_and_again(hosts: Hosts, back: Recovery) -> None:
    now = 0.0
    for count in range(1, 5):
        back.look(now)
        assert len(hosts.asked) == count
        back.look(now + PING_S)
        assert not hosts.asked[-1].is_dropped
        back.look(now + PING_S + 0.1)
        assert hosts.asked[-1].is_dropped
        back.look(now + PING_S + 0.2)
        assert len(hosts.asked) == count, "it waits before it asks again"
        now += PING_S + PAUSE_S + 1


def test_a_host_that_cannot_be_asked_is_asked_again_after_a_pause(hosts: Hosts, back: Recovery) -> None:
    back.look(0)
    hosts.asked[0].answer = InfrastructureError("the node died")
    back.look(1)
    back.look(1 + PAUSE_S - 0.1)
    assert len(hosts.asked) == 1
    back.look(1 + PAUSE_S)
    assert len(hosts.asked) == 2


def test_a_host_that_answers_and_cannot_be_made_fit_says_why_and_is_tried_again(hosts: Hosts, back: Recovery) -> None:
    back.look(0)
    hosts.asked[0].answer = "h1"
    back.look(0)
    hosts.streams[0].problem, hosts.streams[0].is_over = InfrastructureError("the engine is down"), True
    assert back.look(1) is None
    assert back.problem == "the engine is down"
    assert not back.is_under_way
    back.look(1 + PAUSE_S)
    hosts.asked[1].answer = "h1"
    back.look(2 + PAUSE_S)
    back.look(2 + PAUSE_S + RECOVERY_S + 0.1)
    assert hosts.streams[1].is_dropped
    assert back.problem is not None
    assert "it answers" in back.problem


def test_dropping_takes_back_what_was_asked(hosts: Hosts, back: Recovery) -> None:
    back.look(0)
    back.drop()
    assert hosts.asked[0].is_dropped


def test_a_stuck_process_is_killed_even_if_it_is_frozen() -> None:
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


def test_nobody_kills_himself() -> None:
    assert this_worker().pid == os.getpid()
    assert not end_worker(this_worker())


def test_waiting_for_nothing_takes_no_time(hosts: Hosts, back: Recovery) -> None:
    begun = time.monotonic()
    for number in range(1000):
        back.look(number / 1000)
    assert time.monotonic() - begun < 5
