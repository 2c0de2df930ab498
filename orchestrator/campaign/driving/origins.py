"""What the rows of a task have in common: campaign, host, environment, limits."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.campaign.preparing.seats import exclusive_for, seat_of, seated
from orchestrator.delivery import Origin, Recording, Reproduces
from orchestrator.execution import FakeSettings
from orchestrator.store import RowContext
from runners.contract import Task
from runners.system import Fingerprint, cores_text


@dataclass(frozen=True)
class Origins:
    """Knows where each row of a campaign comes from."""

    campaign_id: str
    hosts: Mapping[str, ReadyHost]
    reproduces: Reproduces | None
    fingerprint: Fingerprint
    """Of this machine."""

    def of(self, host: str, environment: str, task_id: str | None, task: Task | None = None) -> Origin:
        """The origin of a task's rows; of rows that no task made, if `task_id` is null.

        Args:
            host: where they are made.
            environment: of its trials.
            task_id: of the task.
            task: the same, which tells the part of the host that its trials have; by default they have all.
        """
        ready = self.hosts[host]
        pin = ready.planning.environments[environment]
        execution = ready.executions.get(environment) if task is None else seated(ready, task)
        slot = None if task is None else seat_of(ready.planning, task)
        limits = None if isinstance(execution, FakeSettings) else execution
        context = RowContext(
            campaign_id=self.campaign_id,
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
            gpu_uuid=None if slot is None else slot.gpu_uuid,
            exclusive=None if task is None else exclusive_for(ready.planning, task).value,
            slot=None if task is None else slot.index if slot is not None else 0,
        )
        return Origin(context, pin, self.reproduces)

    def recording(self, origin: Origin) -> Recording:
        """Makes rows of the driver's own: of trials that never ran, or that could not say what became of them."""
        recording = Recording(origin)
        ready = self.hosts[str(origin.context.host)]
        fingerprint = self.fingerprint if ready.work_directory is None else ready.fingerprint
        if fingerprint is not None:
            recording.runs_on(fingerprint)
        return recording
