"""Runs stored trials again: a plan from the store, through the same stations as a sweep, on any host."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from orchestrator.campaign.control import undisturbed
from orchestrator.campaign.provision import (
    Images,
    ReadyHost,
    images_for,
    provision,
    remove_leftovers,
    unavailable_on,
)
from orchestrator.campaign.recovery import Spares
from orchestrator.campaign.reproduce.environment import (
    compare,
    image_here,
    observed_versions,
    stored_image,
    without_image,
)
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
from orchestrator.campaign.reproduce.stored import StoredTrials
from orchestrator.campaign.run import RunOutcome, Watch, drive_order, listed, refuse_results_elsewhere
from orchestrator.config import Inventory
from orchestrator.environments import Catalogue, ImageIdentity, read_built_images
from orchestrator.errors import NoUsableHostError, Say
from orchestrator.execution import ProcessSettings
from orchestrator.files import ProjectFiles
from orchestrator.hosts import HostAccess, HostFacts, Hosts
from orchestrator.hosts.pins import KnownEnvironments, planning_host
from orchestrator.hosts.provision import ANSWER_S, obtain
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost, environment_problem, model_problem
from orchestrator.store import Store

_Subject = TypeVar("_Subject")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ReproduceRequest:
    """What a command asks for."""

    wanted: StoredTrials
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
    places = _places(request, hosts, facts)
    _at_each(hosts, places, lambda place: _refuse_known_differences(place, hosts[place.target.name], request))


def make_ready(request: ReproduceRequest, hosts: Hosts, say: Say) -> list[ReadyTarget]:
    """Gets the hosts what the stored trials ran in, as for a sweep.

    Images are those of then: taken from the engine, pulled or sent. Only where another one is allowed the catalogue's
    is taken instead, and built if need be. Virtual environments are made from their lock.

    Raises:
        ConfigurationError: an image cannot be had, and another one is not allowed.
        NoUsableHostError: a host cannot be used, or an environment cannot be made there.
        InfrastructureError: this machine or its engine is at fault.
    """
    facts, problems = hosts.join([target.name for target in request.targets], say)
    _refuse(problems)
    places = _places(request, hosts, facts)
    _refuse(remove_leftovers(hosts, facts, request.files, say))
    planned = {name: place.planning for name, place in places.items()}
    needed = {name: place.target.environments for name, place in places.items()}
    facts, images = {name: place.facts for name, place in places.items()}, ImagesOfThen(request, hosts.builder, say)
    ready, problems = provision(hosts, planned, facts, needed, images, request.known.catalogue, say)
    _refuse(problems)

    def looked_into(host: ReadyHost) -> ReadyTarget:
        target, interpreter = places[host.planning.name].target, facts[host.planning.name].interpreter
        installed = {
            name: hosts[target.name].call(observed_versions, str(execution.python), ANSWER_S)
            if interpreter is None
            else dict(interpreter.versions)
            for name, execution in host.executions.items()
            if isinstance(execution, ProcessSettings)
        }
        return ReadyTarget(target, host, installed)

    return list(_at_each(hosts, {host.planning.name: host for host in ready}, looked_into).values())


class ImagesOfThen:
    """The images that stored trials ran in; only where another one is allowed that of the catalogue."""

    def __init__(self, request: ReproduceRequest, builder: str | None, say: Say) -> None:
        """Asks nothing yet.

        Args:
            request: what is run again, and what is allowed.
            builder: address of the engine on which images of the catalogue are built; null for the usual one.
            say: told about that.
        """
        self._request = request
        self._targets = {target.name: target for target in request.targets}
        self._builder = builder
        self._say = say
        self._building = threading.Lock()

    def bring(self, access: HostAccess, pin: EnvironmentPin, tell: Say) -> tuple[EnvironmentPin, ImageIdentity]:
        """See `ImageSource.bring`. What is identical keeps its lock and its names.

        Raises:
            ConfigurationError: the image cannot be had, and another one is not allowed.
        """
        request = self._request
        trial = next(trial for trial in self._targets[access.name].configurations if trial.pin.name == pin.name)
        if trial.pin.isolation is Isolation.DOCKER:
            image, recorded = stored_image(trial.pin), request.known.built
            own = {built.repo_digest for built in recorded.values()}
            with access.engine() as engine:
                here = None if engine.look(image).found is not None else image_here(image, recorded)
                got = obtain(engine, image, here, tell, lambda digest: digest in own or request.may_pull(digest))
                if isinstance(got, ImageIdentity):
                    then = replace(trial.pin, reason=pin.reason)
                    return replace(then, image_layers=got.layers, image_config_sha256=got.config_sha256), got
                match = without_image(image, engine.look(image).nearest, access.name, got)
            refuse(trial, access.name, match, request.allowed)
        known = replace(request.known, names=(pin.name,))
        with self._building:
            images = images_for(known.names, known, self._builder, self._say)
        return images.bring(access, pin, tell)


@dataclass(frozen=True)
class _Place:
    """A host that is to run trials again, as far as it is known."""

    target: Target
    facts: HostFacts
    planning: PlanningHost


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
    return _Place(target, facts, planning)


def _refuse_known_differences(place: _Place, access: HostAccess, request: ReproduceRequest) -> None:
    target, machine, known = place.target, place.planning.machine, request.known
    for trial in {trial.pin: trial for trial in target.configurations}.values():
        if trial.pin.isolation is place.facts.isolation is Isolation.DOCKER:
            image = stored_image(trial.pin)
            with access.engine() as engine:
                looked = engine.look(image)
            if looked.found or image.registry_digest is not None or image_here(image, known.built) is not None:
                continue
            match = without_image(image, looked.nearest, target.name, "it was never pushed into a registry")
        else:
            match = compare(trial.pin, place.planning.environments[trial.pin.name])
        refuse(trial, target.name, match, request.allowed)
    for trial in target.configurations:
        entry = known.catalogue.entries.get(trial.pin.name)
        # Whether it has a lock today is nothing to an image that is there.
        demands = None if entry is None else replace(entry.demands, unresolved=None)
        obstacle = None if demands is None else environment_problem(demands, machine, trial.spec.device)
        obstacle = obstacle or model_problem(trial.spec, machine)
        if obstacle is not None:
            raise NoUsableHostError(f"{target.name} cannot run {trial.name}: {obstacle}")


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
