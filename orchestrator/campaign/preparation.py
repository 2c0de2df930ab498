"""Makes hosts ready: reached, their isolation chosen, their environments built and pinned."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from orchestrator.campaign.files import ProjectFiles
from orchestrator.documents import line_of_key
from orchestrator.errors import ConfigurationError, NoUsableHostError
from orchestrator.execution import DockerSettings, ExecutionSettings, ProcessSettings, remove_containers
from orchestrator.images import (
    Catalogue,
    EnvironmentEntry,
    connect,
    engine_problem,
    ensure_image,
    ensure_virtualenv,
    lock_sha256,
    read_built_images,
    recipe_sha256,
    virtualenv_problem,
)
from orchestrator.inventory import Connection, ExecutorChoice, Host, unreachable_reason
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from runners.system import collect

MEMORY_SHARE = 0.9
"""Of the machine's memory, what a container may take: beyond it the kernel would kill others instead of the trial."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class ReadyHost:
    """A host that can start trials now."""

    planning: PlanningHost
    executions: Mapping[str, ExecutionSettings]
    """By environment; the cache is still to be set for a campaign."""
    engine: str | None
    agent_cores: frozenset[int] = frozenset()
    """Cores kept for the agent; empty if it shares all."""


def reachable_hosts(hosts: Mapping[str, Host], inventory: Path) -> None:
    """Refuses hosts that cannot be used, before anything is built.

    Raises:
        ConfigurationError: a host cannot be reached, or only over a connection that is not supported.
    """
    for name, host in hosts.items():
        problem = unreachable_reason(host)
        if problem is None and host.connection is Connection.SSH:
            problem = "it answers over ssh, but this version measures only the machine that it runs on"
        if problem is not None:
            raise ConfigurationError(
                f"{host.address} cannot be used: {problem}; "
                f"correct the address, or leave the host out with --limit '!{name}'",
                file=inventory,
                line=line_of_key(inventory, ("hosts", name)),
                key=f"hosts.{name}",
            )


def prepare_hosts(
    hosts: Mapping[str, Host], inventory: Path, environments: Sequence[str], files: ProjectFiles, say: Say
) -> list[ReadyHost]:
    """Builds what the hosts need.

    Args:
        hosts: local hosts, by name.
        inventory: where they come from, for errors.
        environments: names from the catalogue.
        files: where the catalogue and the state are.
        say: told, in a line each, about choices and long steps.

    Raises:
        ConfigurationError: an environment is unknown, or a host keeps all its cores for the agent.
        NoUsableHostError: `executor: docker` and no engine answers.
        InfrastructureError: an environment cannot be built.
    """
    catalogue = Catalogue.load(files.catalogue)
    entries = [catalogue.entry(name) for name in environments]
    ready = [_prepare(name, host, inventory, entries, files, say) for name, host in hosts.items()]
    _refuse_without_any([host.planning for host in ready])
    return ready


def pins_without_building(
    hosts: Mapping[str, Host], inventory: Path, environments: Sequence[str], files: ProjectFiles
) -> list[PlanningHost]:
    """The hosts as far as they are known now: an image that is not built has no identity yet."""
    catalogue = Catalogue.load(files.catalogue)
    built = read_built_images(files.catalogue)
    planned = []
    for name, host in hosts.items():
        isolation, reason = choose_isolation(name, host)
        pins = {}
        for entry in (catalogue.entry(environment) for environment in environments):
            image = built.get(entry.name) if isolation is Isolation.DOCKER else None
            current = image if image is not None and image.recipe_sha256 == recipe_sha256(entry) else None
            pins[entry.name] = EnvironmentPin(
                entry.name,
                isolation,
                reason,
                lock_sha256(entry),
                image_id=current.image_id if current else None,
                image_digest=(current.repo_digest or current.image_id) if current else None,
            )
        unavailable = _unavailable(isolation, [catalogue.entry(one) for one in environments], files)
        planned.append(PlanningHost(name, host.labels, trial_cores(name, host, inventory), pins, unavailable))
    _refuse_without_any(planned)
    return planned


def _unavailable(isolation: Isolation, entries: Sequence[EnvironmentEntry], files: ProjectFiles) -> dict[str, str]:
    """What a host cannot have at all; what cannot be built, though it should, is an error and not found here."""
    if isolation is not Isolation.PROCESS:
        return {}
    problems = {entry.name: virtualenv_problem(entry, files.environments) for entry in entries}
    return {name: problem for name, problem in problems.items() if problem is not None}


def _refuse_without_any(hosts: Sequence[PlanningHost]) -> None:
    if hosts and all(set(host.environments) == set(host.unavailable) for host in hosts):
        reasons = dict.fromkeys(reason for host in hosts for reason in host.unavailable.values())
        raise NoUsableHostError("; ".join(reasons))


