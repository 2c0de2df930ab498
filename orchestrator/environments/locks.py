"""Reads a lock file: exact versions and the hashes of the files that may be installed."""

import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ConfigurationError

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)\s*(?P<rest>.*)$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")


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


def canonical_name(name: str) -> str:
    """The one spelling under which package indexes know a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(path: Path) -> dict[str, Pin]:
    """The pins of an environment's lock, by canonical name.

    Raises:
        ConfigurationError: a line is no pin with hashes, or holds for some platforms only.
    """
    pins: dict[str, Pin] = {}
    for line, text in _logical_lines(path):
        match = _PIN.match(text)
        if match is None:
            raise ConfigurationError(
                f"expected name==version --hash=…, not {text[:60]!r}; `make lock` writes the locks",
                file=path,
                line=line,
            )
        name, rest = canonical_name(match["name"]), match["rest"]
        if rest.startswith(";"):
            raise ConfigurationError(
                "a lock of an environment is for one platform, so it has no markers", file=path, line=line, key=name
            )
        hashes = frozenset(_HASH.findall(rest))
        if not hashes:
            raise ConfigurationError("this pin has no --hash=sha256:…", file=path, line=line, key=name)
        pins[name] = Pin(name, match["version"], hashes)
    return pins


def _logical_lines(path: Path) -> list[tuple[int, str]]:
    """Lines without comments, continuations joined, each with the number of its first line."""
    found: list[tuple[int, str]] = []
    continued = False
    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not text:
            continue
        body = text.removesuffix("\\").strip()
        if continued:
            start, before = found[-1]
            found[-1] = (start, f"{before} {body}")
        else:
            found.append((number, body))
        continued = text.endswith("\\")
    return found
