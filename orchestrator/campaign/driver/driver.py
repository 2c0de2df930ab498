"""Drives a campaign: starts what can start, hears what happens, and goes on without the hosts that are lost."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.campaign.control import (
    CampaignPhase,
    CampaignProgressState,
    ControlFiles,
    HostProgress,
    RequestKind,
)
from orchestrator.campaign.driver.host_work import HostWork, hopeless, move, silent, slots_on
from orchestrator.campaign.driver.leftovers import MAX_WAITING_BYTES, LeftoverIntake, ListeningClock, Recovery
from orchestrator.campaign.driver.task_tracker import RunningTask, TaskTracker, restarted
from orchestrator.campaign.progress import StageClock, trial_text
from orchestrator.config import Faults, Sweep
from orchestrator.planning import PlannedTask, plan
from orchestrator.scheduling import Returned, Scheduler, TaskEnded, TaskEvent, WorkerProcess
from orchestrator.store import Stage
from orchestrator.store.ingest import NO_ROOM
from runners.statistics.allocation import goes_on

LOOK_S: Final = 0.5
"""Between two looks at who is silent, who is back and what was asked."""

PAUSE_S: Final = 0.1
"""Where nothing comes, and hosts or the disk are waited for."""

PUBLISH_S: Final = 1.0
"""Between two accounts, if no host's phase changes: a sign of life, and no more writing than that."""


