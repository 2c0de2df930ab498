"""What each host of a running campaign has to do, and how it is. Asks nobody."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.campaign.control import HostPhase
from orchestrator.campaign.driver.leftovers import Recovery
from orchestrator.campaign.driver.task_tracker import RunningTask, restarted
from orchestrator.campaign.provision import ReadyHost
from orchestrator.config import Faults
from orchestrator.planning import PlannedTask, Slot, slot_of, slots_at_once
from orchestrator.scheduling import Acknowledgement, WorkerProcess


@dataclass
class Loss:
    """A host does not answer, or something of it failed a task."""

    reason: str
    since_s: float
    """By a clock that counts only while the driver looks for it."""
    workers: list[WorkerProcess] = field(default_factory=list)
    """What ran tasks that nothing was heard of any more, and may be stuck in them still."""
    recovery: Recovery | None = None
    """Its way back; null until somebody has looked for it."""


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
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    """What the host is to be told with its next task."""
    loss: Loss | None = None
    is_drained: bool = False
    given_up: str | None = None
    """Why nothing runs there any more."""
    total: int = 0
    """Trials that this host has, those that were in the store before included."""
    able: frozenset[str] = frozenset()
    """Of a host that was offered in the place of others: ids of the trials that it can take."""
    since_ns: int = 0
    """When its phase began, in nanoseconds since 1970, as far as `note_phase` has seen."""
    _noted: tuple[HostPhase, str | None] | None = None

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
        busy = {self.slot_of(task.planned) for task in self.running.values()}
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
        elif self.loss.recovery is not None:
            # What is being done there was asked for before this was known: it begins anew.
            self.loss.recovery.drop()
            self.loss.recovery = None
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

    def note_phase(self) -> bool:
        """Notes since when it is in its phase; says whether phase or reason are new."""
        now = self.phase, self.reason
        if self._noted == now:
            return False
        if self._noted is None or self._noted[0] is not now[0]:
            self.since_ns = time.time_ns()
        self._noted = now
        return True


def silent(host: HostWork, now_s: float, faults: Faults) -> dict[str, str]:
    """The tasks of a host that must be taken as lost, whatever Ray says, and why.

    Args:
        host: whose tasks.
        now_s: by the clock that counts only while the driver listens.
        faults: how long hosts are waited for.
    """
    lost = {}
    for task_id, task in host.running.items():
        limit_s = faults.silence_s if task.has_begun else faults.queue_s
        why = "no sign of life for" if task.has_begun else "the task did not begin within"
        if task.ended is None and now_s - task.heard_s > limit_s:
            lost[task_id] = f"{why} {limit_s} s"
    return lost


def hopeless(hosts: Mapping[str, HostWork], now_s: float, faults: Faults) -> list[HostWork]:
    """The hosts that have been waited for long enough, now that nothing else is left to do."""
    if any(host.has_more for host in hosts.values()):
        return []
    awaited = [host for host in hosts.values() if host.is_awaited]
    return [host for host in awaited if host.loss is not None and now_s - host.loss.since_s >= faults.return_s]


def slots_on(host: ReadyHost, tasks: Iterable[PlannedTask]) -> int:
    """How many of its tasks run at once on a host."""
    slots = host.planning.slots
    return slots_at_once(slots, [planned.task for planned in tasks]) if slots else 1


def move(sources: Iterable[HostWork], target: HostWork, slots: Sequence[Slot]) -> dict[str, int]:
    """Moves waiting trials to a host that was offered and can take them.

    Args:
        sources: hosts that start nothing now.
        target: where the trials go to.
        slots: of the same host.

    Returns:
        By source, how many trials were moved.
    """
    moved: dict[str, int] = {}
    for source in sources:
        waiting = list(source.waiting)
        source.waiting.clear()
        for planned in waiting:
            task = planned.task
            going = tuple(trial for trial in task.trials if trial.trial_id in target.able)
            staying = tuple(trial for trial in task.trials if trial.trial_id not in target.able)
            if going:
                origin = f"{task.campaign_id}-{target.name}-{task.environment}-r{going[0].round}"
                new = restarted(task, going, origin)
                target.waiting.append(PlannedTask(target.name, new, slot_of(slots, new).index if slots else 0))
                moved[source.name] = moved.get(source.name, 0) + len(going)
            if staying or not going:
                source.waiting.append(replace(planned, task=restarted(task, staying)) if going else planned)
        source.total -= moved.get(source.name, 0)
        target.total += moved.get(source.name, 0)
    return moved
