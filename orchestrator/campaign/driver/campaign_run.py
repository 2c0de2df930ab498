"""Runs a campaign: what waits is stored, the cluster is there, the tasks run, the hosts are cleared."""

import os
import platform
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Final

from orchestrator.campaign.allocation import tasks_with_past, with_past
from orchestrator.campaign.control import CampaignPhase, CampaignProgressState, ControlFiles
from orchestrator.campaign.driver.driver import Driver
from orchestrator.campaign.driver.host_work import HostWork, slots_on
from orchestrator.campaign.driver.leftovers import acknowledge_on, ask, store_leftovers, store_leftovers_here
from orchestrator.campaign.driver.requests import Requests
from orchestrator.campaign.driver.task_tracker import TaskTracker, restarted
from orchestrator.campaign.progress import CampaignPlanned, Notice, Observer, StageClock, one_at_a_time, spent_before
from orchestrator.campaign.resume import CampaignRequest, unfinished
from orchestrator.campaign.stored_plan import plan_document
from orchestrator.errors import StoreError
from orchestrator.execution import keep_code
from orchestrator.files import ProjectFiles
from orchestrator.hosts import fingerprint_here
from orchestrator.planning import Plan, PlannedTask
from orchestrator.scheduling import Leftovers, Scheduler, SchedulingHost, acknowledge, remove_directories
from orchestrator.store import Row, SealReport, Stage, Store, Writer, campaign_row, campaign_totals
from orchestrator.store.ingest import Ingest
from orchestrator.store.storage.layout import store_id

ANSWER_S: Final = 60.0
"""A host that is up does in seconds what it is asked here."""

THIS_MACHINE: Final = "this machine"

CODE_HAS_CHANGED: Final = (
    "runners/ has changed since this campaign began; it goes on with the code that it began with "
    "(--resume never starts a new campaign with the new code)"
)


def run_campaign(
    order: CampaignRequest,
    scheduler: Scheduler,
    store: Store,
    files: ProjectFiles,
    observe: Observer,
    *,
    place: str = THIS_MACHINE,
) -> None:
    """Runs what is left of a campaign until each of its trials has a row.

    A KeyboardInterrupt ends the running trials, leaves nothing of them behind and passes on; what was recorded
    stays recorded.

    Args:
        order: what to run.
        scheduler: brings tasks to hosts.
        store: where the rows go.
        files: of the project.
        observe: told what happens; by several threads, but never by two at once.
        place: where this driver runs, for those who watch: `this machine`, or the name of its container.

    Raises:
        InfrastructureError: there is no such cluster.
        NoUsableHostError: a host is not part of the cluster, it cannot be started, or another campaign of the project
            is driven.
        StoreError: a row cannot be written; no further trial is then run.
    """
    campaign_id, told = order.continuation.campaign_id, one_at_a_time(observe)
    clock = StageClock(Stage.SETUP, order.spent, spent_before(store, campaign_id))
    with ControlFiles(files.control).driving():
        writer, with_rows = store.writer(), set[str]()
        if (identity := store_id(store.layout)) is not None:
            files.remember_store(identity)

        def close_accounts() -> None:
            _close_accounts(store, writer, campaign_id, with_rows, clock.seconds())

        try:
            if order.continuation.is_new:
                writer.put_campaign(opening_row(order))
            _tell_of_damage(writer.reports, told, "of a killed run")
            earlier = len(writer.reports)
            with Ingest(store, writer, lambda text: told(Notice(text))) as ingest:
                with_rows = ingest.campaigns
                run = CampaignRun(order, scheduler, ingest, store, files, told, place, clock)
                run.all()
            writer.seal()  # else what is counted is read from the journal, all columns of it
            close_accounts()
            writer.close()
            _tell_of_damage(writer.reports[earlier:], told, "of this run")
        except BaseException:
            # What cannot be written any more must not hide why the campaign ends.
            for last in (close_accounts, writer.close):
                try:
                    last()
                except StoreError as error:
                    told(Notice(str(error)))
            raise
        for problem in writer.compaction_problems:
            told(Notice(problem))
        if run.is_cleared:
            # else the directories of lost tasks stay, with their logs: they tell the next campaign what hosts may have
            for problem in remove_directories([files.campaign(campaign_id)]):
                told(Notice(problem))


