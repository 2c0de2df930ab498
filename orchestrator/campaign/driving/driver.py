"""Drives a campaign: starts what can start, hears what happens, and goes on without the hosts that are lost."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.campaign.control import CampaignPhase, ControlFiles, RequestKind
from orchestrator.campaign.driving.requests import Requests
from orchestrator.campaign.driving.returning import Return
from orchestrator.campaign.driving.steering import Publisher
from orchestrator.campaign.driving.substitutes import move, slots_on, trials_of
from orchestrator.campaign.driving.tasks import TaskAccounts, restarted
from orchestrator.campaign.driving.work import HostWork, RunningTask, hopeless, silent
from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.config.inventory import Faults
from orchestrator.config.sweep import Sweep
from orchestrator.delivery import Server
from orchestrator.errors import StoreError
from orchestrator.execution import TaskOutcome
from orchestrator.planning import PlannedTask, plan
from orchestrator.scheduling import Event, HostObserved, Scheduler, TaskEnded, Tick, WorkerProcess
from orchestrator.scheduling.chores import Returned

LOOK_S: Final = 0.5
"""Between two looks at who is silent, who is back and what was asked."""

PAUSE_S: Final = 0.1
"""Where nothing runs, and hosts are waited for."""


@dataclass
class Driver:
    """Runs the tasks of a campaign until nothing is left that could run."""

    hosts: dict[str, ReadyHost]
    """All that the campaign knows, by name; those that are offered are added."""
    works: dict[str, HostWork]
    """What is to be done on each of those that have something to do."""
    scheduler: Scheduler
    server: Server
    """Hears the beats of tasks."""
    requests: Requests
    accounts: TaskAccounts
    control: ControlFiles
    publisher: Publisher
    faults: Faults
    sweep: Sweep | None
    """What is measured; null where no host can take the place of another."""
    deliver_leftovers: Callable[[], object]
    """Stores what tasks of this machine could not deliver."""
    failure: Callable[[], StoreError | None]
    """Why nothing can be stored any more."""
    absent: Mapping[str, str]
    """Hosts that were made ready and are not there now, and why: lost from the start, until they answer."""
    clock: Callable[[], float] = time.monotonic
    _returns: dict[str, Return] = field(default_factory=dict, init=False)
    _able: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """By host that was offered, the trials that it can take."""
    _looked_s: float = field(default=float("-inf"), init=False)

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
            for event in self.scheduler.events():
                self._take(event)
                failure = self.failure()
                if failure is not None:
                    raise failure
                self._look()
                self._submit()
        for back in self._returns.values():
            back.drop()
        self._tell_what_is_left()

    def _submit(self) -> None:
        for host in self.works.values():
            while (planned := host.next_task()) is not None:
                self._start(host, planned)

    def _start(self, host: HostWork, planned: PlannedTask) -> None:
        trials = self.accounts.open_trials(planned.task)
        if not trials:
            return  # all their rows came late, from a host that was lost
        if len(trials) < len(planned.task.trials):
            planned = replace(planned, task=restarted(planned.task, trials))
        origin = self.accounts.begin(planned)
        task_id = planned.task.task_id
        self.server.listen_for(task_id)
        host.running[task_id] = RunningTask(planned, self.clock())
        self.scheduler.submit(self.requests.of(planned, host.slot_of(planned), origin))

    def _take(self, event: Event) -> None:
        if isinstance(event, Tick):
            return
        if isinstance(event, TaskEnded):
            if event.problem is not None:
                self.deliver_leftovers()  # of a task that could measure, but not deliver
            self._ended(self.works[event.host], event.task.task_id, event.outcome, event.problem)
            return
        if isinstance(event, HostObserved):
            running = self.works[event.host].running[event.task_id]
            running.started_s, running.worker = self.clock(), event.worker
        self.accounts.take(event)

    def _ended(
        self,
        host: HostWork,
        task_id: str,
        outcome: TaskOutcome | None,
        problem: str | None,
        stuck: WorkerProcess | None = None,
    ) -> None:
        task = host.running.pop(task_id)
        self.server.forget(task_id)
        left = self.accounts.end(task_id, outcome, problem)
        if left:
            planned = task.planned
            host.waiting.appendleft(replace(planned, task=restarted(planned.task, left)))
        if problem is not None:
            self._lose(host, problem, stuck)

    def _lose(self, host: HostWork, problem: str, stuck: WorkerProcess | None = None) -> None:
        if host.lose(problem, self.clock(), stuck):
            waits = "its trials wait until it is back" if host.waiting else "nothing is left for it"
            self.accounts.notice(f"{host.name} is lost: {problem}; {waits}")
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
                self.accounts.notice("the campaign is stopped, as was asked; what is recorded stays")
                self.publisher.publish(self.works, CampaignPhase.STOPPING)
                raise KeyboardInterrupt
            for name in request.hosts or tuple(self.works):
                if name not in self.works:
                    self.accounts.notice(f"{name} was to be drained, but takes no part in this campaign")
                elif not self.works[name].is_drained:
                    self.works[name].is_drained = True
                    self.accounts.notice(f"{name} is drained, as was asked: it takes no further task")

    def _take_offers(self) -> None:
        for ready in self.control.take_offers():
            name = ready.planning.name
            if name in self.works or self.sweep is None:
                self.accounts.notice(f"{name} was offered, and is not needed")
                continue
            self.hosts[name] = ready
            alone = plan(self.sweep, [ready.planning], self.requests.campaign_id)
            self._able[name] = trials_of(alone)
            new = self.works[name] = HostWork(name, slots_on(ready, alone))
            # It has to answer first, as one that was lost has.
            new.lose("it has not answered yet", self.clock(), None)
            self.accounts.notice(f"{name} was offered in the place of a host that is lost")

    def _lose_silent(self) -> None:
        heard = self.server.beats()
        for host in self.works.values():
            for task_id, why in silent(host, heard, self.faults).items():
                self.scheduler.cancel(task_id)
                self._ended(host, task_id, None, why, host.running[task_id].worker)

    def _take_up_returned(self, now_s: float) -> None:
        for host in self.works.values():
            if host.loss is None or host.given_up is not None:
                continue
            back = self._returns.get(host.name)
            if back is None:
                back = self._returns[host.name] = Return(self.scheduler, host.name, self._returned(host))
            told = back.look(now_s)
            if back.problem is not None:
                host.loss.reason = back.problem
            if told is not None:
                del self._returns[host.name]
                host.loss = None
                for text in told:
                    self.accounts.notice(f"{host.name}: {text}")
                self.accounts.notice(f"{host.name} answers, and takes tasks")

    def _returned(self, host: HostWork) -> Callable[[], Returned]:
        def returned() -> Returned:
            assert host.loss is not None
            return self.requests.returned(host.name, frozenset(host.running), tuple(host.loss.workers))

        return returned

    def _move(self) -> None:
        for name, able in self._able.items():
            target = self.works[name]
            if not target.can_start or target.waiting or target.running:
                continue
            sources = [one for one in self.works.values() if not one.can_start and one is not target]
            for source, count in move(sources, target, self.hosts[name], able).items():
                self.accounts.notice(f"{name} takes {count} trials of {source}")

    def _give_up(self, now_s: float) -> None:
        for host in hopeless(self.works, now_s, self.faults):
            back = self._returns.get(host.name)
            if back is not None and back.is_under_way:
                continue
            assert host.loss is not None
            host.given_up = f"it did not come back within {self.faults.return_s} s: {host.loss.reason}"
            if back is not None:
                self._returns.pop(host.name).drop()
            self.accounts.notice(f"{host.name} is given up: {host.given_up}")
            while host.waiting:
                self.accounts.give_up(host.waiting.popleft(), f"{host.name} was lost; {host.given_up}")

    def _tell_what_is_left(self) -> None:
        for host in self.works.values():
            left = sum(len(self.accounts.open_trials(one.task)) for one in host.waiting)
            if left:
                self.accounts.notice(f"{left} trials of {host.name} are left: it was drained; a resume goes on")