@dataclass
class Driver:
    """Runs the tasks of a campaign until nothing is left that could run."""

    works: dict[str, HostWork]
    """What is to be done on each host that has something to do, by name; those that are offered are added."""
    scheduler: Scheduler
    tracker: TaskTracker
    """Knows all hosts of the campaign, and has what stores the rows."""
    control: ControlFiles
    state: CampaignProgressState
    """How the campaign is, as it was published last."""
    faults: Faults
    sweep: Sweep | None
    """What is measured; null where no host can take the place of another."""
    absent: Mapping[str, str]
    """Hosts that were made ready and are not there now, and why: lost from the start, until they answer."""
    recall: Callable[[PlannedTask], PlannedTask]
    """Tells a task with a budget what the store knows by now."""
    stages: StageClock = field(default_factory=StageClock)
    clock: Callable[[], float] = time.monotonic
    _listening: ListeningClock = field(init=False)
    _looking: ListeningClock = field(init=False)
    """Measures how long hosts are awaited: while this driver is stopped, nobody can come back."""
    _looked_s: float = field(default=float("-inf"), init=False)
    _published_s: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self._listening, self._looking = ListeningClock(self.clock), ListeningClock(self.clock)
        self._ingest, self._requests = self.tracker.ingest, self.tracker.requests

    def run(self) -> None:
        """Runs everything. A host that is lost for good leaves its trials with rows that say so; a drained one none.

        Raises:
            KeyboardInterrupt: also if somebody asked from elsewhere for the campaign's end.
            StoreError: nothing can be stored any more.
        """
        try:
            self._run()
        finally:
            self._publish(CampaignPhase.ENDED)

    def _run(self) -> None:
        for name, why in self.absent.items():
            self._lose(self.works[name], why)
        while True:
            if self._ingest.failure is not None:
                raise self._ingest.failure
            self._end_settled()
            self._look()
            self._submit()
            self._publish()
            running = [task for host in self.works.values() for task in host.running.values()]
            self.stages.enter(Stage.RUNNING if running else Stage.WAITING)
            if running and (self._ingest.waiting_bytes > MAX_WAITING_BYTES or all(task.ended for task in running)):
                # Nothing is taken meanwhile: hosts keep what they record, and nobody is called silent for it.
                self._ingest.answered.wait(PAUSE_S)
                self._ingest.answered.clear()
                self._listening.skip()
            elif running:
                events = self.scheduler.take()
                self._listening.tick()
                for event in events:
                    self._take(event)
            elif any(host.has_more or host.is_awaited for host in self.works.values()):
                time.sleep(PAUSE_S)
            else:
                break
        for host in self.works.values():
            if host.loss is not None and host.loss.recovery is not None:
                host.loss.recovery.drop()
            left = sum(len(self.tracker.open_trials(planned.task)) for planned in host.waiting)
            if left:
                self.tracker.notice(f"{left} trials of {host.name} are left: it was drained; a resume goes on")

    def _submit(self) -> None:
        for host in self.works.values():
            while (planned := host.next_task()) is not None:
                self._start(host, planned)

    def _start(self, host: HostWork, planned: PlannedTask) -> None:
        trials, planned = self.tracker.open_trials(planned.task), self.recall(planned)
        if not trials and not goes_on(planned.task):
            return  # all their rows came late, from a host that was lost
        if len(trials) < len(planned.task.trials):
            planned = replace(planned, task=restarted(planned.task, trials))
        running = self.tracker.begin(planned, self._listening.now_s)
        host.running[planned.task.task_id] = running
        acknowledged, host.acknowledgements = tuple(host.acknowledgements), []
        self.scheduler.submit(self._requests.of(planned, running.intake.directory, running.origin, acknowledged))

    def _take(self, event: TaskEvent) -> None:
        running = self.works[event.host].running[event.task_id]
        running.heard_s = self._listening.now_s
        if isinstance(event, TaskEnded):
            running.ended = event
            self._ingest.hurry()
        else:
            self.tracker.take(running, event)

    def _end_settled(self) -> None:
        """Ends the tasks of which nothing more comes and every row is on the disk; tells of the rows of the others."""
        for host in self.works.values():
            for task_id, running in list(host.running.items()):
                self.tracker.confirm(running)
                if running.ended is not None and running.intake.is_settled:
                    del host.running[task_id]
                    self._ended(host, running, running.ended)

    def _ended(self, host: HostWork, running: RunningTask, ended: TaskEnded) -> None:
        left, problem, acknowledgement = self.tracker.end(running, ended)
        if acknowledgement is not None:
            host.acknowledgements.append(acknowledgement)
        if left or self.tracker.starts_again(running, problem):
            host.waiting.appendleft(replace(running.planned, task=restarted(running.planned.task, left)))
        if problem is not None:
            self._lose(host, problem, running.stuck)

    def _lose(self, host: HostWork, problem: str, stuck: WorkerProcess | None = None) -> None:
        if host.lose(problem, self._looking.now_s, stuck):
            waits = "its trials wait until it is back" if host.waiting else "nothing is left for it"
            self.tracker.notice(f"{host.name} is lost: {problem}; {waits}")
            self._looked_s = float("-inf")

    def _look(self) -> None:
        """Looks around, but not at every line that a trial writes."""
        now_s = self.clock()
        self._looking.tick()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._hear_requests()
            self._take_offers()
            self._lose_silent()
            self._take_up_returned(now_s)
            self._move()
            self._give_up()

    def _hear_requests(self) -> None:
        for request in self.control.take_requests():
            if request.kind is RequestKind.STOP:
                self.tracker.notice("the campaign is stopped, as was asked; what is recorded stays")
                self._publish(CampaignPhase.STOPPING)
                raise KeyboardInterrupt
            for name in request.hosts or tuple(self.works):
                if name not in self.works:
                    self.tracker.notice(f"{name} was to be drained, but takes no part in this campaign")
                elif not self.works[name].is_drained:
                    self.works[name].is_drained = True
                    self.tracker.notice(f"{name} is drained, as was asked: it takes no further task")

    def _take_offers(self) -> None:
        for ready in self.control.take_offers():
            name = ready.planning.name
            is_drained = all(host.is_drained for host in self.works.values())
            if name in self.works or self.sweep is None or is_drained:
                self.tracker.notice(f"{name} was offered, and is not needed")
                continue
            self._requests.hosts[name] = ready
            alone = plan(self.sweep, [ready.planning], self._requests.campaign_id)
            # An id holds the place of its host, so it is shared only by hosts that stand for each other.
            able = frozenset(trial.trial_id for planned in alone.tasks for trial in planned.task.trials)
            new = self.works[name] = HostWork(name, slots_on(ready, alone.tasks), able=able)
            # It has to answer first, as one that was lost has.
            new.lose("it has not answered yet", self._looking.now_s, None)
            self.tracker.notice(f"{name} was offered in the place of a host that is lost")

    def _lose_silent(self) -> None:
        for host in self.works.values():
            for task_id, why in silent(host, self._listening.now_s, self.faults).items():
                self.scheduler.cancel(task_id)
                running = host.running[task_id]
                running.ended, running.stuck = TaskEnded(host.name, task_id, None, why, None), running.worker
                self._ingest.hurry()
        self._end_settled()

    def _take_up_returned(self, now_s: float) -> None:
        for host in self.works.values():
            loss = host.loss
            if loss is None or host.given_up is not None:
                continue
            loss.recovery = loss.recovery or self._recovery(host)
            may_take = self._ingest.waiting_bytes <= MAX_WAITING_BYTES
            acknowledgements = loss.recovery.look(now_s, may_take=may_take)
            loss.reason = loss.recovery.problem or loss.reason
            if acknowledgements is not None:
                host.loss = None
                host.acknowledgements += acknowledgements
                self.tracker.notice(f"{host.name} answers, and takes tasks")

    def _recovery(self, host: HostWork) -> Recovery:
        def returned() -> Returned:
            workers = () if host.loss is None else tuple(host.loss.workers)
            # Of all: the tasks of hosts without an engine have their directories on this machine, side by side.
            in_use = {task.intake.directory.name for work in self.works.values() for task in work.running.values()}
            acknowledged = tuple(host.acknowledgements)
            return self._requests.returned(host.name, frozenset(host.running), frozenset(in_use), workers, acknowledged)

        def intake() -> LeftoverIntake:
            return LeftoverIntake(self._ingest, lambda text: self.tracker.notice(f"{host.name}: {text}"))

        return Recovery(self.scheduler, host.name, returned, intake)

    def _move(self) -> None:
        for target in self.works.values():
            if target.able and target.can_start and not target.waiting and not target.running:
                sources = [host for host in self.works.values() if not host.can_start and host is not target]
                slots = self._requests.hosts[target.name].planning.slots
                for source, count in move(sources, target, slots).items():
                    self.tracker.notice(f"{target.name} takes {count} trials of {source}")

    def _give_up(self) -> None:
        for host in hopeless(self.works, self._looking.now_s, self.faults):
            assert host.loss is not None
            recovery = host.loss.recovery
            if recovery is not None:
                if recovery.is_under_way:
                    continue
                recovery.drop()
            host.given_up = f"it did not come back within {self.faults.return_s} s: {host.loss.reason}"
            self.tracker.notice(f"{host.name} is given up: {host.given_up}")
            while host.waiting:
                self.tracker.give_up(host.waiting.popleft(), f"{host.name} was lost; {host.given_up}")

    def _publish(self, phase: CampaignPhase | None = None) -> None:
        """Says how the campaign is, if it is time for that or something has changed.

        Args:
            phase: of the campaign; by default it runs or is drained, as its hosts say.
        """
        has_changed = [host for host in self.works.values() if host.note_phase()] or phase is not None
        if not has_changed and self.clock() - self._published_s < PUBLISH_S:
            return
        self._published_s = self.clock()
        hosts = tuple(self._progress(host) for host in self.works.values())
        is_drained = bool(hosts) and all(host.is_drained for host in self.works.values())
        self.state = replace(
            self.state,
            beat_at_ns=time.time_ns(),
            phase=phase or (CampaignPhase.DRAINING if is_drained else CampaignPhase.RUNNING),
            hosts=hosts,
            done=sum(host.done for host in hosts),
            left=sum(host.left for host in hosts),
            failed=sum(host.failed for host in hosts),
        )
        try:
            self.control.publish(self.state)
        except OSError as error:
            # The store tells of a full disk, and waits for room; then there is room for this, too.
            if error.errno not in NO_ROOM:
                raise

    def _progress(self, host: HostWork) -> HostProgress:
        first = next(iter(host.running.values()), None)
        trial = None if first is None else first.intake.current
        # What waits is not looked up trial by trial: of a row that came late, its task knows when it starts.
        left = sum(len(planned.task.trials) for planned in host.waiting)
        left += sum(task.intake.open for task in host.running.values())
        return HostProgress(
            host.name,
            host.phase,
            host.since_ns,
            host.reason,
            None if first is None else first.planned.task.task_id,
            None if trial is None else trial_text(trial),
            host.total - left,
            left,
            self.tracker.failed[host.name],
        )
