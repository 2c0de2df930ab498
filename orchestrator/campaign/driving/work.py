"""What each host of a running campaign has to do, and how it is. Knows no clock and asks nobody."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.campaign.control import HostPhase
from orchestrator.config.inventory import Faults
from orchestrator.delivery import Heard
from orchestrator.planning import PlannedTask
from orchestrator.scheduling import WorkerProcess

FAREWELL_S = 60.0
"""A task whose host has come to its end is heard of by then, or Ray has lost what it said."""


@dataclass
class RunningTask:
    """A task that was submitted and has not ended."""

    planned: PlannedTask
    submitted_s: float
    """By the driver's monotonic clock, as all times here."""
    started_s: float | None = None
    worker: WorkerProcess | None = None


@dataclass
class Loss:
    """A host does not answer, or something of it failed a task."""

    reason: str
    since_s: float
    workers: list[WorkerProcess] = field(default_factory=list)
    """What ran tasks that nothing was heard of any more, and may be stuck in them still."""


@dataclass
class HostWork:
    """One host."""

    name: str
    slots: int = 1
    """How many tasks run there at once."""
    waiting: deque[PlannedTask] = field(default_factory=deque)
    """In their order."""
    running: dict[str, RunningTask] = field(default_factory=dict)
    """By task id."""
    loss: Loss | None = None
    is_drained: bool = False
    given_up: str | None = None
    """Why nothing runs there any more."""
    total: int = 0
    """Trials that this host has, those that were in the store before included."""

    @property
    def can_start(self) -> bool:
        """Whether it takes tasks, if it had any."""
        return self.loss is None and self.given_up is None and not self.is_drained

    @property
    def has_more(self) -> bool:
        """Whether something of it goes on, or could."""
        return bool(self.running) or (self.can_start and bool(self.waiting))

    @property
    def is_awaited(self) -> bool:
        """Whether the campaign waits for it to come back."""
        return self.loss is not None and bool(self.waiting) and not self.is_drained and self.given_up is None

    def next_task(self) -> PlannedTask | None:
        """Takes the first that can start now out of what waits; null if none can."""
        busy = {self.slot_of(one.planned) for one in self.running.values()}
        if not self.can_start or len(busy) >= self.slots:
            return None
        for planned in self.waiting:
            if self.slot_of(planned) not in busy:
                self.waiting.remove(planned)
                return planned
        return None

    def slot_of(self, planned: PlannedTask) -> int:
        """Where a task runs: hosts that run one at a time have one place for all."""
        return planned.slot if self.slots > 1 else 0

    def lose(self, reason: str, now_s: float, stuck: WorkerProcess | None) -> bool:
        """Notes that a task was lost here, and what may be stuck in it; false if the host was lost already."""
        is_news = self.loss is None
        if self.loss is None:
            self.loss = Loss(reason, now_s)
        if stuck is not None:
            self.loss.workers.append(stuck)
        return is_news

    @property
    def phase(self) -> HostPhase:
        """How it is, in a word."""
        if self.given_up is not None:
            return HostPhase.GIVEN_UP
        if self.loss is not None and (self.waiting or self.running):
            return HostPhase.LOST
        if self.running:
            return HostPhase.DRAINED if self.is_drained else HostPhase.RUNNING
        if not self.waiting:
            return HostPhase.DONE
        return HostPhase.DRAINED if self.is_drained else HostPhase.READY

    @property
    def reason(self) -> str | None:
        """Why it is in its phase, where that is not plain."""
        if self.phase is HostPhase.DRAINED:
            return "asked for"
        return self.given_up or (self.loss.reason if self.loss is not None else None)


def silent(host: HostWork, heard: Heard, faults: Faults) -> dict[str, str]:
    """The tasks of a host that must be taken as lost, whatever Ray says, and why.

    What the driver could not hear because it was stopped itself counts for nobody.
    """
    lost = {}
    for task_id, task in host.running.items():
        beat = heard.beats.get(task_id)
        if beat is None and task.started_s is None:
            last_s, limit_s = task.submitted_s, float(faults.queue_s)
            why = f"the task did not begin within {faults.queue_s} s"
        elif beat is not None and beat.is_over:
            last_s, limit_s = beat.at_s, max(FAREWELL_S, faults.silence_s)
            why = f"how the task ended was not heard within {limit_s:.0f} s"
        else:
            signs = [beat.at_s if beat is not None else None, task.started_s]
            last_s, limit_s = max(at_s for at_s in signs if at_s is not None), float(faults.silence_s)
            why = f"no sign of life for {faults.silence_s} s"
        if heard.until_s - max(last_s, heard.since_s) > limit_s:
            lost[task_id] = why
    return lost


def hopeless(hosts: Mapping[str, HostWork], now_s: float, faults: Faults) -> list[HostWork]:
    """The hosts that have been waited for long enough, now that nothing else is left to do."""
    if any(host.has_more for host in hosts.values()):
        return []
    awaited = [host for host in hosts.values() if host.is_awaited]
    return [host for host in awaited if host.loss is not None and now_s - host.loss.since_s >= faults.return_s]
