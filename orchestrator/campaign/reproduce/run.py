"""Runs stored trials again: a plan from the store, through the same stations as a sweep, on any host."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from orchestrator.campaign.control import undisturbed
from orchestrator.campaign.driver.campaign_run import drop_caches
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
from orchestrator.campaign.reproduce.environment import EnvironmentMatch, compare, observed_versions, obtain
from orchestrator.campaign.reproduce.reproduction import (
    AS_THEN,
    Allowed,
    ReadyTarget,
    Reproduction,
    Target,
    continuation_of,
    decide,
    order_again,
    refuse,
)
from orchestrator.campaign.reproduce.stored import Configuration, Wanted
from orchestrator.campaign.run import RunOutcome, Watch, drive_order, listed, refuse_results_elsewhere
from orchestrator.config import Inventory
from orchestrator.environments import Catalogue, ImageIdentity, read_built_images
from orchestrator.errors import InfrastructureError, NoUsableHostError, Say
from orchestrator.execution import ProcessSettings
from orchestrator.files import ProjectFiles
from orchestrator.hosts import HostAccess, HostFacts, Hosts
from orchestrator.hosts.pins import KnownEnvironments, planning_host
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
    may_pull: Callable[[str], bool] = lambda _reference: False
    """Asked, by any thread, before an image is pulled that a row names."""

    @cached_property
    def known(self) -> KnownEnvironments:
        """What is known of the environments; it names none of them."""
        catalogue = self.files.catalogue
        return KnownEnvironments((), Catalogue.load(catalogue), read_built_images(catalogue))


def run_reproduction(
    request: ReproduceRequest, hosts: Hosts, say: Say, watch: Watch
) -> tuple[Reproduction, RunOutcome]:
    """Runs stored trials again.

    Args:
        request: what, and where.
        hosts: how the hosts are reached.
        say: told about choices and long steps.
        watch: shows the progress.

    Returns:
        What was decided, and what became of it.

    Raises:
        ConfigurationError: isolation, lock or image differ and that is not allowed, or an environment is unknown.
        NoUsableHostError: a host or its engine does not answer, cannot have the environment, or cannot run the trials.
        InfrastructureError: this machine or its engine is at fault.
    """
    refuse_results_elsewhere(request.results, hosts)
    with undisturbed(hosts):
        preview(request, hosts)
        with hosts.gathered(say):
            ready = make_ready(request, hosts, say)
            reproduction = decide(request.wanted, ready, request.allowed, request.rounds)
            for note in reproduction.notes:
                say(note)
            store = Store.open(request.results)
            chosen = continuation_of(reproduction, store)
            order = order_again(reproduction, chosen, request.inventory, request.commit)
            drop_caches(request.files, keep=chosen.campaign_id)
            # Lost hosts are brought back, and no other one stands for them.
            settings = {target.name: target.host for target in request.targets}
            spares = Spares({}, settings, request.inventory, Images({}, None), request.known)
            code = drive_order(order, hosts, request.files, store, say, watch, spares)
    return reproduction, RunOutcome(chosen.campaign_id, {}, code)


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
    obtained = _at_each(hosts, places, lambda place: _obtain(place, request, say))
    others = _from_catalogue({name: place for name, place in obtained.items() if place.left}, hosts, say)
    return list(_at_each(hosts, obtained, lambda place: _ready(place, others.get(place.target.name))).values())


@dataclass(frozen=True)
class _Place:
    """A host that is to run trials again."""

    target: Target
    access: HostAccess
    facts: HostFacts
    planning: PlanningHost
    known: KnownEnvironments
    images: Mapping[str, ImageIdentity] = field(default_factory=dict)
    """Of then, as its engine calls them, by environment."""

    @property
    def left(self) -> tuple[str, ...]:
        """Environments that come from the catalogue."""
        return tuple(environment for environment in self.target.environments if environment not in self.images)

    def runs_in_container_again(self, configuration: Configuration) -> bool:
        """Whether the image of then can be asked for."""
        return configuration.pin.isolation is self.facts.isolation is Isolation.DOCKER


def _places(request: ReproduceRequest, hosts: Hosts, facts: Mapping[str, HostFacts]) -> dict[str, _Place]:
    targets = {target.name: target for target in request.targets}
    return _at_each(hosts, targets, lambda target: _place(target, hosts[target.name], facts[target.name], request))


def _place(target: Target, access: HostAccess, facts: HostFacts, request: ReproduceRequest) -> _Place:
    """The host as far as it is known. An image may be had though the catalogue knows its environment no longer."""
    pins = {configuration.pin.name: configuration.pin for configuration in target.configurations}
    were_in_containers = all(pin.isolation is Isolation.DOCKER for pin in pins.values())
    known, unavailable = request.known, dict[str, str]()
    if target.is_as_then:
        if were_in_containers and facts.isolation is Isolation.PROCESS:
            raise NoUsableHostError(
                f"{target.name}: the trials ran in containers, but {facts.isolation_reason}; start it, or add "
                "--allow-different-image to run them without"
            )
        facts = replace(facts, isolation_reason=AS_THEN)
    stays_in_containers = were_in_containers and facts.isolation is Isolation.DOCKER
    if not stays_in_containers:
        known = replace(known, names=tuple(target.environments))
        unavailable = unavailable_on(access, facts, known)
        for problem in unavailable.values():
            raise NoUsableHostError(f"{target.name}: {problem}")
    planning = planning_host(facts, target.host, request.inventory, known, unavailable)
    if stays_in_containers:
        here = {
            name: EnvironmentPin(name, facts.isolation, facts.isolation_reason, pin.lock_sha256)
            for name, pin in pins.items()
        }
        planning = replace(planning, environments=here)
    return _Place(target, access, facts, planning, known)


def _refuse_known_differences(place: _Place, allowed: Allowed) -> None:
    target, machine = place.target, place.planning.machine
    for trial in {trial.pin: trial for trial in target.configurations}.values():
        if place.runs_in_container_again(trial):
            match = obtain(trial.pin, place.access, place.known.built, None)
        else:
            match = compare(trial.pin, place.planning.environments[trial.pin.name])
        if isinstance(match, EnvironmentMatch):
            refuse(trial, target.name, match, allowed)
    for trial in target.configurations:
        entry = place.known.catalogue.entries.get(trial.pin.name)
        # Whether it has a lock today is nothing to an image that is there.
        demands = None if entry is None else replace(entry.demands, unresolved=None)
        obstacle = None if demands is None else environment_problem(demands, machine, trial.spec.device)
        obstacle = obstacle or model_problem(trial.spec, machine)
        if obstacle is not None:
            raise NoUsableHostError(f"{target.name} cannot run {trial.name}: {obstacle}")


def _obtain(place: _Place, request: ReproduceRequest, say: Say) -> _Place:
    """The place with the images of then, as far as they can be had."""
    target, name = place.target, place.target.name

    def tell(text: str) -> None:
        say(f"{name}: {text}")

    pins = dict(place.planning.environments)
    images: dict[str, ImageIdentity] = {}
    for environment in target.environments:
        trial = next(trial for trial in target.configurations if trial.pin.name == environment)
        if not place.runs_in_container_again(trial):
            continue
        got = obtain(trial.pin, place.access, place.known.built, tell, request.may_pull)
        if isinstance(got, ImageIdentity):
            # What is identical keeps its lock and its names: what the engine calls it stands in the settings.
            pins[environment] = replace(
                trial.pin,
                reason=pins[environment].reason,
                image_layers=got.layers,
                image_config_sha256=got.config_sha256,
            )
            images[environment] = got
        elif got is not None:
            refuse(trial, name, got, request.allowed)
    if images:
        with place.access.engine() as engine:
            problem = engine.sharing_problem(place.facts.work_directory, next(iter(images.values())))
        if problem is not None:
            raise InfrastructureError(problem)
        tell(f"trials run in containers of the images of then ({place.facts.isolation_reason})")
    return replace(place, planning=replace(place.planning, environments=pins), images=images)


def _from_catalogue(places: Mapping[str, _Place], hosts: Hosts, say: Say) -> dict[str, ReadyHost]:
    """What is left, by host: as for a sweep."""
    if not places:
        return {}
    needed = {name: place.left for name, place in places.items()}
    environments = {name for left in needed.values() for name in left}
    known = replace(next(iter(places.values())).known, names=tuple(sorted(environments)))
    facts = {name: place.facts for name, place in places.items()}
    planned = {
        name: replace(place.planning, environments=known.pins(place.facts.isolation, place.facts.isolation_reason))
        for name, place in places.items()
    }
    in_containers = {name for name, found in facts.items() if found.isolation is Isolation.DOCKER}
    images = images_for({name for host in in_containers for name in needed[host]}, known, hosts.builder, say)
    ready, problems = provision(hosts, planned, facts, needed, images, known.catalogue, say)
    _refuse(problems)
    return {host.planning.name: host for host in ready}


def _ready(place: _Place, other: ReadyHost | None) -> ReadyTarget:
    """A host with the images of then and with what came from the catalogue, into which it is looked."""
    executions = {name: container(place.planning, place.facts, image) for name, image in place.images.items()}
    others = {} if other is None else other.executions
    made = {} if other is None else {name: other.planning.environments[name] for name in place.left}
    planning = replace(place.planning, environments={**place.planning.environments, **made})
    ready = ready_host(planning, place.facts, {**others, **executions})
    installed = {
        name: place.access.call(observed_versions, str(execution.python), ANSWER_S)
        if place.facts.interpreter is None
        else dict(place.facts.interpreter.versions)
        for name, execution in others.items()
        if isinstance(execution, ProcessSettings)
    }
    return ReadyTarget(place.target, ready, installed)


def _at_each(hosts: Hosts, subjects: Mapping[str, _Subject], do: Callable[[_Subject], _Result]) -> dict[str, _Result]:
    """Does something with what concerns each host, by its name, at once. Each is needed: none has a substitute.

    Raises:
        NoUsableHostError: it was not possible everywhere; says why for each host.
    """
    answers, problems = hosts.each(subjects, lambda access: do(subjects[access.name]))
    _refuse(problems)
    return answers


def _refuse(problems: Mapping[str, str]) -> None:
    if problems:
        raise NoUsableHostError(listed(problems))
