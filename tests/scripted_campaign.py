"""What tests of a driver run campaigns with: a scripted scheduler, whose hosts freeze or are away, and a real store."""

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign import CampaignRequest, Notice, ReadyHost, TrialRecorded, choose_campaign
from orchestrator.campaign.control import ControlFiles
from orchestrator.campaign.driver import driver, leftovers
from orchestrator.campaign.driver.campaign_run import opening_row, run_campaign
from orchestrator.campaign.progress import CampaignProgress
from orchestrator.campaign.resume import ResumeDecision, ResumePolicy
from orchestrator.config import Faults, Sweep
from orchestrator.execution import ExecutionSettings, FakeSettings
from orchestrator.files import ProjectFiles
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.scheduling import (
    HostObserved,
    RecordPiece,
    SchedulingHost,
    TaskEvent,
    TaskRequest,
    host_task,
    is_there,
    recover,
    run_on_host,
)
from orchestrator.store import Store
from orchestrator.store.origin import RowContext
from orchestrator.store.rows import trial_row
from runners.contract import Begin, Status, TrialRecord, encode_line
from runners.system import collect
from tests.local_scheduler import LocalScheduler

PIN = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "0" * 64)
FAULTS = Faults.model_construct(silence_s=1, return_s=2, queue_s=10)
PATIENT = Faults.model_construct(silence_s=1, return_s=60, queue_s=60)
"""Nobody who comes back is given up, however busy this machine is."""
BOUND_S = 30.0
"""Generous: nothing here waits for longer than a few seconds."""


def ready(name: str, work_directory: Path | None = None, settings: ExecutionSettings | None = None) -> ReadyHost:
    place = None if work_directory is None else str(work_directory)
    planning = PlanningHost(name, {}, (0, 1), {"cpu": PIN})
    return ReadyHost(planning, {"cpu": settings or FakeSettings()}, work_directory=place)


def sweep(
    targets: object = "each-host", rounds: int = 2, workloads: Sequence[str] = ("synthetic-null",),
    backends: Sequence[str] = ("python",), **settings: Any,
) -> Sweep:  # fmt: skip
    """Two trials of each workload and backend in each round; backend `eager` cannot run them, so that it is skipped."""
    shaped = tuple({"name": name, "batch": (1, 2)} for name in workloads)
    usual = {"version": 1, "name": "s", "environments": "cpu", "workloads": shaped, "backends": tuple(backends)}
    return Sweep.model_validate({**usual, "rounds": rounds, "targets": targets, **settings})


@dataclass
class Unanswered:
    """A question to a host that is not there."""

    is_over = False
    problem = None

    def take(self) -> list[Any]:
        return []

    def drop(self) -> None:
        pass


class Kept(LocalScheduler):
    """Remembers what was submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[TaskRequest] = []

    def submit(self, request: TaskRequest) -> None:
        self.submitted.append(request)
        super().submit(request)


class Frozen(Kept):
    """Hosts in this process, of which some freeze: their tasks say how they began, and then nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen: set[str] = set()
        self.absent: dict[str, str] = {}
        """Hosts without a node as the campaign starts, and why."""
        self.absent_until: Callable[[], bool] = lambda: True
        """When a frozen host answers again."""
        self.on_tick: Callable[[], object] = lambda: None
        self.cancelled: list[str] = []
        self.asked: list[str] = []
        """Hosts that were asked something, and waited for."""
        self._hanging: deque[TaskRequest] = deque()

    def start(self, hosts: Sequence[SchedulingHost]) -> Mapping[str, str]:
        self.frozen |= self.absent.keys()
        return {**super().start(hosts), **self.absent}

    def stream(self, question: Any, host: str, asked: Any) -> Any:
        if question is is_there:
            if host in self.frozen and not self.absent_until():
                return Unanswered()
            self.frozen.discard(host)
        elif question is not recover:
            self.asked.append(host)
        return super().stream(question, host, asked)

    def cancel(self, task_id: str) -> None:
        self.cancelled.append(task_id)
        self._hanging = deque(request for request in self._hanging if request.task.task_id != task_id)

    def events(self) -> Generator[TaskEvent | None, None, None]:
        while self._queue or self._hanging:
            if not self._queue:
                time.sleep(0.02)
                self.on_tick()
                yield None
                continue
            request = self._queue.popleft()
            if request.host in self.frozen:
                yield from self._beginning(request)
                self._hanging.append(request)
            else:
                yield from run_on_host(request)

    def _beginning(self, request: TaskRequest) -> Generator[TaskEvent, None, None]:
        task_id, first = request.task.task_id, request.task.trials[0]
        yield HostObserved(request.host, task_id, collect())
        begin = Begin(trial_id=first.trial_id, attempt=first.attempt, started_at_ns=time.time_ns())
        yield RecordPiece(request.host, task_id, 0, 0, encode_line(begin))


