"""Resolves the requirements of environments into their locks, which is what `taxmeter images lock` does.

uv does it, since pip cannot resolve for another Python. Only wheels are considered, as in a build: a source
distribution would have to be run to be looked into.
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from orchestrator.environments.catalogue import (
    Catalogue,
    EnvironmentEntry,
    RecordedWheel,
    exact_version,
    logical_lines,
    parsed_requirement,
    read_lock,
)
from orchestrator.environments.packages import fetch_unlocked, run_uv
from orchestrator.environments.site_settings import uv_environment
from orchestrator.errors import ConfigurationError, InfrastructureError, Say
from orchestrator.files import write_atomically

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class ResolvedLock:
    """What resolving an environment again came to."""

    name: str
    path: Path
    text: str
    changes: tuple[str, ...]
    """One line for each distribution that differs from the lock that is there; empty if the lock stays as it is."""
    is_unresolved: bool
    """Whether the catalogue says that there is no lock."""


def resolve_locks(names: Sequence[str], catalogue: Path, say: Say, *, check: bool) -> list[ResolvedLock]:
    """Resolves the environments `names`, or all that have a lock, and writes the locks unless `check`.

    Nothing is written before all are resolved.
    """
    known = Catalogue.load(catalogue, without_locks=True)
    resolved = []
    for entry in [known.entry(name) for name in names] or known.entries.values():
        if entry.unresolved is not None and not names:
            say(f"{entry.name}: left out: {entry.unresolved}")
            continue
        say(f"{entry.name}: resolving {entry.requirements_path.name}")
        resolved.append(_resolve(entry, say))
    for lock in resolved:
        if lock.changes and not check:
            write_atomically(lock.path, lock.text)
    return resolved


def _with_recorded(lock: str, recorded: dict[str, RecordedWheel]) -> str:
    """A lock with the recorded wheels in place of their stand-ins, the same versions without their local part.

    Raises:
        InfrastructureError: the lock does not pin a stand-in once, with hashes: it would stay in the lock.
    """
    for name, wheel in recorded.items():
        stand_in = f"{name}=={_public(wheel.version)}"
        pattern = re.compile(rf"^{re.escape(stand_in)}((?:[ \t]*\\\n[ \t]*--hash=\S+)+)$", re.MULTILINE)
        lock, replaced = pattern.subn(f"{name}=={wheel.version} \\\\\n    --hash=sha256:{wheel.sha256}", lock)
        if replaced != 1:
            raise InfrastructureError(
                f"what uv resolved pins {stand_in} with its hashes {replaced} times, not once, so the recorded "
                f"{wheel.version} cannot take its place; uv may write its locks in another form now"
            )
    return lock


def _resolve(entry: EnvironmentEntry, say: Say) -> ResolvedLock:
    """The lock of one environment; versions of the lock that is there are kept where the requirements allow it."""
    if not entry.requirements_path.is_file():
        raise ConfigurationError("no such file; it says what the lock is resolved from", file=entry.requirements_path)
    requirements = entry.requirements_path.read_text(encoding="utf-8")
    stand_ins = _stand_ins(entry, requirements)
    wheels = _wheels(entry, requirements, say)
    before = entry.lock_path.read_text(encoding="utf-8") if entry.lock_path.is_file() else None
    with tempfile.TemporaryDirectory(prefix="taxmeter-lock-") as directory:
        source = Path(directory, entry.requirements_path.name)
        source.write_text(stand_ins, encoding="utf-8")
        target = Path(directory, entry.lock_path.name)
        if before is not None:
            target.write_text(before, encoding="utf-8")
        _compile(entry, source, target, wheels)
        text = _with_recorded(target.read_text(encoding="utf-8"), entry.recorded)
        target.write_text(text, encoding="utf-8")
        changes = _changes(entry.lock_path if before is not None else None, target)
    if not changes and text != before:
        changes = ("comments or order",)
    return ResolvedLock(entry.name, entry.lock_path, text, changes, entry.unresolved is not None)


def _stand_ins(entry: EnvironmentEntry, requirements: str) -> str:
    """The requirements with what cannot be fetched replaced by the same version of the usual index.

    Builds of one version for several CUDAs have equal requirements, so the rest of the lock comes out the same.
    """
    lines = requirements.splitlines()
    for name, wheel in entry.recorded.items():
        line, requirement = _exact_requirement(entry.requirements_path, requirements, name)
        if exact_version(requirement) != wheel.version:
            problem = (
                f"expected {name}=={wheel.version}, which `recorded` of the environment {entry.name} has; "
                f"not {requirement}"
            )
            raise ConfigurationError(problem, file=entry.requirements_path, line=line, key=name)
        requirement.name, requirement.specifier = name, SpecifierSet(f"=={_public(wheel.version)}")
        lines[line - 1] = str(requirement)
    return "\n".join(lines) + "\n"


def _exact_requirement(path: Path, text: str, name: str) -> tuple[int, Requirement]:
    """The requirement of one exact version of a distribution that comes from a `wheel_index`, and its line."""
    lines = list(logical_lines(text))
    found = [(number, line) for number, line in lines if canonicalize_name((_NAME.match(line) or [""])[0]) == name]
    if not found:
        raise ConfigurationError(f"no requirement of {name}, which the catalogue's wheel_index names", file=path)
    number, line = found[-1]
    if len(found) > 1:
        problem = f"line {found[0][0]} requires it too; keep one of them"
        raise ConfigurationError(problem, file=path, line=number, key=name)
    requirement = parsed_requirement(line)
    if requirement is None or requirement.marker is not None or exact_version(requirement) is None:
        problem = f"expected {name}==VERSION and no more, since wheel_index has it; not {line!r}"
        raise ConfigurationError(problem, file=path, line=number, key=name)
    return number, requirement


def _wheels(entry: EnvironmentEntry, requirements: str, say: Say) -> list[Path]:
    """The wheels of `wheel_index` that can be fetched: all that the lock may take from the wheel directory."""
    wheels: list[Path] = []
    for name in entry.wheel_index.distributions if entry.wheel_index else ():
        if name not in entry.recorded:
            _, requirement = _exact_requirement(entry.requirements_path, requirements, name)
            wheels += fetch_unlocked(entry, name, str(exact_version(requirement)), say)
    return wheels


def _public(version: str) -> str:
    return version.partition("+")[0]


def _compile(entry: EnvironmentEntry, source: Path, target: Path, wheels: Sequence[Path]) -> None:
    platform = f"{entry.architecture}-{entry.platform.removesuffix(f'_{entry.architecture}')}"
    command = ["pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--only-binary", ":all:"]
    command += ["--python-version", entry.python, "--python-platform", platform]
    if wheels:
        # Whatever else lies in the wheel directory must not get into a lock by its own hash.
        links = source.parent / "wheels"
        links.mkdir()
        for wheel in wheels:
            (links / wheel.name).symlink_to(wheel.absolute())
        command += ["--find-links", str(links)]
    command += [source.name, "--output-file", target.name]
    failure = f"uv cannot resolve {entry.requirements_path}"
    run_uv(command, uv_environment(for_a_lock=True), failure, source.parent)


def _changes(before: Path | None, after: Path) -> tuple[str, ...]:
    old, new = ({} if before is None else read_lock(before)), read_lock(after)
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            lines.append(f"{name} {old[name].version} goes")
        elif name not in old:
            lines.append(f"{name} {new[name].version} comes")
        elif old[name].version != new[name].version:
            lines.append(f"{name} {old[name].version} becomes {new[name].version}")
        elif old[name].sha256 != new[name].sha256:
            lines.append(f"{name} {new[name].version} has other files")
    return tuple(lines)
