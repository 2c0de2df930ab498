"""Gives a host's trials the cores and the memory that stored trials had."""

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.campaign.preparing.hosts import MEMORY_SHARE
from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.campaign.reproducing.stored import Limits
from orchestrator.errors import NoUsableHostError
from orchestrator.execution import ExecutionSettings, FakeSettings
from runners.system import cores_text


def limited(host: ReadyHost, limits: Mapping[str, Limits], threads: int) -> ReadyHost:
    """The host with the limits of then, where they are known; else with its own.

    Args:
        host: ready to start trials.
        limits: by environment.
        threads: the most that a trial asks for.

    Raises:
        NoUsableHostError: it has too few cores or too little memory.
    """
    executions = {
        environment: _limited(host, execution, limits[environment]) if environment in limits else execution
        for environment, execution in host.executions.items()
    }
    for execution in executions.values():
        count = len(host.planning.cores if isinstance(execution, FakeSettings) else execution.cores)
        if threads > count:
            raise NoUsableHostError(f"the trials need {threads} threads, {host.planning.name} has {count} cores")
    # What had cores of its own is repeated one by one: the slots of now may have others.
    return replace(host, executions=executions, planning=replace(host.planning, slots=host.planning.slots[:1]))


def limit_differences(limits: Limits, execution: ExecutionSettings) -> list[str]:
    """One line for each limit that is not that of then; unknown then is no difference."""
    if isinstance(execution, FakeSettings):
        return []
    lines = []
    if limits.cores is not None and limits.cores != execution.cores:
        lines.append(f"cores: expected {cores_text(limits.cores)}, found {cores_text(execution.cores)}")
    if limits.memory_bytes is not None and limits.memory_bytes != execution.memory_bytes:
        lines.append(f"memory: expected {limits.memory_bytes} bytes, found {execution.memory_bytes}")
    return lines


def _limited(host: ReadyHost, execution: ExecutionSettings, limits: Limits) -> ExecutionSettings:
    if isinstance(execution, FakeSettings):
        return execution
    return replace(
        execution, cores=_cores(host, limits), memory_bytes=_memory_bytes(host, execution.memory_bytes, limits)
    )


def _cores(host: ReadyHost, limits: Limits) -> tuple[int, ...]:
    """Those of then if the host has them, else as many."""
    here = host.planning.cores
    if limits.cores is None:
        return here
    if len(limits.cores) > len(here):
        had = f"{len(limits.cores)} cores ({cores_text(limits.cores)})"
        raise NoUsableHostError(f"the trials had {had}, {host.planning.name} has {len(here)} for trials")
    return limits.cores if set(limits.cores) <= set(here) else here[: len(limits.cores)]


def _memory_bytes(host: ReadyHost, usual_bytes: int, limits: Limits) -> int:
    if limits.memory_bytes is None:
        return usual_bytes
    whole_bytes = int(usual_bytes / MEMORY_SHARE)
    if limits.memory_bytes > whole_bytes:
        raise NoUsableHostError(
            f"the trials could take {limits.memory_bytes} bytes of memory, {host.planning.name} has {whole_bytes}"
        )
    return limits.memory_bytes
