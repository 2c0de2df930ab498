"""Drives a campaign: starts what can start, hears what happens, and goes on without the hosts that are lost."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.campaign.control import CampaignPhase, ControlFiles, RequestKind
from orchestrator.campaign.driving.host_work import (
    HostWork,
    ListeningClock,
    RunningTask,
    hopeless,
    move,
    silent,
    slots_on,
    trials_of,
)
from orchestrator.campaign.driving.recovery import MAX_WAITING_BYTES, LeftoverIntake, Recovery
from orchestrator.campaign.driving.requests import Requests
from orchestrator.campaign.driving.status import Publisher
from orchestrator.campaign.driving.task_tracker import TaskTracker, restarted
from orchestrator.campaign.provision import ReadyHost
from orchestrator.config import Faults, Sweep
from orchestrator.planning import PlannedTask, plan
from orchestrator.scheduling import Event, HostObserved, Returned, Scheduler, TaskEnded, Tick, WorkerProcess
from orchestrator.store import Ingest

LOOK_S: Final = 0.5
"""Between two looks at who is silent, who is back and what was asked."""

PAUSE_S: Final = 0.1
"""Where nothing comes, and hosts or the disk are waited for."""


@dataclass
class Driver:
    """Runs the tasks of a campaign until nothing is left that could run."""

    hosts: dict[str, ReadyHost]
    """All that the campaign knows, by name; those that are offered are added."""
    works: dict[str, HostWork]
    """What is to be done on each of those that have something to do."""
    scheduler: Scheduler
    ingest: Ingest
    """Stores the rows."""
    requests: Requests
    tracker: TaskTracker
    control: ControlFiles
    publisher: Publisher
    faults: Faults
    sweep: Sweep | None
    """What is measured; null where no host can take the place of another."""
    absent: Mapping[str, str]
    """Hosts that were made ready and are not there now, and why: lost from the start, until they answer."""
    clock: Callable[[], float] = time.monotonic
    _listening: ListeningClock = field(init=False)
    _recoveries: dict[str, Recovery] = field(default_factory=dict, init=False)
    _able: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """By host that was offered, the trials that it can take."""
    _looked_s: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self._listening = ListeningClock(self.clock)

    def run(self) -> None:
        """Runs everything. A host that is lost for good leaves its trials with rows that say so; a drained one none.

        Raises:
            KeyboardInterrupt: also if somebody asked from elsewhere for the campaign's end.
            StoreError: nothing can be stored any more.
        """
        for name, why in self.absent.items():
            self._lose(self.works[name], why)
        while True:
            self._look()
            self._submit()
            if not any(host.running for host in self.works.values()):
                if not any(host.has_more or host.is_awaited for host in self.works.values()):
                    break
                time.sleep(PAUSE_S)
                continue
            with closing(self.scheduler.events()) as events:
                for event in events:
                    self._take(event)
                    self._go_on()
                    while self.ingest.waiting_bytes > MAX_WAITING_BYTES:
                        # Nothing is taken meanwhile: hosts keep what they record, and nobody is called silent for it.
                        self._wait_for_store()
            if any(host.running for host in self.works.values()):
                self._wait_for_store()
        for recovery in self._recoveries.values():
            recovery.drop()
        self._tell_what_is_left()

    def _go_on(self) -> None:
        if self.ingest.failure is not None:
            raise self.ingest.failure
        self._end_settled()
        self._look()
        self._submit()

    def _wait_for_store(self) -> None:
        self.ingest.answered.wait(PAUSE_S)
        self.ingest.answered.clear()
        self._listening.skip()
        self._go_on()

    def _submit(self) -> None:
        for host in self.works.values():
            while (planned := host.next_task()) is not None:
                self._start(host, planned)

    def _start(self, host: HostWork, planned: PlannedTask) -> None:
        trials = self.tracker.open_trials(planned.task)
        if not trials:
            return  # all their rows came late, from a host that was lost
        if len(trials) < len(planned.task.trials):
            planned = replace(planned, task=restarted(planned.task, trials))
        directory = self.requests.directory(planned)
        origin = self.tracker.begin(planned, directory)
        host.running[planned.task.task_id] = RunningTask(planned, directory, self._listening.now_s)
        acknowledged, host.acknowledgements = tuple(host.acknowledgements), []
        self.scheduler.submit(self.requests.of(planned, host.slot_of(planned), directory, origin, acknowledged))

    def _take(self, event: Event) -> None:
        self._listening.tick()
        if isinstance(event, Tick):
            self.tracker.confirm()
            return
        running = self.works[event.host].running[event.task_id]
        running.heard_s = self._listening.now_s
        if isinstance(event, TaskEnded):
            running.ended = event
            self.ingest.hurry()
            return
        if isinstance(event, HostObserved):
            running.has_begun, running.worker = True, event.worker
        self.tracker.take(event)

    def _end_settled(self) -> None:
        """Ends the tasks of which nothing more comes and every row is on the disk."""
        for host in self.works.values():
            for task_id, running in list(host.running.items()):
                if running.ended is not None and self.tracker.is_settled(task_id):
                    self._ended(host, task_id, running.ended)

    def _ended(self, host: HostWork, task_id: str, ended: TaskEnded) -> None:
        running = host.running.pop(task_id)
        end = self.tracker.end(task_id, ended.outcome, ended.problem, ended.size)
        if end.acknowledgement is not None:
            host.acknowledgements.append(end.acknowledgement)
        if end.left:
            host.waiting.appendleft(replace(running.planned, task=restarted(running.planned.task, end.left)))
        if end.problem is not None:
            self._lose(host, end.problem, running.stuck)

    def _lose(self, host: HostWork, problem: str, stuck: WorkerProcess | None = None) -> None:
        if host.lose(problem, self.clock(), stuck):
            waits = "its trials wait until it is back" if host.waiting else "nothing is left for it"
            self.tracker.notice(f"{host.name} is lost: {problem}; {waits}")
            self._looked_s = float("-inf")

    def _look(self) -> None:
        """Looks around, but not at every line that a trial writes."""
        now_s = self.clock()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._hear_requests()
            self._take_offers()
            self._lose_silent()
            self._take_up_returned(now_s)
            self._move()
            self._give_up(now_s)
            self.publisher.publish(self.works)

    def _hear_requests(self) -> None:
        for request in self.control.take_requests():
            if request.kind is RequestKind.STOP:
                self.tracker.notice("the campaign is stopped, as was asked; what is recorded stays")
                self.publisher.publish(self.works, CampaignPhase.STOPPING)
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
            if name in self.works or self.sweep is None:
                self.tracker.notice(f"{name} was offered, and is not needed")
                continue
            self.hosts[name] = ready
            alone = plan(self.sweep, [ready.planning], self.requests.campaign_id)
            self._able[name] = trials_of(alone)
            new = self.works[name] = HostWork(name, slots_on(ready, alone))
            # It has to answer first, as one that was lost has.
            new.lose("it has not answered yet", self.clock(), None)
            self.tracker.notice(f"{name} was offered in the place of a host that is lost")

    def _lose_silent(self) -> None:
        for host in self.works.values():
            for task_id, why in silent(host, self._listening.now_s, self.faults).items():
                self.scheduler.cancel(task_id)
                running = host.running[task_id]
                running.ended, running.stuck = TaskEnded(host.name, task_id, None, why, None), running.worker
                self.ingest.hurry()
        self._end_settled()

    def _take_up_returned(self, now_s: float) -> None:
        for host in self.works.values():
            if host.loss is None or host.given_up is not None:
                continue
            recovery = self._recoveries.get(host.name)
            if recovery is None:
                recovery = self._recoveries[host.name] = self._recovery(host)
            acknowledgements = recovery.look(now_s, may_take=self.ingest.waiting_bytes <= MAX_WAITING_BYTES)
            if recovery.problem is not None:
                host.loss.reason = recovery.problem
            if acknowledgements is not None:
                del self._recoveries[host.name]
                host.loss = None
                host.acknowledgements = acknowledgements
                self.tracker.notice(f"{host.name} answers, and takes tasks")

    def _recovery(self, host: HostWork) -> Recovery:
        def returned() -> Returned:
            assert host.loss is not None
            running = {task_id: task.directory for task_id, task in host.running.items()}
            workers, acknowledged = tuple(host.loss.workers), tuple(host.acknowledgements)
            return self.requests.returned(host.name, running, workers, acknowledged)

        def intake() -> LeftoverIntake:
            return LeftoverIntake(self.ingest, lambda text: self.tracker.notice(f"{host.name}: {text}"))

        return Recovery(self.scheduler, host.name, returned, intake)

    def _move(self) -> None:
        for name, able in self._able.items():
            target = self.works[name]
            if not target.can_start or target.waiting or target.running:
                continue
            sources = [host for host in self.works.values() if not host.can_start and host is not target]
            for source, count in move(sources, target, self.hosts[name], able).items():
                self.tracker.notice(f"{name} takes {count} trials of {source}")

    def _give_up(self, now_s: float) -> None:
        for host in hopeless(self.works, now_s, self.faults):
            recovery = self._recoveries.get(host.name)
            if recovery is not None and recovery.is_under_way:
                continue
            assert host.loss is not None
            host.given_up = f"it did not come back within {self.faults.return_s} s: {host.loss.reason}"
            if recovery is not None:
                self._recoveries.pop(host.name).drop()
            self.tracker.notice(f"{host.name} is given up: {host.given_up}")
            while host.waiting:
                self.tracker.give_up(host.waiting.popleft(), f"{host.name} was lost; {host.given_up}")

    def _tell_what_is_left(self) -> None:
        for host in self.works.values():
            left = sum(len(self.tracker.open_trials(planned.task)) for planned in host.waiting)
            if left:
                self.tracker.notice(f"{left} trials of {host.name} are left: it was drained; a resume goes on")