@dataclass
class CampaignRun:
    """Runs what is left of one campaign, with a store that is open for writing."""

    order: CampaignRequest
    scheduler: Scheduler
    ingest: Ingest
    store: Store
    files: ProjectFiles
    observe: Observer
    place: str
    clock: StageClock

    def __post_init__(self) -> None:
        self._plan = self.order.continuation.plan
        self._hosts = {host.planning.name: host for host in self.order.hosts}
        self._requests = Requests(
            self.order.continuation.campaign_id,
            self._hosts,
            self.files,
            store_id(self.store.layout) or "",
            fingerprint_here(),
            self.order.reproduces,
            self.order.is_cold,
        )
        self._campaign_id = self._requests.campaign_id
        self._tracker = TaskTracker(self._requests, self.ingest, self.observe)
        self.is_cleared = not self._served(self._hosts)
        """Whether no host has anything of the campaign any more, and no task of it was lost whose logs should stay."""

    def all(self) -> None:
        """Runs everything that is left, and first stores what an earlier run measured and did not store."""
        self._store_leftovers_here()
        left = self._left()
        if not left.tasks:
            self._begin(left)
            return
        if not keep_code(self.files.code(self._campaign_id)):
            self._tracker.notice(CODE_HAS_CHANGED)
        works: dict[str, HostWork] = {}
        try:
            tasks = _by_host(left.tasks)
            busy = [host for name, host in self._hosts.items() if name in tasks]
            absent = self.scheduler.start(
                [
                    SchedulingHost(
                        host.planning.name,
                        host.planning.labels,
                        host.agent_cores,
                        slots_on(host, tasks[host.planning.name]),
                        host.is_relayed,
                    )
                    for host in busy
                ]
            )
            # Those without work, too: an earlier run may have ended before they forgot what is stored.
            there = self._served(self._hosts) - absent.keys()
            leftovers = {host: self._requests.leftovers(host) for host in sorted(there)}
            store_leftovers(self.scheduler, leftovers, self.ingest, self._tracker.notice)
            left = self._left()
            self._begin(left)
            works |= self._works(left)
            self._drive(left, works, absent)
            self.clock.enter(Stage.TEARDOWN)
            self._clear(works)
        finally:
            self.clock.enter(Stage.TEARDOWN)
            self.scheduler.stop()
            self._end_here(works)

    def _left(self) -> Plan:
        known = with_past(self._plan, self.store, self._campaign_id)
        return unfinished(known, self.store.attempts(self._campaign_id))

    def _recall(self, planned: PlannedTask) -> PlannedTask:
        has_budget = planned.task.allocation is not None
        return tasks_with_past([planned], self.store, self._campaign_id)[0] if has_budget else planned

    def _served(self, names: Iterable[str]) -> set[str]:
        """The hosts that an agent serves, and that keep our files themselves."""
        return {name for name in names if self._hosts[name].work_directory is not None}

    def _begin(self, left: Plan) -> None:
        self.observe(CampaignPlanned(self._campaign_id, left, self._plan.trials - left.trials))
        self._tracker.record_skips(left.skips)

    def _works(self, left: Plan) -> dict[str, HostWork]:
        planned, waiting, works = _by_host(self._plan.tasks), _by_host(left.tasks), {}
        for name, host in self._hosts.items():
            tasks = waiting.get(name, [])
            slots, total = slots_on(host, tasks), sum(len(task.task.trials) for task in planned.get(name, ()))
            if not self.order.continuation.is_new:
                tasks = [replace(task, task=restarted(task.task)) for task in tasks]
            if total:
                works[name] = HostWork(name, slots, deque(tasks), total=total)
        return works

    def _drive(self, left: Plan, works: dict[str, HostWork], absent: Mapping[str, str]) -> None:
        now_ns = time.time_ns()
        state = CampaignProgressState(
            self._campaign_id,
            self.order.sweep_name,
            started_at_ns=now_ns,
            beat_at_ns=now_ns,
            phase=CampaignPhase.RUNNING,
            hosts=(),
            done=0,
            left=left.trials,
            failed=0,
            pid=os.getpid(),
            place=self.place,
            results=str(self.store.layout.root.resolve()),
            already_done=self._plan.trials - left.trials,
            estimate_s=left.estimate_s,
        )
        control, faults, sweep = ControlFiles(self.files.control), self.order.faults, self.order.sweep
        driven = works, self.scheduler, self._tracker, control, state, faults, sweep, absent, self._recall
        Driver(*driven, self.clock).run()

    def _clear(self, works: Mapping[str, HostWork]) -> None:
        """Has the hosts that are there forget what is stored, and removes what `run_campaign` removes here."""
        there = {name for name, work in works.items() if work.loss is None}
        stored = {name: works[name].acknowledgements for name in sorted(there)}
        acknowledge_on(self.scheduler, stored, self._tracker.notice)
        for name in there:
            works[name].acknowledgements = []
        served = self._served(works)
        is_kept = self._tracker.lost_a_task or not served <= there
        if is_kept:
            self.is_cleared = False
            return
        gone = {name: [self._requests.work(name).campaign(self._campaign_id)] for name in sorted(served)}
        self.is_cleared = self._removed(gone) == served

    def _removed(self, directories: Mapping[str, list[Path]]) -> set[str]:
        """Removes directories on hosts; those that do not are named, and hold nothing up."""
        unwilling = set()

        def note(host: str, problem: str) -> None:
            unwilling.add(host)
            self._tracker.notice(f"{host}: {problem}")

        return ask(self.scheduler, remove_directories, directories, ANSWER_S, note, self._tracker.notice) - unwilling

    def _end_here(self, works: Mapping[str, HostWork]) -> None:
        """Stores what tasks of this machine recorded after they were listened to, as an interrupted one has."""
        if self.ingest.failure is not None or self.ingest.is_full:
            return
        for name, work in works.items():
            if self._hosts[name].work_directory is None:
                for problem in acknowledge(work.acknowledgements):
                    self._tracker.notice(problem)
        self._store_leftovers_here()

    def _store_leftovers_here(self) -> None:
        here = Leftovers(self.files.campaigns.resolve(), self._requests.store_id)
        store_leftovers_here(here, self.ingest, self._tracker.notice)


