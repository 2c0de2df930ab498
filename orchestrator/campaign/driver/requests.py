"""What a task needs on its host, and where its rows come from."""

import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.campaign.provision import ReadyHost
from orchestrator.config import Exclusive
from orchestrator.execution import DockerSettings, ExecutionSettings, FakeSettings, PackedCode, pack
from orchestrator.files import ProjectFiles, WorkFiles
from orchestrator.hosts.lock import HostLock
from orchestrator.pin import EnvironmentPin
from orchestrator.planning import PlannedTask, Slot, is_of_gpu, slot_of
from orchestrator.scheduling import Acknowledgement, Leftovers, Returned, TaskRequest, WorkerProcess
from orchestrator.store.origin import Reproduces, RowContext, TaskOrigin, origin_document
from orchestrator.store.rows import RowBuilder
from runners.contract import Task, digest
from runners.system import Fingerprint, cores_text


@dataclass(frozen=True)
class Seat:
    """Where on its host a task runs: which GPU, which cores, how much of the memory."""

    execution: ExecutionSettings
    slot: Slot | None
    """Null for a task of processors, which has the host, and where no GPU is known."""
    part: str | None
    """The GPU, where others may run beside it; null for all of the host."""

    @property
    def exclusive(self) -> Exclusive:
        """What the task has for itself while it runs."""
        return Exclusive.HOST if self.part is None else Exclusive.GPU


