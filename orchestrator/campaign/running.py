"""Runs a campaign: submits its tasks, joins what comes back with the fingerprint, and writes it down."""

import dataclasses
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from orchestrator.campaign.counterpart import Reproduces, with_counterpart
from orchestrator.campaign.files import ProjectFiles, drop_caches
from orchestrator.campaign.preparation import ReadyHost
from orchestrator.campaign.progress import CampaignPlanned, Notice, Observer, TrialBegun, TrialRecorded
from orchestrator.campaign.resume import Continuation
from orchestrator.execution import ExecutionSettings, FakeSettings, TaskOutcome, aftermath, cores_text, keep_code
from orchestrator.planning import EnvironmentPin, Skip, with_trials
from orchestrator.scheduling import (
    Event,
    HostObserved,
    LineReceived,
    Scheduler,
    SchedulingHost,
    TaskEnded,
    TaskRequest,
)
from orchestrator.store import RowContext, Store, Writer, campaign_row, environment_row, system_row, trial_row
from runners.contract import Begin, Environment, Status, Task, Trial, TrialRecord, digest, encode
from runners.contract.record import FactValue
from runners.system import Fingerprint, hot_columns, hw_id, system_id

MAX_ATTEMPTS = 3
"""Of a trial, or of a task that dies before its first trial begins, when the infrastructure is at fault."""

AGAIN = "-again-"
"""Between a task's planned id and what tells its restarts apart."""

CODE_HAS_CHANGED = (
    "runners/ has changed since this campaign began; it goes on with the code that it began with "
    "(--resume never starts a new campaign with the new code)"
)


@dataclass(frozen=True)
class CampaignOrder:
    """Everything that a campaign needs, decided before it starts."""

    continuation: Continuation
    hosts: Sequence[ReadyHost]
    sweep_name: str
    sweep_document: str
    inventory_document: str
    taxmeter_version: str
    git_commit: str | None
    reproduces: Reproduces | None = None
    """Null for a campaign that measures something of its own."""


def ray_scheduler() -> Scheduler:
    """The scheduler of a real campaign. Ray takes a second to import, which most commands do without."""
    from orchestrator.scheduling.ray import RayScheduler

    return RayScheduler()


def run_campaign(
    order: CampaignOrder, scheduler: Scheduler, store: Store, files: ProjectFiles, observe: Observer
) -> None:
    """Runs what is left of a campaign until each of its trials has a row.

    A KeyboardInterrupt ends the running trials, leaves nothing of them behind and passes on; what was recorded
    stays recorded.

    Raises:
        InfrastructureError: the cluster cannot be started.
        NoUsableHostError: a host is not part of the cluster.
        StoreError: a row cannot be written; no further trial is then run.
    """
    continuation = order.continuation
    left = continuation.left
    directory = files.campaign(continuation.campaign_id)
    with store.writer() as writer:
        if continuation.is_new:
            writer.put_campaign(_campaign_row(order))
        for report in writer.reports:
            if report.damage is not None:
                observe(
                    Notice(
                        f"the journal of a killed run was damaged: {report.damage}; it is kept at {report.quarantined}"
                    )
                )
        observe(CampaignPlanned(continuation.campaign_id, left, continuation.plan.trials - left.trials))
        run = _Run(order, scheduler, writer, files, observe)
        run.record_skips(left.skips)
        if left.tasks:
            if not keep_code(files.code(continuation.campaign_id)):
                observe(Notice(CODE_HAS_CHANGED))
            try:
                scheduler.start([_scheduling_host(host) for host in order.hosts])
                run.tasks()
            finally:
                scheduler.stop()
    drop_caches(files, keep=None)
    if directory.exists() and not run.lost_a_task:
        shutil.rmtree(directory)  # else the directories of lost tasks stay, with their logs


def _scheduling_host(host: ReadyHost) -> SchedulingHost:
    return SchedulingHost(host.planning.name, host.planning.labels, host.agent_cores)


def _campaign_row(order: CampaignOrder) -> dict[str, object]:
    continuation = order.continuation
    return campaign_row(
        continuation.campaign_id,
        datetime.now(UTC),
        order.sweep_name,
        sweep_document=order.sweep_document,
        inventory_document=order.inventory_document,
        planned_trials=continuation.plan.trials,
        plan_digest=continuation.plan.digest,
        taxmeter_version=order.taxmeter_version,
        git_commit=order.git_commit,
    )


