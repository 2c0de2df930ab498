"""Runs a campaign: submits its tasks, sees that each trial gets its row, and decides what is tried again."""

import secrets
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from orchestrator.campaign.account import close_account, opening_row
from orchestrator.campaign.agents import deliver_what_waits, remove_what_is_left
from orchestrator.campaign.files import CACHE, ProjectFiles, WorkFiles, drop_caches
from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.origins import Origins
from orchestrator.campaign.preparation import ReadyHost
from orchestrator.campaign.progress import (
    CampaignPlanned,
    Notice,
    Observer,
    TrialBegun,
    TrialRecorded,
    one_at_a_time,
)
from orchestrator.campaign.resume import unfinished
from orchestrator.delivery import Committer, Destination, Origin, Recording, RowKey, Server, Spool, deliver_leftovers
from orchestrator.errors import StoreError
from orchestrator.execution import ExecutionSettings, FakeSettings, PackedCode, TaskOutcome, aftermath, keep_code, pack
from orchestrator.planning import Plan, Skip, with_trials
from orchestrator.scheduling import (
    Event,
    ExistingCluster,
    HostNotice,
    HostObserved,
    LineReceived,
    Scheduler,
    SchedulingHost,
    TaskEnded,
    TaskRequest,
)
from orchestrator.store import SealReport, Store
from orchestrator.store.storage.snapshot import store_id
from runners.contract import Begin, Environment, Line, Status, Task, Trial, TrialRecord
from runners.system import collect

MAX_ATTEMPTS = 3
"""Of a trial, or of a task that dies before its first trial begins, when the infrastructure is at fault."""

AGAIN = "-again-"
"""Between a task's planned id and what tells its restarts apart."""

LOOPBACK = "127.0.0.1"
SKIPS_AT_ONCE = 1000

CODE_HAS_CHANGED = (
    "runners/ has changed since this campaign began; it goes on with the code that it began with "
    "(--resume never starts a new campaign with the new code)"
)


def ray_scheduler(cluster: ExistingCluster | None = None) -> Scheduler:
    """The scheduler of a real campaign. Ray takes a second to import, which most commands do without.

    Args:
        cluster: where tasks run; by default on this machine.
    """
    from orchestrator.scheduling.ray import RayScheduler

    return RayScheduler(cluster)