def choose_isolation(name: str, host: Host) -> tuple[Isolation, str]:
    """The isolation for a host, and why.

    Raises:
        NoUsableHostError: the inventory demands Docker and no engine answers.
    """
    if host.executor is ExecutorChoice.PROCESS:
        return Isolation.PROCESS, "chosen in the inventory"
    problem = engine_problem(host.engine)
    if problem is None:
        chosen = host.executor is ExecutorChoice.DOCKER
        return Isolation.DOCKER, "chosen in the inventory" if chosen else "a Docker engine answers"
    if host.executor is ExecutorChoice.DOCKER:
        raise NoUsableHostError(f"{name}: executor is docker, but {problem}; start it, or write `executor: auto`")
    return Isolation.PROCESS, problem


def trial_cores(name: str, host: Host, inventory: Path) -> tuple[int, ...]:
    """The cores that trials may use, those of this process without the reserved ones.

    Raises:
        ConfigurationError: none is left.
    """
    cores = sorted(os.sched_getaffinity(0))
    if host.reserved_cores >= len(cores):
        raise ConfigurationError(
            f"{host.reserved_cores} cores are reserved, but the host has {len(cores)}; at most {len(cores) - 1} can be",
            file=inventory,
            line=line_of_key(inventory, ("hosts", name, "reserved_cores")),
            key=f"hosts.{name}.reserved_cores",
        )
    return tuple(cores[host.reserved_cores :])


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


def _prepare(
    name: str, host: Host, inventory: Path, entries: Sequence[EnvironmentEntry], files: ProjectFiles, say: Say
) -> ReadyHost:
    isolation, reason = choose_isolation(name, host)
    cores = trial_cores(name, host, inventory)
    unavailable = _unavailable(isolation, entries, files)
    locks = {entry.name: lock_sha256(entry) for entry in entries}
    for problem in unavailable.values():
        say(f"{name}: {problem}; its trials are skipped")
    entries = [entry for entry in entries if entry.name not in unavailable]
    if isolation is Isolation.DOCKER:
        say(f"{name}: trials run in containers ({reason})")
        provided = _images(host, entries, cores, reason, say)
    else:
        say(f"{name}: trials run in virtual environments made from the same lock ({reason})")
        provided = _virtualenvs(entries, cores, reason, files, say)
    pins = {environment: pin for environment, (pin, _) in provided.items()}
    pins |= {one: EnvironmentPin(one, isolation, reason, lock) for one, lock in locks.items() if one in unavailable}
    executions = {environment: execution for environment, (_, execution) in provided.items()}
    agent_cores = frozenset(os.sched_getaffinity(0)) - set(cores)
    planning = PlanningHost(name, host.labels, cores, pins, unavailable)
    return ReadyHost(planning, executions, host.engine, agent_cores)


def _images(
    host: Host, entries: Sequence[EnvironmentEntry], cores: tuple[int, ...], reason: str, say: Say
) -> dict[str, tuple[EnvironmentPin, ExecutionSettings]]:
    provided: dict[str, tuple[EnvironmentPin, ExecutionSettings]] = {}
    with closing(connect(host.engine)) as client:
        for entry in entries:
            image = ensure_image(entry, client, say, host.engine)
            pin = EnvironmentPin(
                entry.name,
                Isolation.DOCKER,
                reason,
                image.lock_sha256,
                image_id=image.image_id,
                image_digest=image.repo_digest or image.image_id,
            )
            provided[entry.name] = (
                pin,
                DockerSettings(image.image_id, host.engine, cores, trial_memory_bytes(), cache=Path()),
            )
    return provided


def _virtualenvs(
    entries: Sequence[EnvironmentEntry], cores: tuple[int, ...], reason: str, files: ProjectFiles, say: Say
) -> dict[str, tuple[EnvironmentPin, ExecutionSettings]]:
    provided: dict[str, tuple[EnvironmentPin, ExecutionSettings]] = {}
    for entry in entries:
        environment = ensure_virtualenv(entry, files.environments, say)
        pin = EnvironmentPin(entry.name, Isolation.PROCESS, reason, environment.lock_sha256)
        provided[entry.name] = (pin, ProcessSettings(environment.python, cores, trial_memory_bytes(), cache=Path()))
    return provided


def reap_leftovers(hosts: Sequence[ReadyHost], files: ProjectFiles) -> list[str]:
    """Removes the containers of campaigns that were killed here. Their directories tell which ones those are.

    Returns the names of the containers. The caller holds the machine for itself, so that none of them is in use.
    """
    if not files.campaigns.is_dir():
        return []
    engines = {
        execution.engine
        for host in hosts
        for execution in host.executions.values()
        if isinstance(execution, DockerSettings)
    }
    left = [directory.name for directory in files.campaigns.iterdir()]
    return [name for engine in engines for campaign in left for name in remove_containers(engine, campaign)]
