"""Gives nodes of a Ray cluster what their trials need: images, or virtual environments where they have no engine."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from orchestrator.campaign.files import ProjectFiles
from orchestrator.campaign.preparing.environments import known_pin
from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.campaign.remote.on_node import (
    Directory,
    EnvironmentWanted,
    ImageWanted,
    Leftovers,
    NodeFacts,
    Recipes,
    find_image,
    make_environment,
    pull_image,
    remove_leftovers,
    share,
)
from orchestrator.campaign.remote.preparation import build_images, pinned
from orchestrator.environments import (
    Awaited,
    BuiltImage,
    Catalogue,
    ImageIdentity,
    StoredImage,
    engine_problem,
    read_built_images,
    receive_image,
    saved_image,
)
from orchestrator.errors import InfrastructureError
from orchestrator.execution import DockerSettings, ExecutionSettings, ProcessSettings
from orchestrator.hosts.broadcast import send
from orchestrator.planning import Isolation, PlanningHost

_ANSWER_S = 120.0
_PULL_S = 3600.0
_LOAD_S = 900.0
"""That an engine may unpack an image of gigabytes after its last byte has come."""
_BUILD_S = 3600.0

Say = Callable[[str], None]
Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class Ask(Protocol):
    """Asks hosts. Those that give no answer get into `failed`, with the reason."""

    def __call__(
        self, question: Callable[[Asked], Answered], of: Mapping[str, Asked], timeout_s: float, failed: dict[str, str]
    ) -> dict[str, Answered]: ...


@dataclass(frozen=True)
class Given:
    """A host that is to get ready."""

    planning: PlanningHost
    facts: NodeFacts
    work_directory: str
    environments: tuple[str, ...]
    """That its trials run in."""


def made_ready(
    given: Mapping[str, Given], files: ProjectFiles, recipes: Recipes, ask: Ask, failed: dict[str, str], say: Say
) -> tuple[ReadyHost, ...]:
    """Makes hosts ready.

    Args:
        given: by name.
        files: whose unfinished campaigns tell which containers are left over; with the record of images.
        recipes: of the environments.
        ask: of the hosts.
        failed: gets the hosts that cannot be made ready, and why.
        say: told about long steps.

    Raises:
        ConfigurationError: an image of this machine is not the recorded one.
        InfrastructureError: an image cannot be built on this machine.
    """
    making = _Making(given, files, recipes, ask, failed, say)
    making.remove_leftovers()
    making.bring_images()
    making.make_environments()
    making.check_directories()
    return tuple(making.ready(name) for name in making.left())


class _Making:
    def __init__(
        self,
        given: Mapping[str, Given],
        files: ProjectFiles,
        recipes: Recipes,
        ask: Ask,
        failed: dict[str, str],
        say: Say,
    ) -> None:
        self._given = given
        self._files = files
        self._recipes = recipes
        self._ask = ask
        self._failed = failed
        self._say = say
        self._images: dict[str, BuiltImage] = {}
        self._found: dict[tuple[str, str], ImageIdentity] = {}
        self._pythons: dict[tuple[str, str], Path] = {}

    def left(self, isolation: Isolation | None = None) -> list[str]:
        """The hosts that have not failed; of one isolation, if one is named."""
        return [
            name
            for name, one in self._given.items()
            if name not in self._failed and isolation in (None, one.facts.isolation)
        ]

    def remove_leftovers(self) -> None:
        directory = self._files.campaigns
        campaigns = tuple(one.name for one in directory.iterdir()) if directory.is_dir() else ()
        of = {name: Leftovers(self._given[name].facts.engine, campaigns) for name in self.left(Isolation.DOCKER)}
        for name, removed in self._ask(remove_leftovers, of if campaigns else {}, _ANSWER_S, self._failed).items():
            for container in removed:
                self._say(f"{name}: removed container {container}, left by a run that was killed")

    def bring_images(self) -> None:
        needed = self._wanted_by(self.left(Isolation.DOCKER))
        here = engine_problem()
        self._images = build_images(needed, self._files, self._say) if needed and here is None else self._recorded()
        for environment, hosts in needed.items():
            image = self._images.get(environment)
            if image is None:
                self._fail(
                    hosts,
                    f"nobody knows the image of {environment}: build it on a machine with an engine (`taxmeter images "
                    f"build {environment}`), and bring docker/images.lock.yaml here",
                )
            else:
                self._bring(environment, image, hosts, here)

    def _bring(self, environment: str, image: BuiltImage, hosts: Collection[str], here: str | None) -> None:
        stored = StoredImage(environment, image.image_id, image.repo_digest, image.identity)
        wanted = {name: ImageWanted(stored, self._given[name].facts.engine) for name in hosts}
        found = self._ask(find_image, wanted, _ANSWER_S, self._failed)
        self._note(environment, found)
        missing = [name for name, one in found.items() if one is None]
        if missing and image.repo_digest is not None:
            self._say(f"{', '.join(missing)}: pulling {image.repo_digest}")
            why: dict[str, str] = {}
            self._note(environment, self._ask(pull_image, {name: wanted[name] for name in missing}, _PULL_S, why))
            missing = list(why)
            for name, problem in why.items():
                self._say(f"{name}: {problem}")
        if missing and here is None:
            self._send(environment, image, missing)
        elif missing:
            self._fail(
                missing,
                f"its engine does not have {image.reference}, and this machine cannot send it: {here}; load it there "
                f"(`taxmeter images save {environment}` where it was built, then `docker load`), or push it to a "
                "registry (`taxmeter images push`)",
            )

    def _send(self, environment: str, image: BuiltImage, hosts: Collection[str]) -> None:
        self._say(f"sending {image.reference} to {', '.join(hosts)}")
        awaited = {name: Awaited(image.reference, image.identity, self._given[name].facts.engine) for name in hosts}
        for name, answer in send(saved_image(image, self._say), receive_image, awaited, _LOAD_S).items():
            if isinstance(answer, InfrastructureError):
                self._failed[name] = f"it could not be sent {image.reference}: {answer}"
            else:
                self._note(environment, {name: answer})

    def make_environments(self) -> None:
        for environment, hosts in self._wanted_by(self.left(Isolation.PROCESS)).items():
            for name in hosts:
                self._say(f"{name}: making sure of the virtual environment {environment} (first time, a minute or two)")
            wanted = {
                name: EnvironmentWanted(environment, self._given[name].work_directory, self._recipes) for name in hosts
            }
            for name, made in self._ask(make_environment, wanted, _BUILD_S, self._failed).items():
                self._pythons[name, environment] = made.python

    def check_directories(self) -> None:
        of = {
            name: Directory(
                self._given[name].work_directory,
                self._given[name].facts.engine,
                self._found[name, self._given[name].environments[0]].image_id,
            )
            for name in self.left(Isolation.DOCKER)
        }
        self._ask(share, of, _ANSWER_S, self._failed)

    def ready(self, name: str) -> ReadyHost:
        one = self._given[name]
        cores, memory_bytes = one.planning.cores, one.facts.memory_bytes
        executions: dict[str, ExecutionSettings] = {}
        for environment in one.environments:
            if one.facts.isolation is Isolation.PROCESS:
                python = self._pythons[name, environment]
                executions[environment] = ProcessSettings(python, cores, memory_bytes, Path())
            else:
                found = self._found[name, environment]
                executions[environment] = DockerSettings(
                    found.image_id, one.facts.engine, cores, memory_bytes, Path(), found
                )
        is_process = one.facts.isolation is Isolation.PROCESS
        images = {} if is_process else {name: self._images[name] for name in one.environments}
        return ReadyHost(
            pinned(one.planning, images),
            executions,
            None,
            work_directory=one.work_directory,
            fingerprint=one.facts.fingerprint,
        )

    def _recorded(self) -> dict[str, BuiltImage]:
        """The images that were built elsewhere, of environments that are still made in that way."""
        catalogue, built = Catalogue.load(self._files.catalogue), read_built_images(self._files.catalogue)
        pins = {name: known_pin(entry, Isolation.DOCKER, "", built) for name, entry in catalogue.entries.items()}
        return {name: built[name] for name, pin in pins.items() if pin.image_id is not None}

    def _wanted_by(self, hosts: Iterable[str]) -> dict[str, list[str]]:
        wanted: dict[str, list[str]] = {}
        for name in hosts:
            for environment in self._given[name].environments:
                wanted.setdefault(environment, []).append(name)
        return wanted

    def _note(self, environment: str, found: Mapping[str, ImageIdentity | None]) -> None:
        self._found |= {(name, environment): one for name, one in found.items() if one is not None}

    def _fail(self, hosts: Iterable[str], problem: str) -> None:
        self._failed |= dict.fromkeys(hosts, problem)