def run_campaign(
    order: CampaignOrder,
    scheduler: Scheduler,
    store: Store,
    files: ProjectFiles,
    observe: Observer,
    *,
    address: str = LOOPBACK,
    port: int = 0,
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
        address: of this machine, as the hosts reach it to deliver their rows.
        port: where they do; 0 takes any that is free.

    Raises:
        InfrastructureError: the cluster cannot be started, or `address` cannot be listened on.
        NoUsableHostError: a host is not part of the cluster.
        StoreError: a row cannot be written; no further trial is then run.
    """
    campaign_id = order.continuation.campaign_id
    told = one_at_a_time(observe)
    writer = store.writer()
    try:
        if order.continuation.is_new:
            writer.put_campaign(opening_row(order))
        _tell_of_damage(writer.reports, told, "of a killed run")
        earlier = len(writer.reports)
        with Committer(store, writer, lambda text: told(Notice(text))) as committer:
            run = _Run(order, scheduler, committer, store, files, told)
            run.all(address, port)
        close_account(store, writer, campaign_id)
        writer.close()
        _tell_of_damage(writer.reports[earlier:], told, "of this run")
    except BaseException:
        # What cannot be written any more must not hide why the campaign ends.
        for last in (partial(close_account, store, writer, campaign_id), writer.close):
            try:
                last()
            except StoreError as error:
                told(Notice(str(error)))
        raise
    for problem in writer.compaction_problems:
        told(Notice(problem))
    drop_caches(files, keep=None)
    directory = files.campaign(campaign_id)
    if directory.exists() and not run.lost_a_task:
        shutil.rmtree(directory)  # else the directories of lost tasks stay, with their logs


@dataclass
class _TaskState:
    """What is known of a task while it runs."""

    task: Task
    recording: Recording
    begun: dict[str, Begin] = field(default_factory=dict)
    unconfirmed: dict[str, TrialRecord] = field(default_factory=dict)
    """Records that the host has told of, and whose rows are not seen on the disk yet."""


class _Run:
    def __init__(
        self,
        order: CampaignOrder,
        scheduler: Scheduler,
        committer: Committer,
        store: Store,
        files: ProjectFiles,
        observe: Observer,
    ) -> None:
        self._continuation = order.continuation
        self._campaign_id = order.continuation.campaign_id
        self._hosts = {host.planning.name: host for host in order.hosts}
        self._origins = Origins(self._campaign_id, self._hosts, order.reproduces, collect())
        self._scheduler = scheduler
        self._committer = committer
        self._store = store
        self._files = files
        self._observe = observe
        self._store_id = store_id(store.layout) or ""
        self._spool = Spool(files.spool(self._store_id).resolve())
        self._delivery: tuple[str, int, bytes] | None = None
        self._packed: PackedCode | None = None
        self._states: dict[str, _TaskState] = {}
        self._failed_starts: dict[str, int] = {}
        self.lost_a_task = False
        """Whether a task ended before its trials were done."""

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
            self._notice(CODE_HAS_CHANGED)
        if served:
            self._packed = pack(self._files.code(self._campaign_id))
        token = secrets.token_bytes(32)
        with Server(self._committer, token, self._notice, address=address, port=port) as server:
            self._delivery = address, server.port, token
            try:
                busy = {planned.host for planned in left.tasks}
                self._scheduler.start([_scheduling_host(host) for name, host in self._hosts.items() if name in busy])
                if must_ask:
                    destinations = {host: self._destination(host) for host in served if host in busy}
                    deliver_what_waits(self._scheduler, destinations, self._notice)
                    left = unfinished(self._continuation.plan, self._store.attempts(self._campaign_id))
                    self._begin(left)
                self._tasks(left)
                self._clear([host for host in served if host in busy])
            finally:
                self._scheduler.stop()
                self._deliver_leftovers(wait_for_room=False)
                self._spool.remove_if_empty()

    def _begin(self, left: Plan) -> None:
        self._observe(CampaignPlanned(self._campaign_id, left, self._continuation.plan.trials - left.trials))
        self._record_skips(left.skips)

    def _clear(self, served: Sequence[str]) -> None:
        """Removes on hosts what `run_campaign` removes here."""
        campaigns = {host: self._work(host).campaign(self._campaign_id) for host in served}
        kept = {host: path / CACHE for host, path in campaigns.items()} if self.lost_a_task else campaigns
        remove_what_is_left(self._scheduler, kept, self._notice)

    def _work(self, host: str) -> WorkFiles:
        directory = self._hosts[host].work_directory
        return WorkFiles(self._files.state.resolve() if directory is None else Path(directory))

    def _destination(self, host: str) -> Destination:
        assert self._delivery is not None
        return Destination(*self._delivery, self._work(host).spool(self._store_id))

    def _left(self) -> Plan:
        if self._deliver_leftovers() and not self._continuation.is_new:
            return unfinished(self._continuation.plan, self._store.attempts(self._campaign_id))
        return self._continuation.left

    def _deliver_leftovers(self, *, wait_for_room: bool = True) -> int:
        return deliver_leftovers(self._spool, self._committer, self._notice, wait_for_room=wait_for_room)

    def _record_skips(self, skips: Sequence[Skip]) -> None:
        places = sorted({(skip.host, skip.environment) for skip in skips})
        for host, environment in places:
            recording = self._origins.recording(self._origins.of(host, environment, None))
            here = [skip for skip in skips if (skip.host, skip.environment) == (host, environment)]
            for first in range(0, len(here), SKIPS_AT_ONCE):
                some = here[first : first + SKIPS_AT_ONCE]
                records = [(one.trial, _unrun(one.trial, Status.SKIPPED, one.reason)) for one in some]
                self._committer.commit(recording.rows(records))
                recording.delivered()

    def _tasks(self, left: Plan) -> None:
        for planned in left.tasks:
            self._submit(planned.host, planned.task if self._continuation.is_new else _restarted(planned.task))
        for event in self._scheduler.events():
            self._handle(event)
            if self._committer.failure is not None:
                raise self._committer.failure

    def _submit(self, host: str, task: Task) -> None:
        origin = self._origins.of(host, task.environment, task.task_id)
        self._states[task.task_id] = _TaskState(task, self._origins.recording(origin))
        work = self._work(host)
        request = TaskRequest(
            host,
            task,
            self._execution(host, origin),
            work.campaign(self._campaign_id) / f"{task.task_id}-{uuid.uuid4().hex[:8]}",
            origin,
            self._destination(host),
            work.code(self._campaign_id),
            None if self._hosts[host].work_directory is None else self._packed,
        )
        self._scheduler.submit(request)

    def _execution(self, host: str, origin: Origin) -> ExecutionSettings:
        environment = origin.context.environment
        execution = self._hosts[host].executions[environment]
        if isinstance(execution, FakeSettings):
            return execution
        isolation = origin.pin.isolation.value
        return replace(execution, cache=self._work(host).cache(self._campaign_id, environment, isolation))

    def _handle(self, event: Event) -> None:
        if isinstance(event, TaskEnded):
            self._ended(event)
            return
        state = self._states[event.task_id]
        if isinstance(event, HostObserved):
            state.recording.runs_on(event.fingerprint)
        elif isinstance(event, HostNotice):
            self._notice(f"{event.host}: {event.text}")
        elif isinstance(event, LineReceived):
            self._line(event.host, state, event.line)
        self._confirm(event.host, state)

    def _line(self, host: str, state: _TaskState, line: Line) -> None:
        if isinstance(line, Environment):
            state.recording.saw(line)
        elif isinstance(line, Begin):
            state.begun[line.trial_id] = line
            self._observe(TrialBegun(host, _trial_of(state.task, line.trial_id)))
        elif isinstance(line, TrialRecord):
            state.unconfirmed[line.trial_id] = line

    def _confirm(self, host: str, state: _TaskState) -> None:
        """Tells of the records whose rows are on the disk: what a host says is no proof of it."""
        for trial_id in [name for name in state.unconfirmed if self._is_stored(_trial_of(state.task, name))]:
            record = state.unconfirmed.pop(trial_id)
            self._observe(TrialRecorded(host, _trial_of(state.task, trial_id), record, final=True))

    def _is_stored(self, trial: Trial) -> bool:
        return self._committer.is_stored(RowKey(self._campaign_id, trial.trial_id, trial.attempt))

    def _write(self, host: str, state: _TaskState, trial: Trial, record: TrialRecord, *, final: bool) -> None:
        self._committer.commit(state.recording.rows([(trial, record)]))
        state.recording.delivered()
        self._observe(TrialRecorded(host, trial, record, final))

    def _ended(self, event: TaskEnded) -> None:
        state = self._states.pop(event.task.task_id)
        if event.problem is not None:
            self._deliver_leftovers()  # of a task that could measure, but not deliver
        self._confirm(event.host, state)
        recorded = frozenset(trial.trial_id for trial in state.task.trials if self._is_stored(trial))
        outcome = event.outcome or TaskOutcome(None, None, None, "")
        what_is_left = aftermath(state.task, state.begun, recorded, outcome)
        left = list(what_is_left.left)
        if what_is_left.victim is not None:
            left += self._victim(event, state, what_is_left.victim)
        self.lost_a_task |= bool(left) or what_is_left.victim is not None
        if not left:
            return
        problem = event.problem or f"the task ended with exit code {outcome.exit_code} before its trials were done"
        self._notice(f"{event.host}: {problem}{_last_line(outcome.log_tail)}")
        origin = _origin(state.task)
        # What was measured and did not arrive is no progress: it would be measured for ever.
        progressed = bool(recorded) or (event.problem is None and bool(state.begun))
        self._failed_starts[origin] = 0 if progressed else self._failed_starts.get(origin, 0) + 1
        if self._failed_starts[origin] < MAX_ATTEMPTS:
            self._submit(event.host, _restarted(with_trials(state.task, tuple(left))))
        else:
            self._give_up(event.host, state, left, problem, outcome.log_tail)

    def _victim(self, event: TaskEnded, state: _TaskState, victim: TrialRecord) -> list[Trial]:
        """Records the trial that was running; returns it once more if the infrastructure was at fault."""
        trial = _trial_of(state.task, victim.trial_id)
        if event.problem is None:
            self._write(event.host, state, trial, victim, final=True)
            return []
        again = trial.attempt < MAX_ATTEMPTS
        failed = replace(victim, status=Status.INFRASTRUCTURE_ERROR, reason=event.problem)
        self._write(event.host, state, trial, failed, final=not again)
        return [replace(trial, attempt=trial.attempt + 1)] if again else []

    def _give_up(self, host: str, state: _TaskState, left: Sequence[Trial], problem: str, log_tail: str) -> None:
        for trial in left:
            record = _unrun(trial, Status.INFRASTRUCTURE_ERROR, problem, log_tail)
            self._write(host, state, trial, record, final=True)

    def _notice(self, text: str) -> None:
        self._observe(Notice(text))


def _scheduling_host(host: ReadyHost) -> SchedulingHost:
    return SchedulingHost(host.planning.name, host.planning.labels, host.agent_cores)


def _tell_of_damage(reports: Sequence[SealReport], observe: Observer, whose: str) -> None:
    for report in reports:
        if report.damage is not None:
            text = f"the journal {whose} was damaged: {report.damage}; it is kept at {report.quarantined}"
            observe(Notice(text))


def _trial_of(task: Task, trial_id: str) -> Trial:
    return next(trial for trial in task.trials if trial.trial_id == trial_id)


def _origin(task: Task) -> str:
    """The id that a task had when it was planned, whatever number of restarts ago."""
    return task.task_id.partition(AGAIN)[0]


def _restarted(task: Task) -> Task:
    """The same work for another container: a task id names one container, the outer level of replication."""
    return replace(task, task_id=f"{_origin(task)}{AGAIN}{uuid.uuid4().hex[:6]}")


def _unrun(trial: Trial, status: Status, reason: str, log_tail: str = "") -> TrialRecord:
    now_ns = time.time_ns()
    return TrialRecord(
        trial_id=trial.trial_id,
        attempt=trial.attempt,
        status=status,
        reason=reason,
        started_at_ns=now_ns,
        finished_at_ns=now_ns,
        log_tail=log_tail,
    )


def _last_line(log: str) -> str:
    lines = log.strip().splitlines()
    return f" ({lines[-1].strip()})" if lines else ""
