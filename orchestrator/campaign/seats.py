"""Where on its host a task runs: which GPU, which cores, how much of the memory."""

from dataclasses import replace

from orchestrator.campaign.provision import ReadyHost
from orchestrator.config import Exclusive
from orchestrator.execution import ExecutionSettings, FakeSettings
from orchestrator.planning import PlanningHost, Slot, is_of_gpu, slot_of
from runners.contract import Task


def seat_of(host: PlanningHost, task: Task) -> Slot | None:
    """The slot of a task of GPUs; null for one of processors, which has the host, and where no GPU is known."""
    return slot_of(host.slots, task) if host.slots and is_of_gpu(task) else None


def seated(host: ReadyHost, task: Task) -> ExecutionSettings:
    """How a task starts on its host.

    In one of several slots it has the slot's cores and an equal share of the memory, whether something runs in the
    others or not: a trial is to mean the same whenever it runs.
    """
    execution = host.executions[task.environment]
    slot = seat_of(host.planning, task)
    if slot is None or isinstance(execution, FakeSettings):
        return execution
    count = len(host.planning.slots)
    if count == 1:
        return replace(execution, gpu_uuid=slot.gpu_uuid)
    return replace(execution, gpu_uuid=slot.gpu_uuid, cores=slot.cores, memory_bytes=execution.memory_bytes // count)


def part_of(host: PlanningHost, task: Task) -> str | None:
    """The part of its host that a task needs for itself: its GPU, or all (null)."""
    slot = seat_of(host, task)
    return None if slot is None or len(host.slots) == 1 else slot.gpu_uuid


def exclusive_for(host: PlanningHost, task: Task) -> Exclusive:
    """What a task has for itself while it runs."""
    return Exclusive.HOST if part_of(host, task) is None else Exclusive.GPU
