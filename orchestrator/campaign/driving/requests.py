"""Makes of a planned task all that its host needs to run it."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.campaign.files import ProjectFiles, WorkFiles
from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.campaign.preparing.seats import part_of, seated
from orchestrator.delivery import Destination, Origin
from orchestrator.execution import DockerSettings, ExecutionSettings, FakeSettings, PackedCode, pack
from orchestrator.hosts.lock import HostLock
from orchestrator.planning import PlannedTask
from orchestrator.scheduling import TaskRequest, WorkerProcess
from orchestrator.scheduling.chores import Returned, Waiting
from runners.contract import Task


@dataclass
class Requests:
    """Knows where each host keeps our files, and where it delivers to."""

    campaign_id: str
    hosts: Mapping[str, ReadyHost]
    files: ProjectFiles
    store_id: str
    driver: tuple[str, int, bytes]
    """Address, port and token of the driver."""
    _packed: PackedCode | None = field(default=None, init=False)

    def of(self, planned: PlannedTask, slot: int, origin: Origin) -> TaskRequest:
        """The request for a task.

        Args:
            planned: the task.
            slot: of its host.
            origin: what its rows have in common.
        """
        host, task = planned.host, planned.task
        work = self.work(host)
        return TaskRequest(
            host,
            task,
            self._execution(host, task, origin),
            work.campaign(self.campaign_id) / f"{task.task_id}-{uuid.uuid4().hex[:8]}",
            origin,
            self.destination(host),
            work.code(self.campaign_id),
            None if self.hosts[host].work_directory is None else self._code(),
            slot,
            self._lock(planned),
        )

    def returned(self, host: str, running: frozenset[str], lost: tuple[WorkerProcess, ...]) -> Returned:
        """What is to be done on a host that is back.

        Args:
            host: its name.
            running: ids of tasks that go on there.
            lost: what ran the lost ones.
        """
        executions = self.hosts[host].executions.values()
        engines = dict.fromkeys(one.engine for one in executions if isinstance(one, DockerSettings))
        return Returned(Waiting(host, self.destination(host)), self.campaign_id, tuple(engines), running, lost)

    def destination(self, host: str) -> Destination:
        """Where a host delivers to, and what it keeps its rows in until then."""
        return Destination(*self.driver, self.work(host).spool(self.store_id))

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

    def _execution(self, host: str, task: Task, origin: Origin) -> ExecutionSettings:
        environment = origin.context.environment
        execution = seated(self.hosts[host], task)
        if isinstance(execution, FakeSettings):
            return execution
        isolation = origin.pin.isolation.value
        return replace(execution, cache=self.work(host).cache(self.campaign_id, environment, isolation))


def work_of(host: ReadyHost, files: ProjectFiles) -> WorkFiles:
    """Our files on a host: this machine keeps them in the project."""
    return WorkFiles(files.state.resolve() if host.work_directory is None else Path(host.work_directory))
