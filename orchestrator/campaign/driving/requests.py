"""Makes of a planned task all that its host needs to run it."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.campaign.files import ProjectFiles, WorkFiles
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.seats import part_of, seated
from orchestrator.execution import DockerSettings, ExecutionSettings, FakeSettings, PackedCode, pack
from orchestrator.hosts.lock import HostLock
from orchestrator.planning import PlannedTask
from orchestrator.scheduling import Acknowledgement, Leftovers, Returned, TaskRequest, WorkerProcess
from orchestrator.store import TaskOrigin, origin_document
from runners.contract import Task


@dataclass
class Requests:
    """Knows where each host keeps our files."""

    campaign_id: str
    hosts: Mapping[str, ReadyHost]
    files: ProjectFiles
    store_id: str
    _packed: PackedCode | None = field(default=None, init=False)

    def directory(self, planned: PlannedTask) -> Path:
        """A directory on its host that a task has for itself."""
        campaign = self.work(planned.host).campaign(self.campaign_id)
        return campaign / f"{planned.task.task_id}-{uuid.uuid4().hex[:8]}"

    def of(
        self,
        planned: PlannedTask,
        slot: int,
        directory: Path,
        origin: TaskOrigin,
        acknowledged: tuple[Acknowledgement, ...],
    ) -> TaskRequest:
        """The request for a task.

        Args:
            planned: the task.
            slot: of its host.
            directory: of the task, on its host.
            origin: what its rows have in common.
            acknowledged: what the host may forget before it begins.
        """
        host, task = planned.host, planned.task
        return TaskRequest(
            host,
            task,
            self._execution(host, task, origin),
            directory,
            self.store_id,
            origin_document(origin),
            self.work(host).code(self.campaign_id),
            None if self.hosts[host].work_directory is None else self._code(),
            slot,
            self._lock(planned),
            acknowledged,
        )

    def returned(
        self,
        host: str,
        running: Mapping[str, Path],
        lost: tuple[WorkerProcess, ...],
        acknowledged: tuple[Acknowledgement, ...],
    ) -> Returned:
        """What is to be done on a host that is back.

        Args:
            host: its name.
            running: the directories of tasks that go on there, by task id.
            lost: what ran the lost ones.
            acknowledged: what the host may forget.
        """
        executions = self.hosts[host].executions.values()
        engines = dict.fromkeys(settings.engine for settings in executions if isinstance(settings, DockerSettings))
        in_use = frozenset(directory.name for directory in running.values())
        return Returned(
            self.leftovers(host, in_use), self.campaign_id, tuple(engines), frozenset(running), lost, acknowledged
        )

    def leftovers(self, host: str, in_use: frozenset[str] = frozenset()) -> Leftovers:
        """Where records wait on a host."""
        return Leftovers(host, self.work(host).campaigns, self.store_id, in_use)

    def work(self, host: str) -> WorkFiles:
        """Our files on a host."""
        return work_of(self.hosts[host], self.files)

    def _lock(self, planned: PlannedTask) -> HostLock | None:
        """On this machine alone whoever runs the command holds it; to the hosts of a cluster others come too."""
        host = self.hosts[planned.host]
        if host.work_directory is None:
            return None
        return HostLock(part_of(host.planning, planned.task))

    def _code(self) -> PackedCode:
        if self._packed is None:
            self._packed = pack(self.files.code(self.campaign_id))
        return self._packed

    def _execution(self, host: str, task: Task, origin: TaskOrigin) -> ExecutionSettings:
        environment = origin.context.environment
        execution = seated(self.hosts[host], task)
        if isinstance(execution, FakeSettings):
            return execution
        isolation = origin.pin.isolation.value
        return replace(execution, cache=self.work(host).cache(self.campaign_id, environment, isolation))


def work_of(host: ReadyHost, files: ProjectFiles) -> WorkFiles:
    """Our files on a host: this machine keeps them in the project."""
    return WorkFiles(files.state.resolve() if host.work_directory is None else Path(host.work_directory))
