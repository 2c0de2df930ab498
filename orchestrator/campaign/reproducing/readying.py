"""Makes hosts ready for stored trials: refuses what can be known to differ, then gets them their environments."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.campaign.files import ProjectFiles
from orchestrator.campaign.preparing.hosts import choose_isolation
from orchestrator.campaign.preparing.preparation import (
    Provided,
    ReadyHost,
    Say,
    pins_without_building,
    prepare_hosts,
    ready_host,
    this_machine,
)
from orchestrator.campaign.reproducing.identical import Identity, before_building
from orchestrator.campaign.reproducing.obtaining import at_hand, obtain
from orchestrator.campaign.reproducing.stored import Configuration
from orchestrator.campaign.reproducing.targets import Allowed, Target, refuse
from orchestrator.config.inventory import ExecutorChoice
from orchestrator.environments import Catalogue, engine_problem, read_built_images
from orchestrator.errors import NoUsableHostError
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.planning.feasibility import environment_problem, model_problem


def preview(target: Target, inventory: Path, files: ProjectFiles, allowed: Allowed) -> None:
    """Refuses, before anything is pulled or built, what can be known to differ. Looks at the engine, not at records.

    Raises:
        ConfigurationError: isolation, lock or image differ and that is not allowed, or the environment is unknown.
        NoUsableHostError: the host has no engine for what ran in containers, cannot have the environment, or cannot
            run the trials.
        InfrastructureError: the engine does not answer.
    """
    planning = _planning(target, inventory, files)
    for problem in planning.unavailable.values():
        raise NoUsableHostError(f"{target.name}: {problem}")
    for one in {one.pin: one for one in target.configurations}.values():
        refuse(one, target.name, _before(one, target, planning, files), allowed)
    for one in target.configurations:
        obstacle = _obstacle(one, planning, files)
        if obstacle is not None:
            raise NoUsableHostError(f"{target.name} cannot run {one.name}: {obstacle}")


def make_ready(
    found: Sequence[Target], inventory: Path, files: ProjectFiles, say: Say, allowed: Allowed
) -> list[tuple[Target, ReadyHost]]:
    """Gets the hosts what the stored trials ran in.

    Images are taken from the engine or pulled. Only where another one is allowed the catalogue's is taken instead, as
    for a sweep, and built if need be. Virtual environments are made from their lock.

    Raises:
        ConfigurationError: an image cannot be had, and another one is not allowed.
        NoUsableHostError: the host has no engine for what ran in containers.
        InfrastructureError: the engine does not answer, or an environment cannot be made.
    """
    return [(target, _ready(target, inventory, files, say, allowed)) for target in found]


def _ready(target: Target, inventory: Path, files: ProjectFiles, say: Say, allowed: Allowed) -> ReadyHost:
    planning = _planning(target, inventory, files)
    recorded = read_built_images(files.catalogue)
    provided: dict[str, Provided] = {}
    left: list[str] = []
    for name in target.environments:
        one = next(one for one in target.configurations if one.pin.name == name)
        here = planning.environments[name]
        if not _both_in_containers(one.pin, here):
            left.append(name)
            continue
        got = obtain(one.pin, target.host, planning.cores, here.reason, recorded, say)
        if isinstance(got, Identity):
            refuse(one, target.name, got, allowed)
            left.append(name)
        else:
            provided[name] = got
    if provided:
        reason = next(iter(provided.values()))[0].reason
        say(f"{target.name}: trials run in containers of the images of then ({reason})")
    ready = ready_host(planning, target.host, provided)
    if not left:
        return ready
    [other] = prepare_hosts({target.name: target.host}, inventory, left, files, say, chosen=target.reason)
    pins = {**other.planning.environments, **{name: pin for name, (pin, _) in provided.items()}}
    return replace(
        ready, planning=replace(planning, environments=pins), executions={**other.executions, **ready.executions}
    )


def _planning(target: Target, inventory: Path, files: ProjectFiles) -> PlanningHost:
    """The host as far as it is known now. An image may be had though the catalogue knows its environment no longer."""
    name, host = target.name, target.host
    if target.is_as_then and host.executor is ExecutorChoice.DOCKER:
        problem = engine_problem(host.engine)
        if problem is not None:
            raise NoUsableHostError(
                f"{name}: the trials ran in containers, but {problem}; start it, or add --allow-different-image to "
                "run them without"
            )
    isolation, reason = choose_isolation(name, host, target.reason)
    pins = {one.pin.name: one.pin for one in target.configurations}
    if isolation is Isolation.DOCKER and all(pin.isolation is Isolation.DOCKER for pin in pins.values()):
        here = {name: EnvironmentPin(name, isolation, reason, pin.lock_sha256) for name, pin in pins.items()}
        return this_machine(name, host, inventory, here)
    [planning] = pins_without_building({name: host}, inventory, target.environments, files, target.reason)
    return planning


def _before(one: Configuration, target: Target, planning: PlanningHost, files: ProjectFiles) -> Identity:
    here = planning.environments[one.pin.name]
    if _both_in_containers(one.pin, here):
        return at_hand(one.pin, target.host, read_built_images(files.catalogue))
    return before_building(one.pin, here)


def _both_in_containers(stored: EnvironmentPin, here: EnvironmentPin) -> bool:
    return stored.isolation is here.isolation is Isolation.DOCKER


def _obstacle(one: Configuration, planning: PlanningHost, files: ProjectFiles) -> str | None:
    entry = Catalogue.load(files.catalogue).entries.get(one.pin.name)
    # Whether it has a lock today is nothing to an image that is there.
    demands = None if entry is None else replace(entry.demands, unresolved=None)
    obstacle = None if demands is None else environment_problem(demands, planning.machine, one.spec.device)
    return obstacle or model_problem(one.spec, planning.machine)
