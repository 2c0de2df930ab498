"""Locks, and the `.in` files that they are resolved from: which distributions, which versions, which files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from orchestrator.errors import ConfigurationError

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
    """The pins of an environment's lock, by canonical name.

    Raises:
        ConfigurationError: a line is no pin with hashes, or holds for some platforms only.
    """
    pins: dict[str, Pin] = {}
    for line, text in _logical_lines(path.read_text(encoding="utf-8")):
        requirement = _parsed(text.partition("--hash=")[0])
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


def exact_requirement(path: Path, text: str, name: str) -> tuple[int, Requirement]:
    """The requirement of one exact version of a distribution that comes from a `wheel_index`, and its line.

    Args:
        path: of the requirements, for messages.
        text: of the requirements.
        name: in its canonical spelling.

    Raises:
        ConfigurationError: there is none, there are several, or it is anything else than one exact version.
    """
    lines = list(_logical_lines(text))
    found = [(number, line) for number, line in lines if canonicalize_name((_NAME.match(line) or [""])[0]) == name]
    if not found:
        raise ConfigurationError(f"no requirement of {name}, which the catalogue's wheel_index names", file=path)
    number, line = found[-1]
    if len(found) > 1:
        problem = f"line {found[0][0]} requires it too; keep one of them"
        raise ConfigurationError(problem, file=path, line=number, key=name)
    requirement = _parsed(line)
    if requirement is None or requirement.marker is not None or exact_version(requirement) is None:
        problem = f"expected {name}==VERSION and no more, since wheel_index has it; not {line!r}"
        raise ConfigurationError(problem, file=path, line=number, key=name)
    return number, requirement


def exact_version(requirement: Requirement) -> str | None:
    """The version, as it is spelled; null if the requirement names none or more than one."""
    specifiers = list(requirement.specifier)
    if len(specifiers) != 1 or specifiers[0].operator != "==" or specifiers[0].version.endswith("*"):
        return None
    return specifiers[0].version


def _parsed(text: str) -> Requirement | None:
    try:
        return Requirement(text.strip())
    except InvalidRequirement:
        return None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
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
