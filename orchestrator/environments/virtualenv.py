"""An environment as a virtual environment, for machines without a container engine."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.environments.catalogue import EnvironmentEntry, lock_sha256
from orchestrator.environments.interpreters import find_python, missing_python
from orchestrator.environments.locks import Pin, canonical_name, read_lock
from orchestrator.environments.wheels import ensure_wheels, pip_failure
from orchestrator.errors import ConfigurationError, InfrastructureError
from orchestrator.files import exclusive, write_atomically

MARKER = "taxmeter-complete.json"

# `python -m venv` brings these itself, so a lock need not name them; the last one comes with the Python of Debian and
# Ubuntu up to 2021.
_SEEDS = frozenset({"pip", "setuptools", "pkg-resources"})


@dataclass(frozen=True)
class VirtualEnvironment:
    """A complete virtual environment whose installed versions equal the lock."""

    python: Path
    lock_sha256: str


def ensure_virtualenv(entry: EnvironmentEntry, root: Path, say: Callable[[str], None]) -> VirtualEnvironment:
    """The virtual environment of `entry` under `root`; it is built when it is not there or only half there.

    Raises:
        ConfigurationError: this machine does not have the Python of the environment.
        InfrastructureError: a package cannot be fetched, or what was installed is not what the lock says.
    """
    directory, built = _place(entry, root)
    if _is_complete(directory, built):
        return built
    lock = directory.with_name(f".{directory.name}.lock")
    with exclusive(lock, lambda: say(f"waiting for another command that sets up the environment {entry.name}")):
        if not _is_complete(directory, built):
            _build(entry, directory, built, say)
    return built


def virtualenv_problem(entry: EnvironmentEntry, root: Path) -> str | None:
    """Why this machine cannot have the virtual environment of `entry`, in one line, or None. Builds nothing."""
    if _is_complete(*_place(entry, root)) or find_python(entry.python) is not None:
        return None
    return missing_python(entry.name, entry.python)


def _place(entry: EnvironmentEntry, root: Path) -> tuple[Path, VirtualEnvironment]:
    sha256 = lock_sha256(entry)
    directory = root.absolute() / f"{entry.name}-{sha256[:12]}"
    return directory, VirtualEnvironment(directory / "bin" / "python", sha256)


def _is_complete(directory: Path, built: VirtualEnvironment) -> bool:
    try:
        marker = json.loads((directory / MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    # The interpreter is a link: it dangles after the Python that it came from was removed.
    return bool(marker["lock_sha256"] == built.lock_sha256) and built.python.exists()


def _build(entry: EnvironmentEntry, directory: Path, built: VirtualEnvironment, say: Callable[[str], None]) -> None:
    interpreter = find_python(entry.python)
    if interpreter is None:
        raise ConfigurationError(missing_python(entry.name, entry.python))
    pins = read_lock(entry.lock_path)
    ensure_wheels(entry, say)
    say(f"setting up the environment {entry.name} in {directory} (first time, a minute or two)")
    # In place, because a virtual environment cannot be moved; the marker, written last, says that it is whole.
    if directory.exists():
        shutil.rmtree(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    _run([str(interpreter), "-m", "venv", str(directory)], "a virtual environment cannot be made")
    pip = [str(built.python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    install = [*pip, "install", "--quiet", "--require-hashes", "--only-binary", ":all:"]
    install += ["--find-links", str(entry.wheel_directory), "--requirement", str(entry.lock_path)]
    _run(install, f"the packages of {entry.lock_path.name} cannot be installed")
    _run([*pip, "check"], "the installed packages do not fit together")
    listed = _run([*pip, "list", "--format", "json"], "the installed packages cannot be listed")
    difference = lock_differences(pins, json.loads(listed))
    if difference:
        raise InfrastructureError(
            f"{directory} is not what {entry.lock_path.name} says: {', '.join(difference)}; remove it and try again"
        )
    write_atomically(
        directory / MARKER,
        json.dumps({"lock_sha256": built.lock_sha256, "python": entry.python}) + "\n",
    )


def lock_differences(pins: dict[str, Pin], listed: list[dict[str, str]]) -> list[str]:
    """Each way in which the installed distributions differ from the lock."""
    installed = {canonical_name(item["name"]): item["version"] for item in listed}
    found = [
        f"{name} is {installed.get(name, 'absent')} instead of {pin.version}"
        for name, pin in pins.items()
        if installed.get(name) != pin.version
    ]
    return found + [f"{name} is not in the lock" for name in sorted(installed.keys() - pins.keys() - _SEEDS)]


def _run(command: list[str], failure: str) -> str:
    # A caller that runs inside a virtual environment must not leak it into another interpreter.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise InfrastructureError(f"{failure}: {pip_failure(done.stdout + done.stderr)}")
    return done.stdout
