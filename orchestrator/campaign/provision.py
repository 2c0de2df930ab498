"""Makes hosts ready: leftovers removed, images built here and brought there, or virtual environments made there."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from orchestrator.environments import (
    BuiltImage,
    Catalogue,
    EnvironmentEntry,
    ImageIdentity,
    connect,
    engine_problem,
    ensure_image,
    environment_differences,
    read_lock,
)
from orchestrator.errors import InfrastructureError, Say, some_of
from orchestrator.execution import DockerSettings, ExecutionSettings, ProcessSettings, Relay
from orchestrator.files import ProjectFiles
from orchestrator.hosts import HostAccess, HostFacts, Hosts, Interpreter
from orchestrator.hosts.pins import KnownEnvironments, image_pin
from orchestrator.hosts.provision import (
    ANSWER_S,
    MAKE_S,
    EnvironmentsWanted,
    make_environments,
    obtain,
    read_recipes,
    unavailable_environments,
)
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from runners.system import Fingerprint

_SHOWN: Final = 3
"""Differences of an environment that a reason names; the others are counted."""


@dataclass(frozen=True)
class ReadyHost:
    """A host that can start trials now."""

    planning: PlanningHost
    executions: Mapping[str, ExecutionSettings]
    """By environment; the cache is still to be set for a campaign."""
    agent_cores: frozenset[int] = frozenset()
    """Cores kept for the agent; empty if it shares all."""
    work_directory: str | None = None
    """Where a host that an agent serves keeps our files; null for this machine, which keeps them in the project."""
    fingerprint: Fingerprint | None = None
    """As its rows have it."""

    @property
    def is_relayed(self) -> bool:
        """Whether no node of Ray serves it."""
        return any(isinstance(settings, ProcessSettings) and settings.relay for settings in self.executions.values())


class ImageSource(Protocol):
    """Where the images come from that trials run in."""

    def bring(self, access: HostAccess, pin: EnvironmentPin, tell: Say) -> tuple[EnvironmentPin, ImageIdentity]:
        """Has a host's engine get the image of an environment: the environment as rows name it, and the image there.

        Raises:
            InfrastructureError: the host cannot get it; says what to do.
        """
        ...


@dataclass(frozen=True)
class Images:
    """The images that hosts may be given."""

    built: Mapping[str, BuiltImage]
    """By environment."""
    cannot_send: str | None
    """Why this machine cannot send them; null if it can."""

    def bring(self, access: HostAccess, pin: EnvironmentPin, tell: Say) -> tuple[EnvironmentPin, ImageIdentity]:
        image = self.built.get(pin.name)
        if image is None:
            raise InfrastructureError(
                f"nobody knows the image of {pin.name}: build it on a machine with an engine (`taxmeter images build "
                f"{pin.name}`), and bring docker/images.lock.yaml here"
            )
        with access.engine() as engine:
            got = obtain(engine, image.stored(pin.name), image if self.cannot_send is None else None, tell)
        if isinstance(got, str):
            raise InfrastructureError(
                f"its engine does not have {image.reference}, and this machine cannot send it: {self.cannot_send}; "
                "load it there (`taxmeter images save` where it was built, then `docker load`), or push it to a "
                "registry (`taxmeter images push`)"
            )
        return image_pin(pin, image), got


def images_for(environments: Collection[str], known: KnownEnvironments, engine: str | None, say: Say) -> Images:
    """The images of environments: built on an engine of this machine, or, where none answers, those on record.

    Args:
        environments: that trials on engines will run in.
        known: the catalogue, and the record of what was built.
        engine: its address; null for the usual one.
        say: told about long steps.

    Raises:
        ConfigurationError: the engine has another image than the recorded one.
        InfrastructureError: an image can neither be had nor built.
    """
    problem = engine_problem(engine) if environments else None
    if problem is not None:
        pins = known.pins(Isolation.DOCKER, "")
        return Images({name: known.built[name] for name, pin in pins.items() if pin.image_id is not None}, problem)
    if not environments:
        return Images({}, None)
    with closing(connect(engine)) as client:
        entries = [known.catalogue.entry(name) for name in sorted(environments)]
        return Images({entry.name: ensure_image(entry, client, say, engine) for entry in entries}, None)


def unavailable_on(access: HostAccess, facts: HostFacts, known: KnownEnvironments) -> dict[str, str]:
    """What a host cannot have at all; what cannot be built, though it should, is an error and not found here.

    Raises:
        InfrastructureError: it does not answer.
    """
    if facts.isolation is not Isolation.PROCESS:
        return {}
    if facts.interpreter is not None:
        return _not_in(facts.interpreter, [known.catalogue.entry(name) for name in known.locked])
    return access.call(unavailable_environments, _wanted(known.locked, facts, known.catalogue), ANSWER_S)


def remove_leftovers(hosts: Hosts, facts: Mapping[str, HostFacts], files: ProjectFiles, say: Say) -> dict[str, str]:
    """Removes the containers of campaigns that were killed. Their directories here tell which ones those are.

    The caller holds the hosts for itself, so that none of them is in use.

    Args:
        hosts: how they are reached.
        facts: of those that are part of the cluster, by name.
        files: where the directories of unfinished campaigns are.
        say: told what was removed.

    Returns:
        Why that could not be done, by host.
    """
    campaigns = sorted(path.name for path in files.campaigns.iterdir()) if files.campaigns.is_dir() else []

    def remove(access: HostAccess) -> None:
        with access.engine() as engine:
            for container in [name for campaign in campaigns for name in engine.remove_containers(campaign)]:
                say(f"{access.name}: removed container {container}, left by a run that was killed")

    with_engine = [name for name, found in facts.items() if found.isolation is Isolation.DOCKER]
    _, problems = hosts.each(with_engine if campaigns else (), remove)
    return problems


def provision(
    hosts: Hosts,
    planned: Mapping[str, PlanningHost],
    facts: Mapping[str, HostFacts],
    needed: Mapping[str, Collection[str]],
    images: ImageSource,
    catalogue: Catalogue,
    say: Say,
) -> tuple[list[ReadyHost], dict[str, str]]:
    """Gives hosts what their trials need, all at once.

    Args:
        hosts: how they are reached.
        planned: as planning takes them, by name.
        facts: what they are, by name.
        needed: by host, the environments that its trials run in.
        images: those of hosts with engines.
        catalogue: of the environments.
        say: told about long steps, with the host's name first.

    Returns:
        The hosts that are ready; and why the others are not, by name.
    """

    def ready(access: HostAccess) -> ReadyHost:
        name = access.name
        environments = sorted(needed[name])

        def tell(text: str) -> None:
            say(f"{name}: {text}")

        if facts[name].isolation is Isolation.DOCKER:
            return _in_containers(access, planned[name], facts[name], environments, images, tell)
        interpreter = facts[name].interpreter
        if interpreter is not None:
            return _in_interpreter(planned[name], facts[name], interpreter, environments, tell)
        return _in_virtual_environments(access, planned[name], facts[name], environments, catalogue, tell)

    found, problems = hosts.each(needed, ready)
    return list(found.values()), problems


def ready_host(planning: PlanningHost, facts: HostFacts, executions: Mapping[str, ExecutionSettings]) -> ReadyHost:
    """A host with what it provides, by environment; with nothing, one of which it is noted what it cannot run."""
    agent_cores = frozenset(facts.cores) - set(planning.cores)
    # what a host without an agent is sent is kept here, beside what this machine keeps as a host
    directory = facts.work_directory if facts.interpreter is None else None
    return ReadyHost(planning, executions, agent_cores, directory, facts.fingerprint)


def _in_containers(
    access: HostAccess,
    planning: PlanningHost,
    facts: HostFacts,
    environments: Sequence[str],
    images: ImageSource,
    tell: Say,
) -> ReadyHost:
    tell(f"trials run in containers ({facts.isolation_reason})")
    found = {name: images.bring(access, planning.environments[name], tell) for name in environments}
    with access.engine() as engine:
        problem = engine.sharing_problem(facts.work_directory, found[environments[0]][1])
    if problem is not None:
        raise InfrastructureError(problem)
    pins = {**planning.environments, **{name: pin for name, (pin, _) in found.items()}}
    memory_bytes = _memory_bytes(facts)
    executions = {
        name: DockerSettings(image.image_id, facts.engine, planning.cores, memory_bytes, Path(), image)
        for name, (_, image) in found.items()
    }
    return ready_host(replace(planning, environments=pins), facts, executions)


def _in_interpreter(
    planning: PlanningHost, facts: HostFacts, interpreter: Interpreter, environments: Sequence[str], tell: Say
) -> ReadyHost:
    tell(f"trials run without containers, over SSH ({facts.isolation_reason})")
    relay = Relay(facts.host, interpreter.relay)
    settings = ProcessSettings(Path(interpreter.python), planning.cores, _memory_bytes(facts), Path(), relay=relay)
    return ready_host(planning, facts, dict.fromkeys(environments, settings))


def _not_in(interpreter: Interpreter, entries: Sequence[EnvironmentEntry]) -> dict[str, str]:
    """The environments that an interpreter is not, each with how it differs from the lock."""
    problems = {}
    for entry in entries:
        pins = {name: pin.version for name, pin in read_lock(entry.lock_path).items()}
        wrong = environment_differences(entry.python, pins, interpreter.versions)
        if wrong:
            problems[entry.name] = (
                f"{interpreter.python} there is not what the lock of {entry.name} says: "
                f"{', '.join(some_of(wrong, _SHOWN))}"
            )
    return problems


def _in_virtual_environments(
    access: HostAccess,
    planning: PlanningHost,
    facts: HostFacts,
    environments: Sequence[str],
    catalogue: Catalogue,
    tell: Say,
) -> ReadyHost:
    tell(f"trials run in virtual environments made from the same lock ({facts.isolation_reason})")
    if facts.niceness:
        tell(
            f"Ray's processes, and so trials without containers, run at nice {facts.niceness} there: start Ray with "
            "RAY_worker_niceness=0"
        )
    tell(f"making sure of {', '.join(environments)} (first time, a minute or two each)")
    pythons = access.call(make_environments, _wanted(environments, facts, catalogue), MAKE_S)
    cores, memory_bytes = planning.cores, _memory_bytes(facts)
    executions = {name: ProcessSettings(Path(python), cores, memory_bytes, Path()) for name, python in pythons.items()}
    return ready_host(planning, facts, executions)


def _memory_bytes(facts: HostFacts) -> int:
    if facts.trial_memory_bytes is None:
        raise InfrastructureError("the size of its memory cannot be read from /proc/meminfo")
    return facts.trial_memory_bytes


def _wanted(environments: Collection[str], facts: HostFacts, catalogue: Catalogue) -> EnvironmentsWanted:
    return EnvironmentsWanted(tuple(environments), facts.work_directory, read_recipes(catalogue))
