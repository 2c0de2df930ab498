"""The catalogue of environments, `docker/images.yaml`, their locks, and the digests that identify one of them."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import Field, model_validator

from orchestrator.config import Document, Source, StrictModel, load_yaml
from orchestrator.errors import ConfigurationError, did_you_mean
from orchestrator.planning import ANY_SUITABLE, Demands

DOCKERFILE = "Dockerfile"
WHEEL_DIRECTORY = "wheels"

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")
_Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
_Text = Annotated[str, Field(min_length=1)]


class WheelIndex(StrictModel):
    """Distributions that do not come from the site's usual package index, and where they are published."""

    url: Annotated[str, Field(pattern=r"^(https|file)://")]
    distributions: Annotated[tuple[_Name, ...], Field(min_length=1)]


class RecordedWheel(StrictModel):
    """A wheel whose digest is known from public records alone: it was never fetched to compute it."""

    version: Annotated[str, Field(pattern=r"^[^\s+]+\+[a-z0-9.]+$")]
    """With its local part, such as `1.12.1+cu116`. The version without it is published too, with equal requirements."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    source: _Text
    confidence: Literal["high", "medium"]


class EnvironmentDescription(StrictModel):
    """One environment as the catalogue writes it. `lock` is relative to the catalogue's directory."""

    purpose: _Text
    released: Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
    """Year and month of its newest framework (torch, ONNX Runtime): what `any-suitable` calls newer."""
    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    platform: Annotated[str, Field(pattern=r"^manylinux_\d+_\d+_(x86_64|aarch64)$")]
    base: Annotated[str, Field(pattern=r"^[^@\s]+@sha256:[0-9a-f]{64}$")]
    base_verified: _Text
    """What is known about the digest of the base, and how."""
    debian_suite: Annotated[str, Field(pattern=r"^[a-z]+$")]
    cuda: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    """Null for an environment of processors."""
    cudnn: Annotated[str, Field(pattern=r"^\d+(\.\d+)+$")] | None = None
    minimum_driver: Annotated[str, Field(pattern=r"^\d+(\.\d+)*$")] | None = None
    """The oldest NVIDIA driver under which this CUDA runs."""
    compute_capabilities: tuple[Annotated[str, Field(pattern=r"^\d+\.\d$")], ...] = ()
    """What its builds have machine code for, such as `6.0`. GPUs that run such code too are not listed."""
    lock: _Text
    unresolved: _Text | None = None
    """Why `lock` could not be written yet: such an environment is listed, and its trials are skipped for this."""
    hashes_verified: _Text
    """What is known about the hashes of the lock, and how."""
    wheel_index: WheelIndex | None = None
    recorded: dict[_Name, RecordedWheel] = Field(default_factory=dict)
    """Distributions of `wheel_index` that could not be fetched when the lock was made."""
    deviations: tuple[_Text, ...] = ()
    """In what it differs from that which its purpose names."""
    only_when_named: bool = False
    """It serves few sweeps: `any-suitable` and `taxmeter images build` without names leave it out."""

    @model_validator(mode="after")
    def _cuda_is_whole(self) -> Self:
        given = [self.cuda, self.cudnn, self.minimum_driver, self.compute_capabilities or None]
        if None in given and given != [None] * 4:
            raise ValueError("cuda, cudnn, minimum_driver and compute_capabilities stand together or not at all")
        return self

    @model_validator(mode="after")
    def _recorded_are_of_the_index(self) -> Self:
        foreign = self.recorded.keys() - (set(self.wheel_index.distributions) if self.wheel_index else set())
        if foreign:
            raise ValueError(f"recorded names {', '.join(sorted(foreign))}, which wheel_index does not; add it there")
        return self

    @property
    def demands(self) -> Demands:
        """What it needs of a host."""
        return Demands(
            self.released,
            self.cuda,
            self.minimum_driver,
            self.compute_capabilities,
            self.unresolved,
            only_when_named=self.only_when_named,
            architecture=self.architecture,
        )

    @property
    def architecture(self) -> str:
        """Of the processors that its wheels are built for, such as `x86_64`."""
        return self.platform.split("_", 3)[3]


class EnvironmentEntry(EnvironmentDescription):
    """One environment with its name and the directory that its paths start from."""

    name: str
    directory: Path

    @property
    def lock_path(self) -> Path:
        """The lock: each distribution with its exact version and the hashes of its files."""
        return self.directory / self.lock

    @property
    def requirements_path(self) -> Path:
        """What the lock is resolved from."""
        return self.lock_path.with_suffix(".in")

    @property
    def wheel_directory(self) -> Path:
        """Where a site may put wheels by hand, and where those of `wheel_index` are kept."""
        return self.directory / WHEEL_DIRECTORY

    @property
    def state_directory(self) -> Path:
        """Logs and locks of this project on this machine; nothing in it is worth keeping."""
        return self.directory.parent / ".taxmeter"


class _Document(Document):
    environments: Annotated[dict[_Name, EnvironmentDescription], Field(min_length=1)]


