"""Reads the requirements of an environment, its `.in` file, as far as they name one exact version."""

import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.environments.locks import canonical_name
from orchestrator.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXACT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?P<extras>\[[^\]]*\])?\s*==\s*(?P<version>[^\s;,*]+)")


@dataclass(frozen=True)
class Requirement:
    """One line that names one exact version."""

    line: int
    """Its number, from 1."""
    name: str
    """In its canonical spelling."""
    extras: str
    """Such as `[cuda]`, or nothing."""
    version: str

    def __str__(self) -> str:
        return f"{self.name}{self.extras}=={self.version}"


def exact_requirement(path: Path, text: str, name: str) -> Requirement:
    """The requirement of the distribution `name`, which comes from a `wheel_index`.

    Args:
        path: of the requirements, for messages.
        text: of the requirements.
        name: in its canonical spelling.

    Raises:
        ConfigurationError: there is none, there are several, or it is anything else than one exact version.
    """
    found = [
        (number, one) for number, one in enumerate(map(_without_comment, text.splitlines()), 1) if _is_of(one, name)
    ]
    if not found:
        raise ConfigurationError(f"no requirement of {name}, which the catalogue's wheel_index names", file=path)
    number, requirement = found[-1]
    if len(found) > 1:
        problem = f"line {found[0][0]} requires it too; keep one of them"
        raise ConfigurationError(problem, file=path, line=number, key=name)
    exact = _EXACT.fullmatch(requirement)
    if exact is None:
        problem = f"expected {name}==VERSION and no more, since wheel_index has it; not {requirement!r}"
        raise ConfigurationError(problem, file=path, line=number, key=name)
    return Requirement(number, name, exact["extras"] or "", exact["version"])


def _without_comment(line: str) -> str:
    return re.sub(r"(^|\s)#.*$", "", line).strip()


def _is_of(requirement: str, name: str) -> bool:
    start = _NAME.match(requirement)
    return start is not None and canonical_name(start[0]) == name
