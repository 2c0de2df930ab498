"""Runs stored trials again: a plan from the store, through the same stations as a sweep, on any host."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from orchestrator.campaign.files import ProjectFiles, drop_caches
from orchestrator.campaign.pins import KnownEnvironments, planning_host
from orchestrator.campaign.provision import (
    Images,
    ReadyHost,
    container,
    images_for,
    provision,
    ready_host,
    remove_leftovers,
    unavailable_on,
)
from orchestrator.campaign.recovery import Spares
from orchestrator.campaign.reproduce.environment import (
    EnvironmentMatch,
    at_hand,
    before_building,
    observed_versions,
    obtain,
    pin_of_then,
)
from orchestrator.campaign.reproduce.reproduction import (
    ReadyTarget,
    Reproduction,
    continuation_of,
    decide,
    order_again,
)
from orchestrator.campaign.reproduce.stored import Configuration, Wanted
from orchestrator.campaign.reproduce.targets import AS_THEN, Allowed, Target, refuse
from orchestrator.campaign.run import Say, Watch, drive_order, listed, refuse_results_elsewhere
from orchestrator.config import Inventory
from orchestrator.environments import Catalogue, ImageIdentity, read_built_images
from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.execution import ProcessSettings
from orchestrator.hosts import HostAccess, HostFacts, Hosts
from orchestrator.hosts.provision import ANSWER_S
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost, environment_problem, model_problem
from orchestrator.store import Store

_Subject = TypeVar("_Subject")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ReproduceRequest:
    """What a command asks for."""

    wanted: Wanted
    targets: Sequence[Target]
    """Where; each host once."""
    allowed: Allowed
    rounds: int | None
    """Null for as many as then, three at least."""
    inventory: Inventory
    files: ProjectFiles
    results: Path
    commit: str | None = None


@dataclass(frozen=True)
class ReproduceOutcome:
    """What became of it."""

    reproduction: Reproduction
    campaign_id: str
    exit_code: int
    """Of a driver in another process; 0 if it did its work."""


def run_reproduction(request: ReproduceRequest, hosts: Hosts, say: Say, watch: Watch) -> ReproduceOutcome:
    """Runs stored trials again.

    Args:
        request: what, and where.
        hosts: how the hosts are reached.
        say: told about choices and long steps.
        watch: shows the progress.

    Raises:
        ConfigurationError: isolation, lock or image differ and that is not allowed, or an environment is unknown.
        NoUsableHostError: a host or its engine does not answer, cannot have the environment, or cannot run the trials.
        InfrastructureError: this machine or its engine is at fault.
    """
    refuse_results_elsewhere(request.results, hosts)
    with hosts.undisturbed():
        preview(request, hosts)
        with hosts.gathered(say):
            ready = make_ready(request, hosts, say)
            reproduction = decide(request.wanted, ready, request.allowed, request.rounds)
            for note in reproduction.notes:
                say(note)
            store = Store.open(request.results)
            chosen = continuation_of(reproduction, store)
            order = order_again(reproduction, chosen, request.inventory, version("taxmeter"), request.commit)
            drop_caches(request.files, keep=chosen.campaign_id)
            code = drive_order(order, hosts, request.files, store, say, watch, _no_spares(request))
    return ReproduceOutcome(reproduction, chosen.campaign_id, code)


def preview(request: ReproduceRequest, hosts: Hosts) -> None:
    """Refuses, before anything is pulled or built, what can be known to differ. Looks at engines, not at records.

    Raises:
        ConfigurationError: isolation, lock or image differ and that is not allowed, or an environment is unknown.
        NoUsableHostError: a host has no engine for what ran in containers, cannot have the environment, or cannot run
            the trials.
    """
    facts, problems = hosts.look()
    _refuse(problems)
    _at_each(hosts, _places(request, hosts, facts), lambda place: _refuse_known_differences(place, request.allowed))


def make_ready(request: ReproduceRequest, hosts: Hosts, say: Say) -> list[ReadyTarget]:
    """Gets the hosts what the stored trials ran in.

    Images are taken from the engine, pulled or sent. Only where another one is allowed the catalogue's is taken
    instead, as for a sweep, and built if need be. Virtual environments are made from their lock.

    Raises:
        ConfigurationError: an image cannot be had, and another one is not allowed.
        NoUsableHostError: a host cannot be used, or an environment cannot be made there.
        InfrastructureError: this machine or its engine is at fault.
    """
    facts, problems = hosts.join([target.name for target in request.targets], say)
    _refuse(problems)
    places = _places(request, hosts, facts)
    _refuse(remove_leftovers(hosts, facts, request.files, say))
    obtained = _at_each(hosts, places, lambda place: _obtain(place, request.allowed, say))
    others = _from_catalogue([images for images in obtained if images.left], request, hosts, say)
    return _at_each(
        hosts,
        {images.place.target.name: images for images in obtained},
        lambda images: _ready(images, others.get(images.place.target.name)),
    )


@dataclass(frozen=True)
class _Place:
    """A host that is to run trials again."""

    target: Target
    access: HostAccess
    facts: HostFacts
    planning: PlanningHost
    known: KnownEnvironments


def _known(request: ReproduceRequest) -> KnownEnvironments:
    """What is known, without the name of any environment."""
    catalogue = request.files.catalogue
    return KnownEnvironments((), Catalogue.load(catalogue), read_built_images(catalogue))


def _no_spares(request: ReproduceRequest) -> Spares:
    """Lost hosts are brought back, and no other one stands for them."""
    settings = {target.name: target.host for target in request.targets}
    return Spares({}, settings, request.inventory, Images({}, None), _known(request))


def _places(request: ReproduceRequest, hosts: Hosts, facts: Mapping[str, HostFacts]) -> dict[str, _Place]:
    known = _known(request)
    targets = {target.name: target for target in request.targets}
    places = _at_each(
        hosts,
        targets,
        lambda target: _place(target, hosts[target.name], facts[target.name], known, request.inventory),
    )
    return {place.target.name: place for place in places}


def _place(
    target: Target, access: HostAccess, facts: HostFacts, known: KnownEnvironments, inventory: Inventory
) -> _Place:
    """The host as far as it is known. An image may be had though the catalogue knows its environment no longer."""
    pins = {configuration.pin.name: configuration.pin for configuration in target.configurations}
    were_in_containers = all(pin.isolation is Isolation.DOCKER for pin in pins.values())
    if target.is_as_then:
        if were_in_containers and facts.isolation is Isolation.PROCESS:
            raise NoUsableHostError(
                f"{target.name}: the trials ran in containers, but {facts.isolation_reason}; start it, or add "
                "--allow-different-image to run them without"
            )
        facts = replace(facts, isolation_reason=AS_THEN)
    if were_in_containers and facts.isolation is Isolation.DOCKER:
        planning = planning_host(facts, target.host, inventory, known, {})
        here = {
            name: EnvironmentPin(name, facts.isolation, facts.isolation_reason, pin.lock_sha256)
            for name, pin in pins.items()
        }
        return _Place(target, access, facts, replace(planning, environments=here), known)
    known = replace(known, names=tuple(target.environments))
    unavailable = unavailable_on(access, facts, known)
    for problem in unavailable.values():
        raise NoUsableHostError(f"{target.name}: {problem}")
    return _Place(target, access, facts, planning_host(facts, target.host, inventory, known, unavailable), known)


def _refuse_known_differences(place: _Place, allowed: Allowed) -> None:
    target = place.target
    for configuration in {trial.pin: trial for trial in target.configurations}.values():
        refuse(configuration, target.name, _match_before(configuration, place), allowed)
    for configuration in target.configurations:
        obstacle = _obstacle(configuration, place)
        if obstacle is not None:
            raise NoUsableHostError(f"{target.name} cannot run {configuration.name}: {obstacle}")


def _match_before(configuration: Configuration, place: _Place) -> EnvironmentMatch:
    here = place.planning.environments[configuration.pin.name]
    if not _both_in_containers(configuration.pin, here):
        return before_building(configuration.pin, here)
    return at_hand(configuration.pin, place.access, place.known.built)


def _both_in_containers(stored: EnvironmentPin, here: EnvironmentPin) -> bool:
    return stored.isolation is here.isolation is Isolation.DOCKER


def _obstacle(configuration: Configuration, place: _Place) -> str | None:
    entry = place.known.catalogue.entries.get(configuration.pin.name)
    # Whether it has a lock today is nothing to an image that is there.
    demands = None if entry is None else replace(entry.demands, unresolved=None)
    machine, device = place.planning.machine, configuration.spec.device
    obstacle = None if demands is None else environment_problem(demands, machine, device)
    return obstacle or model_problem(configuration.spec, machine)


@dataclass(frozen=True)
class _Obtained:
    """The images of then that a host has now."""

    place: _Place
    pins: Mapping[str, EnvironmentPin]
    """By environment."""
    images: Mapping[str, ImageIdentity]
    """By environment, as its engine calls them."""
    left: tuple[str, ...]
    """Environments that come from the catalogue."""


def _obtain(place: _Place, allowed: Allowed, say: Say) -> _Obtained:
    target, name = place.target, place.target.name

    def tell(text: str) -> None:
        say(f"{name}: {text}")

    pins: dict[str, EnvironmentPin] = {}
    images: dict[str, ImageIdentity] = {}
    for environment in target.environments:
        configuration = next(trial for trial in target.configurations if trial.pin.name == environment)
        here = place.planning.environments[environment]
        if not _both_in_containers(configuration.pin, here):
            continue
        got = obtain(configuration.pin, place.access, place.known.built, tell)
        if isinstance(got, EnvironmentMatch):
            refuse(configuration, name, got, allowed)
        else:
            pins[environment] = pin_of_then(configuration.pin, got, here.reason)
            images[environment] = got
    if images:
        with place.access.engine() as engine:
            problem = engine.sharing_problem(place.facts.work_directory, next(iter(images.values())))
        if problem is not None:
            raise InfrastructureError(problem)
        tell(f"trials run in containers of the images of then ({place.facts.isolation_reason})")
    left = tuple(environment for environment in target.environments if environment not in images)
    return _Obtained(place, pins, images, left)


def _from_catalogue(
    obtained: Sequence[_Obtained], request: ReproduceRequest, hosts: Hosts, say: Say
) -> dict[str, ReadyHost]:
    """What is left, by host: as for a sweep."""
    if not obtained:
        return {}
    needed = {images.place.target.name: images.left for images in obtained}
    places = {images.place.target.name: images.place for images in obtained}
    environments = tuple(sorted({environment for left in needed.values() for environment in left}))
    known = replace(next(iter(places.values())).known, names=environments)
    facts = {name: place.facts for name, place in places.items()}
    planned = {
        name: planning_host(facts[name], place.target.host, request.inventory, known, {})
        for name, place in places.items()
    }
    in_containers = {name for name, found in facts.items() if found.isolation is Isolation.DOCKER}
    images = images_for({name for host in in_containers for name in needed[host]}, known, hosts.builder, say)
    ready, problems = provision(hosts, planned, facts, needed, images, known.catalogue, say)
    _refuse(problems)
    return {host.planning.name: host for host in ready}


def _ready(obtained: _Obtained, other: ReadyHost | None) -> ReadyTarget:
    """A host with the images of then and with what came from the catalogue, into which it is looked."""
    place = obtained.place
    executions = {name: container(place.planning, place.facts, image) for name, image in obtained.images.items()}
    others = {} if other is None else other.executions
    made = {} if other is None else {name: other.planning.environments[name] for name in obtained.left}
    pins = {**place.planning.environments, **made, **obtained.pins}
    ready = ready_host(replace(place.planning, environments=pins), place.facts, {**others, **executions})
    installed = {
        name: place.access.call(observed_versions, str(execution.python), ANSWER_S)
        for name, execution in others.items()
        if isinstance(execution, ProcessSettings)
    }
    return ReadyTarget(place.target, ready, installed)


def _at_each(hosts: Hosts, subjects: Mapping[str, _Subject], do: Callable[[_Subject], _Result]) -> list[_Result]:
    """Does something with what concerns each host, by its name, at once. Each is needed: none has a substitute.

    Raises:
        NoUsableHostError: it was not possible everywhere; says why for each host.
    """
    answers = hosts.each(subjects, lambda access: do(subjects[access.name]))
    _refuse({name: answer for name, answer in answers.items() if isinstance(answer, str)})
    return [answer for answer in answers.values() if not isinstance(answer, str)]


def _refuse(problems: Mapping[str, str]) -> None:
    if problems:
        raise NoUsableHostError(listed(problems))