@dataclass(frozen=True)
class Catalogue:
    """All environments, by name."""

    path: Path
    entries: dict[str, EnvironmentEntry]

    @classmethod
    def load(cls, path: Path, *, without_locks: bool = False) -> Self:
        """Reads the catalogue.

        Args:
            without_locks: whether locks may be missing, because they are about to be written.
        """
        path = path.absolute()
        document = load_yaml(path, _Document)
        entries = {
            name: EnvironmentEntry(name=name, directory=path.parent, **dict(description))
            for name, description in document.environments.items()
        }
        for name, entry in entries.items():
            if name == ANY_SUITABLE:
                problem = "sweeps use this name for any environment; take another"
                raise document.error(problem, "environments", name)
            if not without_locks and entry.unresolved is None and not entry.lock_path.is_file():
                problem = f"no such file: {entry.lock_path}; `taxmeter images lock {name}` writes it"
                raise document.error(problem, "environments", name, "lock")
        return cls(path, entries)

    def entry(self, name: str) -> EnvironmentEntry:
        if name not in self.entries:
            raise ConfigurationError(f"unknown environment {name}; {did_you_mean(name, self.entries)}", file=self.path)
        return self.entries[name]


def lock_sha256(entry: EnvironmentEntry) -> str:
    """Digest of the lock's bytes: equal for the image and the virtual environment of one environment."""
    if entry.unresolved is not None:
        raise ConfigurationError(f"the environment {entry.name} has no lock: {entry.unresolved}")
    return hashlib.sha256(entry.lock_path.read_bytes()).hexdigest()


def recipe_sha256(entry: EnvironmentEntry) -> str:
    """Digest of all that the image is made from."""
    return recipe_digest(entry.base, entry.debian_suite, entry.directory / DOCKERFILE, lock_sha256(entry), entry.python)


def recipe_digest(base: str, debian_suite: str, dockerfile: Path, lock: str, python: str) -> str:
    """Digest of what an image is made from; the lock is given by its own."""
    content = hashlib.sha256(dockerfile.read_bytes()).hexdigest()
    recipe = {"base": base, "debian_suite": debian_suite, "dockerfile": content, "lock": lock, "python": python}
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def description(entry: EnvironmentEntry) -> tuple[str, ...]:
    """What the catalogue says about an environment that decides whether to trust it, a line for each part.

    Why it has no lock is not among it: that is the first thing to say of such an environment, not a detail.
    """
    parts = [
        ("platform", entry.platform),
        ("base", entry.base),
        ("base verified", entry.base_verified),
        ("hashes verified", entry.hashes_verified),
    ]
    if entry.cuda is not None:
        parts += [
            ("CUDA", entry.cuda),
            ("cuDNN", entry.cudnn or "unknown"),
            ("minimum driver", entry.minimum_driver or "unknown"),
            ("machine code for", f"{', '.join(entry.compute_capabilities)}; docs/environments.md says what runs it"),
        ]
    if entry.wheel_index is not None:
        parts.append(("wheel index", f"{entry.wheel_index.url} for {', '.join(entry.wheel_index.distributions)}"))
    parts += [
        ("recorded", f"{name} {wheel.version}, confidence {wheel.confidence}: {wheel.source}")
        for name, wheel in entry.recorded.items()
    ]
    parts += [("deviation", deviation) for deviation in entry.deviations]
    width = max(len(label) for label, _ in parts) + 1
    return tuple(f"{label + ':':{width}} {text}" for label, text in parts)


@dataclass(frozen=True)
class Pin:
    """One distribution of a lock."""

    name: str
    version: str
    sha256: frozenset[str]

    @property
    def requirement(self) -> str:
        """The pin as a line of a requirements file."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{h}" for h in sorted(self.sha256))])


def read_lock(path: Path) -> dict[str, Pin]:
    """The pins of an environment's lock, by canonical name."""
    pins: dict[str, Pin] = {}
    for line, text in logical_lines(Source.read(path).text):
        requirement = parsed_requirement(text.partition("--hash=")[0])
        version = None if requirement is None else exact_version(requirement)
        if requirement is None or version is None:
            raise ConfigurationError(
                f"expected name==version --hash=…, not {text[:60]!r}; `make lock` writes the locks",
                file=path,
                line=line,
            )
        name, hashes = canonicalize_name(requirement.name), frozenset(_HASH.findall(text))
        if requirement.marker is not None:
            raise ConfigurationError(
                "a lock of an environment is for one platform, so it has no markers", file=path, line=line, key=name
            )
        if name in pins:
            raise ConfigurationError("this distribution is pinned twice", file=path, line=line, key=name)
        if not hashes:
            raise ConfigurationError("this pin has no --hash=sha256:…", file=path, line=line, key=name)
        pins[name] = Pin(name, version, hashes)
    return pins


def exact_version(requirement: Requirement) -> str | None:
    """The version, as it is spelled; null if the requirement names none or more than one."""
    specifiers = list(requirement.specifier)
    if len(specifiers) != 1 or specifiers[0].operator != "==" or specifiers[0].version.endswith("*"):
        return None
    return specifiers[0].version


def parsed_requirement(text: str) -> Requirement | None:
    """A line as the requirement that it is; null if it is none."""
    try:
        return Requirement(text.strip())
    except InvalidRequirement:
        return None


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continuations joined, each with the number of its first line."""
    parts: list[str] = []
    first = 1
    for number, raw in enumerate([*text.splitlines(), ""], start=1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        first = number if not parts else first
        parts += [line.removesuffix("\\").strip()] if line else []
        if parts and not line.endswith("\\"):
            yield first, " ".join(parts)
            parts = []
