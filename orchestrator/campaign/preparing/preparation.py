"""Makes hosts ready: reached, their isolation chosen, their environments built and pinned."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.campaign.files import ProjectFiles
from orchestrator.campaign.preparing.environments import expand, known_pins
from orchestrator.campaign.preparing.hosts import (
    CHOSEN,
    choose_isolation,
    trial_cores,
    trial_memory_bytes,
    with_machine,
)
from orchestrator.config.inventory import Host
from orchestrator.environments import (
    BuiltImage,
    Catalogue,
    EnvironmentEntry,
    ImageIdentity,
    connect,
    ensure_image,
    ensure_virtualenv,
    identity_on,
    read_built_images,
    virtualenv_problem,
)
from orchestrator.errors import NoUsableHostError
from orchestrator.execution import DockerSettings, ExecutionSettings, ProcessSettings, remove_containers
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.planning.feasibility import ANY_SUITABLE, environment_problem
from runners.system import Fingerprint, collect

Provided = tuple[EnvironmentPin, ExecutionSettings]
"""An environment, and how a task starts in it."""

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
    work_directory: str | None = None
    """Where a host that an agent serves keeps our files; null for this machine, which keeps them in the project."""
    fingerprint: Fingerprint | None = None
    """Of a host that an agent serves, as that sees it."""


def prepare_hosts(
    hosts: Mapping[str, Host],
    inventory: Path,
    environments: Sequence[str],
    files: ProjectFiles,
    say: Say,
    needed: Mapping[str, Collection[str]] | None = None,
    chosen: str = CHOSEN,
) -> list[ReadyHost]:
    """Builds what the hosts need.

    Args:
        hosts: local hosts, by name.
        inventory: where they come from, for errors.
        environments: names from the catalogue, or `any-suitable`.
        files: where the catalogue and the state are.
        say: told, in a line each, about choices and long steps.
        needed: by host, the environments that trials will run in; no other is built. By default all that are named.
        chosen: why a host's `executor` is what it is, where it is not `auto`.

    Raises:
        ConfigurationError: an environment is unknown, or a host keeps all its cores for the agent.
        NoUsableHostError: `executor: docker` and no engine answers.
        InfrastructureError: an environment cannot be built.
    """
    catalogue = Catalogue.load(files.catalogue)
    built = read_built_images(files.catalogue)
    ready = []
    for name, host in hosts.items():
        planning = _known(name, host, inventory, environments, catalogue, built, files, chosen)
        wanted = environments if needed is None else needed.get(name, ())
        entries = [catalogue.entry(one) for one in dict.fromkeys(wanted) if one not in planning.unavailable]
        for problem in (planning.unavailable[one] for one in environments if one in planning.unavailable):
            say(f"{name}: {problem}; its trials are skipped")
        ready.append(_prepare(planning, host, entries, files, say))
    _refuse_without_any([host.planning for host in ready])
    return ready


def pins_without_building(
    hosts: Mapping[str, Host],
    inventory: Path,
    environments: Sequence[str],
    files: ProjectFiles,
    chosen: str = CHOSEN,
) -> list[PlanningHost]:
    """The hosts as far as they are known now: an image that is not built has no identity yet."""
    catalogue = Catalogue.load(files.catalogue)
    built = read_built_images(files.catalogue)
    planned = [
        _known(name, host, inventory, environments, catalogue, built, files, chosen) for name, host in hosts.items()
    ]
    _refuse_without_any(planned)
    return planned


def _known(
    name: str,
    host: Host,
    inventory: Path,
    environments: Sequence[str],
    catalogue: Catalogue,
    built: Mapping[str, BuiltImage],
    files: ProjectFiles,
    chosen: str,
) -> PlanningHost:
    isolation, reason = choose_isolation(name, host, chosen)
    entries = expand(environments, catalogue)
    pins = known_pins(environments, entries, isolation, reason, built)
    return replace(
        this_machine(name, host, inventory, pins),
        unavailable=_unavailable(isolation, entries, files),
        demands={entry.name: entry.demands for entry in entries},
    )


def this_machine(name: str, host: Host, inventory: Path, pins: Mapping[str, EnvironmentPin]) -> PlanningHost:
    """This machine as a host: its processors, its GPUs and what follows from them.

    Raises:
        ConfigurationError: it keeps all its cores for the agent, or a GPU is named that it does not have.
        NoUsableHostError: the size of its memory is unknown.
    """
    planning = PlanningHost(name, host.labels, trial_cores(name, host, inventory), pins)
    return with_machine(planning, host, collect(), trial_memory_bytes(), inventory)


def _unavailable(isolation: Isolation, entries: Sequence[EnvironmentEntry], files: ProjectFiles) -> dict[str, str]:
    """What a host cannot have at all; what cannot be built, though it should, is an error and not found here."""
    if isolation is not Isolation.PROCESS:
        return {}
    locked = [entry for entry in entries if entry.unresolved is None]
    problems = {entry.name: virtualenv_problem(entry, files.environments) for entry in locked}
    return {name: problem for name, problem in problems.items() if problem is not None}


def _refuse_without_any(hosts: Sequence[PlanningHost]) -> None:
    problems = [_problems(host) for host in hosts]
    usable = [set(host.environments) - set(known) - {ANY_SUITABLE} for host, known in zip(hosts, problems, strict=True)]
    if any(problems) and not any(usable):
        raise NoUsableHostError("; ".join(dict.fromkeys(reason for known in problems for reason in known.values())))


def _problems(host: PlanningHost) -> dict[str, str]:
    """Why environments cannot be had on a host, whatever the device: no interpreter for them, or no lock."""
    unresolved = {name: environment_problem(demands, None, "cpu") for name, demands in host.demands.items()}
    without_lock = {name: f"{name}: {problem}" for name, problem in unresolved.items() if problem is not None}
    return without_lock | dict(host.unavailable)


def _prepare(
    planning: PlanningHost, host: Host, entries: Sequence[EnvironmentEntry], files: ProjectFiles, say: Say
) -> ReadyHost:
    """Builds the environments of `entries` on a host."""
    cores = planning.cores
    pin = next(iter(planning.environments.values()))
    isolation, reason = pin.isolation, pin.reason
    if isolation is Isolation.DOCKER:
        say(f"{planning.name}: trials run in containers ({reason})")
        provided = _images(host, entries, cores, reason, say)
    else:
        say(f"{planning.name}: trials run in virtual environments made from the same lock ({reason})")
        provided = _virtualenvs(entries, cores, reason, files, say)
    return ready_host(planning, host, provided)


def ready_host(planning: PlanningHost, host: Host, provided: Mapping[str, Provided]) -> ReadyHost:
    """The host with what it provides, by environment."""
    pins = dict(planning.environments) | {environment: pin for environment, (pin, _) in provided.items()}
    executions = {environment: execution for environment, (_, execution) in provided.items()}
    agent_cores = frozenset(os.sched_getaffinity(0)) - set(planning.cores)
    return ReadyHost(replace(planning, environments=pins), executions, host.engine, agent_cores)


def _images(
    host: Host, entries: Sequence[EnvironmentEntry], cores: tuple[int, ...], reason: str, say: Say
) -> dict[str, Provided]:
    provided: dict[str, Provided] = {}
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
                image_layers=image.layers,
                image_config_sha256=image.config_sha256,
            )
            provided[entry.name] = (pin, container(identity_on(client, image), host, cores))
    return provided


def container(image: ImageIdentity, host: Host, cores: tuple[int, ...]) -> DockerSettings:
    """A container of an image, as the host's engine knows it, on these cores."""
    return DockerSettings(image.image_id, host.engine, cores, trial_memory_bytes(), cache=Path(), expected=image)


def _virtualenvs(
    entries: Sequence[EnvironmentEntry], cores: tuple[int, ...], reason: str, files: ProjectFiles, say: Say
) -> dict[str, Provided]:
    provided: dict[str, Provided] = {}
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