class Lab:
    """A project directory with its store, in which campaigns run that look for lost hosts often."""

    def __init__(self, directory: Path, results: Path | None = None) -> None:
        self.files = ProjectFiles(directory)
        self.control = ControlFiles(self.files.control)
        self.store = Store.open(results or directory / "results")
        self.told: list[CampaignProgress] = []

    def run(
        self, wanted: Sweep, scheduler: LocalScheduler, hosts: list[ReadyHost],
        observe: Callable[[CampaignProgress], None] = lambda progress: None, faults: Faults = FAULTS,
        policy: ResumePolicy = ResumePolicy.AUTO, more_s: float | None = None,
    ) -> str:  # fmt: skip
        chosen = choose_campaign(wanted, [host.planning for host in hosts], self.store, policy, more_s=more_s)
        order = CampaignRequest(chosen, hosts, wanted.name, "sweep", "inventory", None, faults=faults, sweep=wanted)
        self.told.clear()

        def both(progress: CampaignProgress) -> None:
            self.told.append(progress)
            observe(progress)

        with pytest.MonkeyPatch.context() as hasty:
            hasty.setattr(leftovers, "PING_S", 0.3)
            hasty.setattr(leftovers, "PAUSE_S", 0.1)
            hasty.setattr(driver, "LOOK_S", 0.0)
            hasty.setattr(driver, "PUBLISH_S", 0.05)
            # far below the second after which FAULTS take a host for lost, so that one that is well never is
            hasty.setattr(host_task, "TICK_S", 0.1)
            hasty.setattr(leftovers, "BREAK_S", 0.5)
            run_campaign(order, scheduler, self.store, self.files, both)
        return chosen.campaign_id

    def rows(self) -> list[tuple[str, str, int]]:
        rows = self.store.trials(["host", "status", "attempt"]).to_pylist()
        return sorted((row["host"], row["status"], row["attempt"]) for row in rows if row["status"] != "skipped")

    def notices(self) -> str:
        return "\n".join(progress.text for progress in self.told if isinstance(progress, Notice))

    def recorded(self) -> list[TrialRecorded]:
        return [progress for progress in self.told if isinstance(progress, TrialRecorded)]


STORED = replace(PIN, lock_sha256="lock")


class Stored:
    """A store of campaigns that end where a test says, without any that ran."""

    def __init__(self, directory: Path) -> None:
        self.store = Store.open(directory)

    def begin(
        self, wanted: Sweep, *hosts: PlanningHost, document: str = "sweep", inventory: str = "inventory"
    ) -> ResumeDecision:
        chosen = choose_campaign(wanted, hosts, self.store, ResumePolicy.NEVER)
        ready = [ReadyHost(host, {}) for host in hosts]
        order = CampaignRequest(chosen, ready, wanted.name, document, inventory, "c0ffee")
        with self.store.writer() as writer:
            writer.put_campaign(opening_row(order))
        return chosen

    def measure(
        self, chosen: ResumeDecision, hosts: Mapping[str, int | None], status: Status = Status.OK, pin: EnvironmentPin = STORED,
    ) -> None:  # fmt: skip
        """Gives rows to so many of the trials that are left on each host; to all where the number is null."""
        with self.store.writer() as writer:
            for host, number in hosts.items():
                trials = [t for planned in chosen.left.tasks if planned.host == host for t in planned.task.trials]
                context = RowContext(
                    chosen.campaign_id, "cpu", "t", host, pin.isolation.value, "", "e", pin.image_digest,
                    pin.image_id, pin.lock_sha256, "code",
                )  # fmt: skip
                for trial in trials[:number]:
                    record = TrialRecord(trial.trial_id, trial.attempt, status, "r", 1, 2)
                    writer.append([trial_row(context, trial, record)])