def _by_host(tasks: Iterable[PlannedTask]) -> dict[str, list[PlannedTask]]:
    found: dict[str, list[PlannedTask]] = {}
    for task in tasks:
        found.setdefault(task.host, []).append(task)
    return found


def opening_row(order: CampaignRequest) -> Row:
    """The row of a campaign as it starts: what it was to do."""
    continuation = order.continuation
    installed = {str(found.metadata["Name"]).lower(): found.version for found in distributions()}
    return campaign_row(
        continuation.campaign_id,
        datetime.now(UTC),
        order.sweep_name,
        sweep_document=order.sweep_document,
        inventory_document=order.inventory_document,
        planned_trials=continuation.plan.trials,
        plan_digest=continuation.plan.digest,
        taxmeter_version=version("taxmeter"),
        git_commit=order.git_commit,
        plan=plan_document(continuation.plan),
        versions={**installed, "python": platform.python_version()},
    )


def _close_accounts(
    store: Store, writer: Writer, driven: str, with_rows: set[str], spent: Mapping[Stage, float]
) -> None:
    """Writes down when campaigns ended, for now or for good, and what there is of them by then.

    Args:
        store: that has them.
        writer: of the store.
        driven: the campaign that was.
        with_rows: those that got rows.
        spent: on the one that was driven.
    """
    # Without their plans, which are long
    known = store.results.campaigns(columns=["campaign_id"]).arrow()["campaign_id"].to_pylist()
    for campaign_id in sorted({driven, *with_rows}.intersection(known)):
        stages = spent if campaign_id == driven else {}
        statuses = [attempt.status for attempt in store.attempts(campaign_id).values()]
        rows = len(store.trials(["trial_id"], campaign_id=campaign_id))
        writer.finish_campaign(campaign_id, **campaign_totals(datetime.now(UTC), statuses, rows=rows, stages=stages))


def _tell_of_damage(reports: Sequence[SealReport], observe: Observer, whose: str) -> None:
    for report in reports:
        if report.damage is not None:
            text = f"the journal {whose} was damaged: {report.damage}; it is kept at {report.quarantined}"
            observe(Notice(text))
