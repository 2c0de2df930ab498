"""The stages of a campaign: what waits is stored, the cluster is there, the tasks run, the hosts are cleared."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from orchestrator.campaign.control import CampaignPhase, ControlFiles
from orchestrator.campaign.driving.driver import Driver
from orchestrator.campaign.driving.host_work import HostWork, slots_on
from orchestrator.campaign.driving.recovery import store_leftovers, store_leftovers_here
from orchestrator.campaign.driving.requests import Requests
from orchestrator.campaign.driving.status import About, Publisher, totals
from orchestrator.campaign.driving.task_tracker import Origins, TaskTracker, restarted
from orchestrator.campaign.files import CACHE, ProjectFiles, other_campaigns
from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.progress import CampaignPlanned, Observer
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.resuming.resume import unfinished
from orchestrator.errors import InfrastructureError
from orchestrator.execution import keep_code
from orchestrator.hosts import fingerprint_here
from orchestrator.planning import Plan, PlannedTask
from orchestrator.scheduling import Leftovers, Scheduler, SchedulingHost, acknowledge, remove_directories
from orchestrator.store import Ingest, Store
from orchestrator.store.storage.snapshot import store_id

ANSWER_S = 60.0
"""A host that is up does in seconds what it is asked here."""

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

CODE_HAS_CHANGED = (
    "runners/ has changed since this campaign began; it goes on with the code that it began with "
    "(--resume never starts a new campaign with the new code)"
)


class CampaignRun:
    """Runs what is left of one campaign, with a store that is open for writing."""

    def __init__(
        self,
        order: CampaignOrder,
        scheduler: Scheduler,
        ingest: Ingest,
        store: Store,
        files: ProjectFiles,
        observe: Observer,
        place: str,
    ) -> None:
        """Runs nothing yet. The arguments are those of `run_campaign`, and what writes the store."""
        self._order = order
        self._continuation = order.continuation
        self._campaign_id = order.continuation.campaign_id
        self._hosts = {host.planning.name: host for host in order.hosts}
        self._tracker = TaskTracker(
            self._campaign_id,
            ingest,
            Origins(self._campaign_id, self._hosts, order.reproduces, fingerprint_here()),
            observe,
        )
        self._scheduler = scheduler
        self._ingest = ingest
        self._store = store
        self._files = files
        self._observe = observe
        self._place = place
        self._store_id = store_id(store.layout) or ""
        self._requests = Requests(self._campaign_id, self._hosts, files, self._store_id)
        self._is_cleared = all(host.work_directory is None for host in order.hosts)

    @property
    def is_cleared(self) -> bool:
        """Whether no host has anything of the campaign any more, and no task of it was lost whose logs should stay."""
        return self._is_cleared and not self._tracker.lost_a_task

    def all(self) -> None:
        """Runs everything that is left, and first stores what an earlier run measured and did not store."""
        left = self._left()
        served = [name for name, host in self._hosts.items() if host.work_directory is not None]
        must_ask = bool(left.tasks and served) and not self._continuation.is_new
        if not must_ask:
            self._begin(left)
        if not left.tasks:
            return
        if not keep_code(self._files.code(self._campaign_id)):
            self._tracker.notice(CODE_HAS_CHANGED)
        works: dict[str, HostWork] = {}
        try:
            busy = {planned.host for planned in left.tasks}
            absent = self._scheduler.start(
                [_scheduling_host(host, left) for name, host in self._hosts.items() if name in busy]
            )
            there = [host for host in served if host in busy and host not in absent]
            self._drop_caches(there)
            if must_ask:
                leftovers = {host: self._requests.leftovers(host) for host in there}
                store_leftovers(self._scheduler, leftovers, self._ingest, self._tracker.notice)
                left = unfinished(self._continuation.plan, self._store.attempts(self._campaign_id))
                self._begin(left)
            works |= self._works(left)
            self._drive(left, works, absent)
            self._clear(works)
        finally:
            self._scheduler.stop()
            self._end_here(works)

    def _begin(self, left: Plan) -> None:
        self._observe(CampaignPlanned(self._campaign_id, left, self._continuation.plan.trials - left.trials))
        self._tracker.record_skips(left.skips)

    def _works(self, left: Plan) -> dict[str, HostWork]:
        total = totals(self._continuation.plan)
        works = {}
        for name, host in self._hosts.items():
            tasks = [
                planned if self._continuation.is_new else _again(planned)
                for planned in left.tasks
                if planned.host == name
            ]
            if tasks or name in total:
                works[name] = HostWork(name, slots_on(host, left), deque(tasks), total=total.get(name, 0))
        return works

    def _drive(self, left: Plan, works: dict[str, HostWork], absent: Mapping[str, str]) -> None:
        control = ControlFiles(self._files.control)
        about = About(
            self._campaign_id,
            self._order.sweep_name,
            self._place,
            str(self._store.layout.root.resolve()),
            self._continuation.plan.trials - left.trials,
            left.estimate_s,
        )
        publisher = Publisher(control, about, self._tracker)
        driver = Driver(
            self._hosts,
            works,
            self._scheduler,
            self._ingest,
            self._requests,
            self._tracker,
            control,
            publisher,
            self._order.faults,
            self._order.sweep,
            absent,
        )
        try:
            driver.run()
        finally:
            publisher.publish(driver.works, CampaignPhase.ENDED)

    def _clear(self, works: Mapping[str, HostWork]) -> None:
        """Has the hosts that are there forget what is stored, and removes what `run_campaign` removes here."""
        stored = {name: tuple(work.acknowledgements) for name, work in works.items() if work.acknowledgements}
        answers = self._asked(acknowledge, {name: found for name, found in stored.items() if not works[name].loss})
        for name, problems in answers.items():
            works[name].acknowledgements = []
            for problem in problems:
                self._tracker.notice(f"{name}: {problem}")
        served = {name for name in works if self._hosts[name].work_directory is not None}
        there = {name for name in served if works[name].loss is None}
        is_kept = self._tracker.lost_a_task or there != served
        campaigns = {name: self._requests.work(name).campaign(self._campaign_id) for name in sorted(there)}
        gone = {name: [path / CACHE if is_kept else path] for name, path in campaigns.items()}
        cleared = set(self._asked(remove_directories, gone))
        self._is_cleared = not is_kept and cleared == served

    def _drop_caches(self, hosts: Sequence[str]) -> None:
        """Does on hosts what `drop_caches` does here: a campaign that was ended and never resumed left gigabytes there.

        A host may serve other projects too. Those of this project have a directory here, and a row in this store.
        """
        others = other_campaigns(self._files, keep=self._campaign_id)
        known = set(self._store.campaigns()["campaign_id"].to_pylist()) if others and hosts else set()
        ours = [campaign_id for campaign_id in others if campaign_id in known]
        campaigns = {host: self._requests.work(host) for host in hosts if ours}
        self._asked(
            remove_directories,
            {host: [work.campaign(campaign_id) / CACHE for campaign_id in ours] for host, work in campaigns.items()},
        )

    def _asked(self, question: Callable[[Asked], Answered], of: Mapping[str, Asked]) -> dict[str, Answered]:
        """What hosts answer; those that do not are named, and hold nothing up."""
        answers = {}
        for host, answer in self._scheduler.ask(question, of, ANSWER_S).items() if of else ():
            if isinstance(answer, InfrastructureError):
                self._tracker.notice(f"{host}: {answer}")
            else:
                answers[host] = answer
        return answers

    def _left(self) -> Plan:
        if self._store_leftovers_here() and not self._continuation.is_new:
            return unfinished(self._continuation.plan, self._store.attempts(self._campaign_id))
        return self._continuation.left

    def _end_here(self, works: Mapping[str, HostWork]) -> None:
        """Stores what tasks of this machine recorded after they were listened to, as an interrupted one has."""
        if self._ingest.failure is not None or self._ingest.is_full:
            return
        for name, work in works.items():
            if self._hosts[name].work_directory is None:
                acknowledge(work.acknowledgements)
        self._store_leftovers_here()

    def _store_leftovers_here(self) -> int:
        here = Leftovers("this machine", self._files.campaigns.resolve(), self._store_id)
        return store_leftovers_here([here], self._ingest, self._tracker.notice)


def _scheduling_host(host: ReadyHost, left: Plan) -> SchedulingHost:
    return SchedulingHost(host.planning.name, host.planning.labels, host.agent_cores, slots_on(host, left))


def _again(planned: PlannedTask) -> PlannedTask:
    return replace(planned, task=restarted(planned.task))
