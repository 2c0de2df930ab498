"""The catalogue of environments, `docker/images.yaml`, and the digests that identify one of them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from orchestrator.documents import StrictModel, did_you_mean, line_of_key, load_yaml
from orchestrator.errors import ConfigurationError

DOCKERFILE = "Dockerfile"
WHEEL_DIRECTORY = "wheels"

_Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]


class WheelIndex(StrictModel):
    """Distributions that do not come from the site's usual package index, and where they are published."""

    url: Annotated[str, Field(pattern=r"^(https|file)://")]
    distributions: Annotated[tuple[_Name, ...], Field(min_length=1)]


class EnvironmentDescription(StrictModel):
    """One environment as the catalogue writes it. `lock` is relative to the catalogue's directory."""

    purpose: Annotated[str, Field(min_length=1)]
    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    platform: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    base: Annotated[str, Field(pattern=r"^[^@\s]+@sha256:[0-9a-f]{64}$")]
    base_verified: Annotated[str, Field(min_length=1)]
    debian_suite: Annotated[str, Field(pattern=r"^[a-z]+$")]
    lock: Annotated[str, Field(min_length=1)]
    wheel_index: WheelIndex | None = None


class EnvironmentEntry(EnvironmentDescription):
    """One environment with its name and the directory that its paths start from."""

    name: str
    directory: Path

    @property
    def lock_path(self) -> Path:
        """The lock: each distribution with its exact version and the hashes of its files."""
        return self.directory / self.lock

    @property
    def wheel_directory(self) -> Path:
        """Where a site may put wheels by hand, and where those of `wheel_index` are kept."""
        return self.directory / WHEEL_DIRECTORY

    @property
    def state_directory(self) -> Path:
        """Logs and locks of this project on this machine; nothing in it is worth keeping."""
        return self.directory.parent / ".taxmeter"


class _Document(StrictModel):
    environments: Annotated[dict[_Name, EnvironmentDescription], Field(min_length=1)]


@dataclass(frozen=True)
class Catalogue:
    """All environments, by name."""

    path: Path
    entries: dict[str, EnvironmentEntry]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the catalogue.

        Raises:
            ConfigurationError: it is malformed, or the lock of an environment does not exist.
        """
        path = path.absolute()
        entries = {
            name: EnvironmentEntry(name=name, directory=path.parent, **dict(description))
            for name, description in load_yaml(path, _Document).environments.items()
        }
        for name, entry in entries.items():
            if not entry.lock_path.is_file():
                where = ("environments", name, "lock")
                raise ConfigurationError(
                    f"no such file: {entry.lock_path}; `make lock` writes the locks",
                    file=path,
                    line=line_of_key(path, where),
                    key=".".join(where),
                )
        return cls(path, entries)

    def entry(self, name: str) -> EnvironmentEntry:
        """The environment called `name`.

        Raises:
            ConfigurationError: there is none.
        """
        if name not in self.entries:
            raise ConfigurationError(f"unknown environment {name}; {did_you_mean(name, self.entries)}", file=self.path)
        return self.entries[name]


def lock_sha256(entry: EnvironmentEntry) -> str:
    """Digest of the lock's bytes: equal for the image and the virtual environment of one environment."""
    return hashlib.sha256(entry.lock_path.read_bytes()).hexdigest()


def recipe_sha256(entry: EnvironmentEntry) -> str:
    """Digest of all that the image is made from: the Dockerfile, the lock, the Python and the declared base."""
    recipe = {
        "base": entry.base,
        "debian_suite": entry.debian_suite,
        "dockerfile": hashlib.sha256((entry.directory / DOCKERFILE).read_bytes()).hexdigest(),
        "lock": lock_sha256(entry),
        "python": entry.python,
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