@dataclass
class _TaskState:
    """What is known of a task while it runs."""

    task: Task
    context: RowContext
    observed: dict[str, FactValue] = field(default_factory=dict)
    """Limits and the like, seen inside: they belong to the trials of this task, not to the environment."""
    begun: dict[str, Begin] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)


class _Run:
    def __init__(
        self, order: CampaignOrder, scheduler: Scheduler, writer: Writer, files: ProjectFiles, observe: Observer
    ) -> None:
        self._is_new = order.continuation.is_new
        self._campaign_id = order.continuation.campaign_id
        self._hosts = {host.planning.name: host for host in order.hosts}
        self._left = order.continuation.left
        self._reproduces = order.reproduces
        self._scheduler = scheduler
        self._writer = writer
        self._files = files
        self._observe = observe
        self._states: dict[str, _TaskState] = {}
        self._failed_starts: dict[str, int] = {}
        self.lost_a_task = False
        """Whether a task ended before its trials were done."""

    def record_skips(self, skips: Sequence[Skip]) -> None:
        rows = []
        for skip in skips:
            now = time.time_ns()
            record = _unrun(skip.trial, Status.SKIPPED, skip.reason, now)
            rows.append(self._row(self._context(skip.host, skip.environment, None), skip.trial, record))
        if rows:
            self._writer.append(rows)

    def tasks(self) -> None:
        for planned in self._left.tasks:
            self._submit(planned.host, planned.task if self._is_new else _restarted(planned.task))
        for event in self._scheduler.events():
            self._handle(event)

    def _submit(self, host: str, task: Task) -> None:
        self._states[task.task_id] = _TaskState(task, self._context(host, task.environment, task.task_id))
        directory = self._files.campaign(self._campaign_id) / f"{task.task_id}-{uuid.uuid4().hex[:8]}"
        code = self._files.code(self._campaign_id)
        execution = self._execution(host, task.environment)
        self._scheduler.submit(TaskRequest(host, task, execution, directory.resolve(), code.resolve()))

    def _execution(self, host: str, environment: str) -> ExecutionSettings:
        execution = self._hosts[host].executions[environment]
        if isinstance(execution, FakeSettings):
            return execution
        isolation = self._pin(host, environment).isolation.value
        return replace(execution, cache=self._files.cache(self._campaign_id, environment, isolation).resolve())

    def _handle(self, event: Event) -> None:
        if isinstance(event, TaskEnded):
            self._ended(event)
            return
        state = self._states[event.task_id]
        if isinstance(event, HostObserved):
            state.context = self._with_system(state.context, event.fingerprint)
        elif isinstance(event, LineReceived):
            self._line(event.host, state, event.line)

    def _line(self, host: str, state: _TaskState, line: object) -> None:
        if isinstance(line, Environment):
            state.observed = {name: value for name, value in line.facts.items() if is_of_this_run(name)}
            state.context = self._with_environment(host, state.context, line)
        elif isinstance(line, Begin):
            state.begun[line.trial_id] = line
            self._observe(TrialBegun(host, _trial_of(state.task, line.trial_id)))
        elif isinstance(line, TrialRecord):
            self._write(host, state, line, final=True)

    def _write(self, host: str, state: _TaskState, record: TrialRecord, *, final: bool) -> None:
        trial = _trial_of(state.task, record.trial_id)
        whole = replace(record, facts={**state.observed, **record.facts})
        self._writer.append([self._row(state.context, trial, whole)])
        state.recorded.add(record.trial_id)
        self._observe(TrialRecorded(host, trial, record, final))

    def _row(self, context: RowContext, trial: Trial, record: TrialRecord) -> dict[str, object]:
        return trial_row(with_counterpart(context, trial.trial_key, self._reproduces), trial, record)

    def _ended(self, event: TaskEnded) -> None:
        state = self._states.pop(event.task.task_id)
        outcome = event.outcome or TaskOutcome(None, None, None, "")
        what_is_left = aftermath(state.task, state.begun, frozenset(state.recorded), outcome)
        left = list(what_is_left.left)
        if what_is_left.victim is not None:
            left += self._victim(event, state, what_is_left.victim)
        self.lost_a_task |= bool(left) or what_is_left.victim is not None
        if not left:
            return
        problem = event.problem or f"the task ended with exit code {outcome.exit_code} before its trials were done"
        self._observe(Notice(f"{event.host}: {problem}{_last_line(outcome.log_tail)}"))
        if state.begun:
            self._failed_starts.pop(_origin(state.task), None)
        else:
            self._failed_starts[_origin(state.task)] = self._failed_starts.get(_origin(state.task), 0) + 1
        if self._failed_starts.get(_origin(state.task), 0) < MAX_ATTEMPTS:
            again = with_trials(state.task, tuple(left))
            self._submit(event.host, _restarted(again))
        else:
            self._give_up(event.host, state, left, problem, outcome.log_tail)

    def _victim(self, event: TaskEnded, state: _TaskState, victim: TrialRecord) -> list[Trial]:
        """Records the trial that was running; returns it once more if the infrastructure was at fault."""
        if event.problem is None:
            self._write(event.host, state, victim, final=True)
            return []
        trial = _trial_of(state.task, victim.trial_id)
        again = trial.attempt < MAX_ATTEMPTS
        failed = replace(victim, status=Status.INFRASTRUCTURE_ERROR, reason=event.problem)
        self._write(event.host, state, failed, final=not again)
        return [replace(trial, attempt=trial.attempt + 1)] if again else []

    def _give_up(self, host: str, state: _TaskState, left: Sequence[Trial], problem: str, log_tail: str) -> None:
        for trial in left:
            record = _unrun(trial, Status.INFRASTRUCTURE_ERROR, problem, time.time_ns(), log_tail)
            self._write(host, state, record, final=True)

    def _pin(self, host: str, environment: str) -> EnvironmentPin:
        return self._hosts[host].planning.environments[environment]

    def _context(self, host: str, environment: str, task_id: str | None) -> RowContext:
        pin = self._pin(host, environment)
        execution = self._hosts[host].executions.get(environment)
        limits = None if isinstance(execution, FakeSettings) else execution
        return RowContext(
            campaign_id=self._campaign_id,
            task_id=task_id,
            host=host,
            isolation=pin.isolation.value,
            executor_reason=pin.reason,
            environment=environment,
            environment_id=None,
            image_digest=pin.image_digest,
            image_id=pin.image_id,
            lock_sha256=pin.lock_sha256,
            runner_sha256=None,
            versions={},
            hw_id=None,
            system_id=None,
            hot={},
            trial_cores=None if limits is None else cores_text(limits.cores),
            memory_limit_bytes=None if limits is None else limits.memory_bytes,
        )

    def _with_system(self, context: RowContext, fingerprint: Fingerprint) -> RowContext:
        identity, hardware, hot = system_id(fingerprint), hw_id(fingerprint), hot_columns(fingerprint)
        public = dataclasses.replace(fingerprint, private=None)
        self._writer.put_system(system_row(identity, hardware, hot, encode(public)))
        return replace(context, hw_id=hardware, system_id=identity, hot=hot)

    def _with_environment(self, host: str, context: RowContext, seen: Environment) -> RowContext:
        pin = self._pin(host, context.environment)
        identity = environment_id(pin, seen.versions)
        self._writer.put_environment(
            environment_row(
                identity,
                context.environment,
                seen.versions,
                {name: value for name, value in seen.facts.items() if not is_of_this_run(name)},
                image_digest=pin.image_digest,
                lock_sha256=pin.lock_sha256,
                image_layers=pin.image_layers,
                image_config_sha256=pin.image_config_sha256,
            )
        )
        return replace(context, environment_id=identity, runner_sha256=seen.runner_sha256, versions=seen.versions)


def environment_id(pin: EnvironmentPin, versions: Mapping[str, str]) -> str:
    """Identity of an environment: what it was made from and what was observed inside it."""
    made_of = {"image": pin.content, "lock": pin.lock_sha256, "versions": dict(versions)}
    return digest(made_of)[:32]


def is_of_this_run(fact: str) -> bool:
    """Whether a fact about an environment is true on this host and in this container only."""
    return fact.startswith(("limit_", "env_", "driver_")) or fact in ("python_executable", "torch_cpu_capability")


def _trial_of(task: Task, trial_id: str) -> Trial:
    return next(trial for trial in task.trials if trial.trial_id == trial_id)


def _origin(task: Task) -> str:
    """The id that a task had when it was planned, whatever number of restarts ago."""
    return task.task_id.partition(AGAIN)[0]


def _restarted(task: Task) -> Task:
    """The same work for another container: a task id names one container, the outer level of replication."""
    return replace(task, task_id=f"{_origin(task)}{AGAIN}{uuid.uuid4().hex[:6]}")


def _unrun(trial: Trial, status: Status, reason: str, now_ns: int, log_tail: str = "") -> TrialRecord:
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