def seat_of(host: ReadyHost, task: Task) -> Seat:
    """How a task starts on its host.

    In one of several slots it has the slot's cores and an equal share of the memory, whether something runs in the
    others or not: a trial is to mean the same whenever it runs.
    """
    execution, slots = host.executions[task.environment], host.planning.slots
    slot = slot_of(slots, task) if slots and is_of_gpu(task) else None
    part = None if slot is None or len(slots) == 1 else slot.gpu_uuid
    if slot is not None and not isinstance(execution, FakeSettings):
        execution = replace(execution, gpu_uuid=slot.gpu_uuid)
        if len(slots) > 1:
            execution = replace(execution, cores=slot.cores, memory_bytes=execution.memory_bytes // len(slots))
    return Seat(execution, slot, part)


@dataclass
class Requests:
    """Knows of a campaign's hosts where their files are, and of its tasks what they run with."""

    campaign_id: str
    hosts: dict[str, ReadyHost]
    """By name; those that are offered while the campaign runs are added."""
    files: ProjectFiles
    store_id: str
    fingerprint: Fingerprint
    """Of this machine."""
    reproduces: Reproduces | None = None
    is_cold: bool = False
    """What other campaigns left in the cache is made anew."""
    _packed: PackedCode | None = field(default=None, init=False)

    def origin(self, host: str, environment: str, task: Task | None = None) -> TaskOrigin:
        """The origin of a task's rows, or of rows that no task made.

        Args:
            host: where they are made.
            environment: of its trials.
            task: tells the part of the host that its trials have; null for rows that no task made.
        """
        ready = self.hosts[host]
        pin = ready.planning.environments[environment]
        seat = None if task is None else seat_of(ready, task)
        execution = ready.executions.get(environment) if seat is None else seat.execution
        limits = None if isinstance(execution, FakeSettings) else execution
        slot = None if seat is None else seat.slot
        context = RowContext(
            campaign_id=self.campaign_id,
            task_id=None if task is None else task.task_id,
            host=host,
            isolation=pin.isolation.value,
            executor_reason=pin.reason,
            environment=environment,
            image_digest=pin.image_digest,
            image_id=pin.image_id,
            lock_sha256=pin.lock_sha256,
            trial_cores=None if limits is None else cores_text(limits.cores),
            memory_limit_bytes=None if limits is None else limits.memory_bytes,
            gpu_uuid=None if slot is None else slot.gpu_uuid,
            exclusive=None if seat is None else seat.exclusive.value,
            slot=None if task is None else slot.index if slot is not None else 0,
        )
        if self.reproduces is None:
            return TaskOrigin(context, pin)
        trials = self.reproduces.trials.get(host, {})
        keys = trials.keys() if task is None else {trial.trial_key for trial in task.trials} & trials.keys()
        return TaskOrigin(context, pin, self.reproduces.campaign_id, {key: trials[key] for key in sorted(keys)})

    def builder(self, origin: TaskOrigin) -> RowBuilder:
        """Makes rows; of trials that never ran on the machine that was known before."""
        builder = RowBuilder(origin)
        ready = self.hosts[str(origin.context.host)]
        fingerprint = ready.fingerprint
        if fingerprint is None and ready.work_directory is None:
            fingerprint = self.fingerprint
        if fingerprint is not None:
            builder.runs_on(fingerprint)
        return builder

    def of(
        self, planned: PlannedTask, directory: Path, origin: TaskOrigin, acknowledged: tuple[Acknowledgement, ...]
    ) -> TaskRequest:
        """The request for a task.

        Args:
            planned: the task.
            directory: of the task, on its host.
            origin: what its rows have in common.
            acknowledged: what the host may forget before it begins.
        """
        host, work = self.hosts[planned.host], self.work(planned.host)
        is_served = host.work_directory is not None  # by an agent
        seat = seat_of(host, planned.task)
        execution = seat.execution
        if not isinstance(execution, FakeSettings):
            of_own = any(trial.spec.workload.source is not None for trial in planned.task.every_trial)
            cache = work.cache(planned.task.environment, origin.pin.isolation.value, of_own_models=of_own)
            execution = replace(execution, cache=cache, cache_scope=self._cache_scope(origin.pin))
        if is_served and self._packed is None:
            self._packed = pack(self.files.code(self.campaign_id))
        return TaskRequest(
            planned.host,
            planned.task,
            execution,
            directory,
            self.store_id,
            origin_document(origin),
            work.code(self.campaign_id),
            self._packed if is_served else None,
            # On this machine alone whoever runs the command holds it; to the hosts of a cluster others come too.
            HostLock(seat.part) if is_served else None,
            acknowledged,
            host.fingerprint if host.is_relayed else None,
        )

    def _cache_scope(self, pin: EnvironmentPin) -> str:
        """A digest of what runs; a cold campaign shares its entries with no other."""
        return digest([pin.lock_sha256, pin.content, self.campaign_id if self.is_cold else None])

    def directory(self, planned: PlannedTask) -> Path:
        """A directory on its host that a task has for itself."""
        campaign = self.work(planned.host).campaign(self.campaign_id)
        return campaign / f"{planned.task.task_id}-{uuid.uuid4().hex[:8]}"

    def returned(
        self,
        host: str,
        running: frozenset[str],
        in_use: frozenset[str],
        lost: tuple[WorkerProcess, ...],
        acknowledged: tuple[Acknowledgement, ...],
    ) -> Returned:
        """What is to be done on a host that is back.

        Args:
            host: its name.
            running: ids of tasks that go on there.
            in_use: names of the directories of tasks that go on, wherever.
            lost: what ran the lost ones.
            acknowledged: what the host may forget.
        """
        executions = self.hosts[host].executions.values()
        engines = dict.fromkeys(settings.engine for settings in executions if isinstance(settings, DockerSettings))
        return Returned(self.leftovers(host, in_use), self.campaign_id, tuple(engines), running, lost, acknowledged)

    def leftovers(self, host: str, in_use: frozenset[str] = frozenset()) -> Leftovers:
        """Where records wait on a host."""
        return Leftovers(self.work(host).campaigns, self.store_id, in_use)

    def work(self, host: str) -> WorkFiles:
        """Our files on a host: this machine keeps them in the project."""
        directory = self.hosts[host].work_directory
        return WorkFiles(self.files.state.resolve() if directory is None else Path(directory))
