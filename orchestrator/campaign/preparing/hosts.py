"""What a host gives its trials: whether it can be reached, which isolation, which cores, how much memory."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.campaign.preparing.environments import machine_of
from orchestrator.config.documents import line_of_key
from orchestrator.config.inventory import Connection, ExecutorChoice, Host
from orchestrator.environments import engine_problem
from orchestrator.errors import ConfigurationError, NoUsableHostError
from orchestrator.hosts.connection import unreachable_reason
from orchestrator.planning import Isolation, PlanningHost, Slot, TooFewCoresError, choose_gpus, make_slots, used_of
from runners.system import Fingerprint, Topology, collect

MEMORY_SHARE = 0.9
"""Of the machine's memory, what a container may take: beyond it the kernel would kill others instead of the trial."""

CHOSEN = "chosen in the inventory"
"""Why an isolation was taken that the inventory names."""


def reachable_hosts(hosts: Mapping[str, Host], inventory: Path) -> None:
    """Refuses hosts that cannot be used, before anything is built.

    Raises:
        ConfigurationError: a host cannot be reached, or only over a connection that is not supported.
    """
    for name, host in hosts.items():
        problem = unreachable_reason(name, hosts)
        if problem is None and host.connection is Connection.SSH:
            problem = "it answers over ssh, but trials are reproduced only on the machine that this command runs on"
        if problem is not None:
            raise ConfigurationError(
                f"{host.address or host.ssh_alias} cannot be used: {problem}; "
                f"correct the address, or leave the host out with --limit '!{name}'",
                file=inventory,
                line=line_of_key(inventory, ("hosts", name)),
                key=f"hosts.{name}",
            )


def choose_isolation(name: str, host: Host, chosen: str = CHOSEN) -> tuple[Isolation, str]:
    """The isolation for a host, and why: `chosen` where its `executor` is not `auto`.

    Raises:
        NoUsableHostError: the inventory demands Docker and no engine answers.
    """
    if host.executor is ExecutorChoice.PROCESS:
        return Isolation.PROCESS, chosen
    problem = engine_problem(host.engine)
    if problem is None:
        return Isolation.DOCKER, chosen if host.executor is ExecutorChoice.DOCKER else "a Docker engine answers"
    if host.executor is ExecutorChoice.DOCKER:
        raise NoUsableHostError(f"{name}: executor is docker, but {problem}; start it, or write `executor: auto`")
    return Isolation.PROCESS, problem


def trial_cores(name: str, host: Host, inventory: Path) -> tuple[int, ...]:
    """The cores that trials may use, those of this process without the reserved ones.

    Raises:
        ConfigurationError: none is left.
    """
    return free_cores(name, host, sorted(os.sched_getaffinity(0)), inventory)


def free_cores(name: str, host: Host, cores: Sequence[int], inventory: Path) -> tuple[int, ...]:
    """What is left of a host's cores without the reserved ones, which are the first.

    Raises:
        ConfigurationError: none is left.
    """
    if host.reserved_cores >= len(cores):
        problem = (
            f"{host.reserved_cores} cores are reserved, but the host has {len(cores)}; at most {len(cores) - 1} can be"
        )
        raise _wrong(problem, inventory, name, "reserved_cores")
    return tuple(cores[host.reserved_cores :])


def trial_topology(name: str, host: Host, topology: Topology, inventory: Path) -> Topology:
    """The topology of a host with those of its GPUs that trials may use.

    Raises:
        ConfigurationError: the inventory names a GPU that is not there, or that is divided.
    """
    chosen = choose_gpus(host.gpus, topology.gpus)
    if chosen.problems:
        raise _wrong(f"{'; '.join(chosen.problems)}; correct it, or mend the host", inventory, name, "gpus")
    return replace(topology, gpus=chosen.gpus)


def slots_of(name: str, host: Host, cores: Sequence[int], topology: Topology, inventory: Path) -> tuple[Slot, ...]:
    """The slots of a host, whose topology has those GPUs that trials may use.

    Raises:
        ConfigurationError: there are fewer cores than GPUs.
    """
    try:
        return make_slots(cores, topology, topology.gpus, host.exclusive)
    except TooFewCoresError as error:
        raise _wrong(str(error), inventory, name, "exclusive") from None


def with_machine(
    planning: PlanningHost, host: Host, seen: Fingerprint, memory_bytes: int, inventory: Path
) -> PlanningHost:
    """A host with what follows from its fingerprint: the GPUs that trials use, its slots, and what it can run.

    Args:
        planning: its name, cores and environments.
        host: as the inventory has it.
        seen: the fingerprint.
        memory_bytes: that a trial may take.
        inventory: where the host comes from, for errors.

    Raises:
        ConfigurationError: a GPU is named that it does not have, or it has fewer cores than GPUs.
    """
    known = seen.private.topology if seen.private is not None else None
    topology = trial_topology(planning.name, host, known or Topology(), inventory)
    return replace(
        planning,
        machine=machine_of(seen, memory_bytes, used_of(topology.gpus, host.exclusive)),
        topology=topology,
        slots=slots_of(planning.name, host, planning.cores, topology, inventory),
        exclusive=host.exclusive,
    )


def _wrong(problem: str, inventory: Path, name: str, key: str) -> ConfigurationError:
    where = ("hosts", name, key)
    return ConfigurationError(problem, file=inventory, line=line_of_key(inventory, where), key=".".join(where))


def trial_memory_bytes() -> int:
    """What a trial may take of this machine's memory.

    Raises:
        NoUsableHostError: the size of the memory is unknown.
    """
    seen = collect()
    known = [size for size in (seen.memory.total_bytes, seen.limits.memory_bytes) if size is not None]
    if not known:
        raise NoUsableHostError("the size of this machine's memory cannot be read from /proc/meminfo")
    return int(min(known) * MEMORY_SHARE)
