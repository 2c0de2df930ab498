"""Gives one host what its trials run in: an image on its engine, or a virtual environment made from the same lock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.environments import (
    BuiltImage,
    Catalogue,
    ImageIdentity,
    StoredImage,
    ensure_virtualenv,
    virtualenv_problem,
)
from orchestrator.errors import ConfigurationError, InfrastructureError, Say
from orchestrator.execution import pack_files, unpack
from orchestrator.hosts.engine import HostEngine

ANSWER_S = 120.0
"""For looks. The first answer may bring our code to the host and start a process there."""

MAKE_S = 3600.0
"""For a virtual environment, whose packages may come over a slow line."""

_CATALOGUE = "docker/images.yaml"


@dataclass(frozen=True)
class Recipes:
    """The catalogue of environments and its locks, for hosts that do not have the project."""

    project: str
    """Where they were read. A host that has the very same there uses them in place, with the wheels beside them."""
    files: Mapping[str, str] = field(repr=False)
    """Contents by their path in the project."""

    def catalogue(self, directory: Path) -> Catalogue:
        """The catalogue on this host; written below `directory` if the project is not here."""
        if all(_text(Path(self.project) / name) == content for name, content in self.files.items()):
            return Catalogue.load(Path(self.project) / _CATALOGUE)
        # A directory for each content: other projects have theirs here too.
        packed, recipes = pack_files({name: text.encode() for name, text in self.files.items()}), directory / "recipes"
        try:
            return Catalogue.load(unpack(packed, recipes) / _CATALOGUE)
        except OSError as error:
            raise InfrastructureError(f"{recipes} cannot be written: {error.strerror or error}") from error


def read_recipes(catalogue: Catalogue) -> Recipes:
    """The recipes of a project."""
    root = catalogue.path.absolute().parents[1]
    locks = (entry.lock_path for entry in catalogue.entries.values() if entry.lock_path.is_file())
    paths = [catalogue.path.absolute(), *(path.absolute() for path in locks)]
    return Recipes(str(root), {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths})


@dataclass(frozen=True)
class EnvironmentsWanted:
    """Virtual environments that a host is asked about, or is to make."""

    environments: tuple[str, ...]
    work_directory: str
    recipes: Recipes


def unavailable_environments(wanted: EnvironmentsWanted) -> dict[str, str]:
    """Which of the environments this host cannot have, and why. Nothing is built. Those without a lock are left out."""
    directory = Path(wanted.work_directory)
    catalogue = wanted.recipes.catalogue(directory)
    entries = [catalogue.entry(name) for name in wanted.environments]
    problems = {
        entry.name: virtualenv_problem(entry, directory / "environments")
        for entry in entries
        if entry.unresolved is None
    }
    return {name: problem for name, problem in problems.items() if problem is not None}


def make_environments(wanted: EnvironmentsWanted) -> dict[str, str]:
    """Makes virtual environments from their locks, unless they are there. Returns the path of Python of each."""
    directory = Path(wanted.work_directory)
    catalogue = wanted.recipes.catalogue(directory)
    try:
        return {
            name: str(ensure_virtualenv(catalogue.entry(name), directory / "environments", lambda _: None))
            for name in wanted.environments
        }
    except ConfigurationError as error:
        raise InfrastructureError(str(error)) from error


def obtain(
    engine: HostEngine,
    image: StoredImage,
    here: BuiltImage | None,
    say: Say,
    may_pull: Callable[[str], bool] = lambda _digest: True,
) -> ImageIdentity | str:
    """An image as a host's engine has it, which gets it from a registry or from this machine if it does not.

    Args:
        here: the same as this machine's engine has it and can send it; null if it cannot.
        may_pull: asked before an image is pulled by its digest.

    Returns:
        The image; or why no registry gives it, where this machine cannot send it either.
    """
    found, digest = engine.look(image).found, image.registry_digest
    if found is not None:
        return found
    why = "it was never pushed into a registry"
    if digest is not None and not may_pull(digest):
        why = f"{digest}, which a row names, is pulled only if --pull says so"
    elif digest is not None:
        say(f"pulling {digest}")
        try:
            return engine.pull(image)
        except InfrastructureError as error:
            why = str(error)
            say(why)
    return why if here is None else engine.send(here, say)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
