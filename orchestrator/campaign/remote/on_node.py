"""What a node of somebody else's Ray cluster is asked and told: functions for `Scheduler.ask`, which run there."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.campaign.preparing.hosts import choose_isolation, trial_memory_bytes
from orchestrator.config import Host, local_engine
from orchestrator.environments import (
    Catalogue,
    ImageIdentity,
    StoredImage,
    VirtualEnvironment,
    ensure_virtualenv,
    look_for_image,
    pull_stored_image,
    virtualenv_problem,
)
from orchestrator.errors import ConfigurationError, InfrastructureError, NoUsableHostError
from orchestrator.execution import remove_containers
from orchestrator.execution.shared import shared_directory_problem
from orchestrator.planning import Isolation
from runners.system import Fingerprint, collect

CATALOGUE = "docker/images.yaml"


@dataclass(frozen=True)
class Recipes:
    """The catalogue and its locks, on their way to a node."""

    files: Mapping[str, bytes] = field(repr=False)
    """By their path in the project."""

    def unpack(self, directory: Path) -> Catalogue:
        """Writes them below a directory, and reads them there."""
        for name, content in self.files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return Catalogue.load(directory / CATALOGUE)

    @contextmanager
    def unpacked(self) -> Iterator[Catalogue]:
        """The catalogue, as long as the block lasts."""
        with tempfile.TemporaryDirectory(prefix="taxmeter-recipes-") as directory:
            yield self.unpack(Path(directory))


@dataclass(frozen=True)
class NodeQuestion:
    """What a node is asked about itself."""

    name: str
    """Of the host that it is."""
    host: Host
    work_directory: str
    environments: Sequence[str]
    """Those that trials may run in."""
    recipes: Recipes


@dataclass(frozen=True)
class NodeFacts:
    """What a node tells about itself."""

    fingerprint: Fingerprint
    """As the rows of its trials will have it."""
    cores: tuple[int, ...]
    """That processes of Ray may use there."""
    memory_bytes: int
    """That a trial may take."""
    isolation: Isolation
    reason: str
    """Why it is that one."""
    engine: str | None
    """Address of its engine, as it has it; null for the usual one."""
    niceness: int
    """At which Ray's processes run there; trials without a container inherit it."""
    unavailable: Mapping[str, str]
    """Environments that it cannot have without containers, and why."""


def look_here(question: NodeQuestion) -> NodeFacts:
    """What this node is. Nothing is changed.

    Raises:
        InfrastructureError: it cannot be used; says why.
    """
    _refuse_directory(Path(question.work_directory))
    engine = local_engine(question.host.engine)
    host = question.host.model_copy(update={"engine": engine})
    try:
        isolation, reason = choose_isolation(question.name, host)
        memory_bytes = trial_memory_bytes()
    except NoUsableHostError as error:
        raise InfrastructureError(str(error).removeprefix(f"{question.name}: ")) from error
    unavailable: dict[str, str] = {}
    if isolation is Isolation.PROCESS:
        with question.recipes.unpacked() as catalogue:
            entries = [catalogue.entry(name) for name in question.environments]
            root = environments_of(question.work_directory)
            problems = {one.name: virtualenv_problem(one, root) for one in entries if one.unresolved is None}
        unavailable = {name: problem for name, problem in problems.items() if problem is not None}
    return NodeFacts(
        collect(),
        tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes,
        isolation,
        reason,
        engine,
        os.getpriority(os.PRIO_PROCESS, 0),
        unavailable,
    )


@dataclass(frozen=True)
class Leftovers:
    """What killed campaigns may have left on a node."""

    engine: str | None
    campaigns: tuple[str, ...]


def remove_leftovers(left: Leftovers) -> list[str]:
    """Removes their containers, and returns the names.

    Raises:
        InfrastructureError: the engine does not answer.
    """
    return [name for campaign in left.campaigns for name in remove_containers(left.engine, campaign)]


@dataclass(frozen=True)
class ImageWanted:
    """An image that a node's engine must have."""

    stored: StoredImage
    engine: str | None


def find_image(wanted: ImageWanted) -> ImageIdentity | None:
    """The image as the engine has it, whatever it is called there; null if it does not.

    Raises:
        InfrastructureError: the engine does not answer.
    """
    return look_for_image(wanted.stored, wanted.engine).found


def pull_image(wanted: ImageWanted) -> ImageIdentity:
    """Pulls the image by its digest.

    Raises:
        InfrastructureError: the registry cannot be reached from there, or gives another image.
    """
    return pull_stored_image(wanted.stored, wanted.engine, lambda _: None)


@dataclass(frozen=True)
class Directory:
    """A directory of a node that its containers must see too."""

    path: str
    engine: str | None
    image_id: str


def share(directory: Directory) -> bool:
    """True, if containers of the node's engine see the directory as the node does; it is made if it is missing.

    Raises:
        InfrastructureError: they do not.
    """
    path = Path(directory.path)
    _make(path)
    problem = shared_directory_problem(directory.engine, directory.image_id, path)
    if problem is not None:
        raise InfrastructureError(problem)
    return True


@dataclass(frozen=True)
class EnvironmentWanted:
    """A virtual environment that a node must have."""

    environment: str
    work_directory: str
    recipes: Recipes


def make_environment(wanted: EnvironmentWanted) -> VirtualEnvironment:
    """Makes it from its lock, unless it is there.

    Raises:
        InfrastructureError: a package cannot be fetched there, or there is no Python for it.
    """
    directory = Path(wanted.work_directory)
    _make(directory)
    catalogue = wanted.recipes.unpack(directory / "recipes")
    try:
        return ensure_virtualenv(
            catalogue.entry(wanted.environment), environments_of(wanted.work_directory), lambda _: None
        )
    except ConfigurationError as error:
        raise InfrastructureError(str(error)) from error


def environments_of(work_directory: str) -> Path:
    """Where a node keeps virtual environments."""
    return Path(work_directory) / "environments"


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InfrastructureError(f"{directory} cannot be made: {error.strerror or error}") from error


def _refuse_directory(directory: Path) -> None:
    if not _may_write(directory):
        raise InfrastructureError(
            f"Ray's processes may not write into {directory}: give them the directory, or name another one as "
            "`work_directory:`"
        )


def _may_write(directory: Path) -> bool:
    try:
        there = next(one for one in (directory, *directory.parents) if one.exists())
    except PermissionError:
        return False  # it is below a directory that is closed for us
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
