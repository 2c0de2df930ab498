"""The stages of a campaign: what waits is stored, the cluster is there, the tasks run, the hosts are cleared."""

import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.campaign.control import CampaignPhase, ControlFiles
from orchestrator.campaign.driving.agents import deliver_what_waits, remove_what_is_left
from orchestrator.campaign.driving.driver import Driver
from orchestrator.campaign.driving.origins import Origins
from orchestrator.campaign.driving.requests import Requests
from orchestrator.campaign.driving.steering import About, Publisher, totals
from orchestrator.campaign.driving.substitutes import slots_on
from orchestrator.campaign.driving.tasks import TaskAccounts, restarted
from orchestrator.campaign.driving.work import HostWork
from orchestrator.campaign.files import CACHE, ProjectFiles, other_campaigns
from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.campaign.progress import CampaignPlanned, Observer
from orchestrator.campaign.resuming.resume import unfinished
from orchestrator.delivery import Committer, Server, Spool, deliver_leftovers
from orchestrator.execution import keep_code
from orchestrator.planning import Plan, PlannedTask
from orchestrator.scheduling import Scheduler, SchedulingHost
from orchestrator.store import Store
from orchestrator.store.storage.snapshot import store_id
from runners.system import collect

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
        committer: Committer,
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
        self._accounts = TaskAccounts(
            self._campaign_id,
            committer,
            Origins(self._campaign_id, self._hosts, order.reproduces, collect()),
            observe,
        )
        self._scheduler = scheduler
        self._committer = committer
        self._store = store
        self._files = files
        self._observe = observe
        self._place = place
        self._store_id = store_id(store.layout) or ""
        self._spool = Spool(files.spool(self._store_id).resolve())
        self._is_cleared = all(host.work_directory is None for host in order.hosts)

    @property
    def is_cleared(self) -> bool:
        """Whether no host has anything of the campaign any more, and no task of it was lost whose logs should stay."""
        return self._is_cleared and not self._accounts.lost_a_task

    def all(self, address: str, port: int) -> None:
        """Runs everything that is left, and first stores what an earlier run measured and could not deliver."""
        left = self._left()
        served = [name for name, host in self._hosts.items() if host.work_directory is not None]
        must_ask = bool(left.tasks and served) and not self._continuation.is_new
        if not must_ask:
            self._begin(left)
        if not left.tasks:
            return
        if not keep_code(self._files.code(self._campaign_id)):
            self._accounts.notice(CODE_HAS_CHANGED)
        token = secrets.token_bytes(32)
        with Server(self._committer, token, self._accounts.notice, address=address, port=port) as server:
            driver = (address, server.port, token)
            requests = Requests(self._campaign_id, self._hosts, self._files, self._store_id, driver)
            try:
                busy = {planned.host for planned in left.tasks}
                absent = self._scheduler.start(
                    [_scheduling_host(host, left) for name, host in self._hosts.items() if name in busy]
                )
                there = [host for host in served if host in busy and host not in absent]
                self._drop_caches(there, requests)
                if must_ask:
                    destinations = {host: requests.destination(host) for host in there}
                    deliver_what_waits(self._scheduler, destinations, self._accounts.notice)
                    left = unfinished(self._continuation.plan, self._store.attempts(self._campaign_id))
                    self._begin(left)
                works = self._works(left)
                self._drive(left, works, server, requests, absent)
                self._clear(works, requests)
            finally:
                self._scheduler.stop()
                self._deliver_leftovers(wait_for_room=False)
                self._spool.remove_if_empty()

    def _begin(self, left: Plan) -> None:
        self._observe(CampaignPlanned(self._campaign_id, left, self._continuation.plan.trials - left.trials))
        self._accounts.record_skips(left.skips)

    def _works(self, left: Plan) -> dict[str, HostWork]:
        total = totals(self._continuation.plan)
        works = {}
        for name, host in self._hosts.items():
            tasks = [one if self._continuation.is_new else _again(one) for one in left.tasks if one.host == name]
            if tasks or name in total:
                works[name] = HostWork(name, slots_on(host, left), deque(tasks), total=total.get(name, 0))
        return works

    def _drive(
        self,
        left: Plan,
        works: dict[str, HostWork],
        server: Server,
        requests: Requests,
        absent: Mapping[str, str],
    ) -> None:
        control = ControlFiles(self._files.control)
        about = About(
            self._campaign_id,
            self._order.sweep_name,
            self._place,
            str(self._store.layout.root.resolve()),
            self._continuation.plan.trials - left.trials,
            left.estimate_s,
        )
        publisher = Publisher(control, about, self._accounts)
        driver = Driver(
            self._hosts,
            works,
            self._scheduler,
            server,
            requests,
            self._accounts,
            control,
            publisher,
            self._order.faults,
            self._order.sweep,
            self._deliver_leftovers,
            lambda: self._committer.failure,
            absent,
        )
        try:
            driver.run()
        finally:
            publisher.publish(driver.works, CampaignPhase.ENDED)

    def _clear(self, works: Mapping[str, HostWork], requests: Requests) -> None:
        """Removes on the hosts that are there what `run_campaign` removes here."""
        served = {name for name in works if self._hosts[name].work_directory is not None}
        there = {name for name in served if works[name].loss is None}
        is_kept = self._accounts.lost_a_task or there != served
        campaigns = {name: requests.work(name).campaign(self._campaign_id) for name in sorted(there)}
        gone = {name: [path / CACHE if is_kept else path] for name, path in campaigns.items()}
        cleared = remove_what_is_left(self._scheduler, gone, self._accounts.notice)
        self._is_cleared = not is_kept and cleared == served

    def _drop_caches(self, hosts: Sequence[str], requests: Requests) -> None:
        """Does on hosts what `drop_caches` does here: a campaign that was ended and never resumed left gigabytes there.

        A host may serve other projects too. Those of this project have a directory here, and a row in this store.
        """
        others = other_campaigns(self._files, keep=self._campaign_id)
        known = set(self._store.campaigns()["campaign_id"].to_pylist()) if others and hosts else set()
        ours = [one for one in others if one in known]
        caches = {host: [requests.work(host).campaign(one) / CACHE for one in ours] for host in hosts if ours}
        remove_what_is_left(self._scheduler, caches, self._accounts.notice)

    def _left(self) -> Plan:
        if self._deliver_leftovers() and not self._continuation.is_new:
            return unfinished(self._continuation.plan, self._store.attempts(self._campaign_id))
        return self._continuation.left

    def _deliver_leftovers(self, *, wait_for_room: bool = True) -> int:
        return deliver_leftovers(self._spool, self._committer, self._accounts.notice, wait_for_room=wait_for_room)


def _scheduling_host(host: ReadyHost, left: Plan) -> SchedulingHost:
    return SchedulingHost(host.planning.name, host.planning.labels, host.agent_cores, slots_on(host, left))


def _again(planned: PlannedTask) -> PlannedTask:
    return replace(planned, task=restarted(planned.task))
