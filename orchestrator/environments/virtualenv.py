"""An environment as a virtual environment, for machines without a container engine."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from packaging.utils import canonicalize_name

from orchestrator.boundary import MAX_JSON_BYTES, load_json, read_foreign_file
from orchestrator.environments.catalogue import EnvironmentEntry, Pin, lock_sha256, read_lock
from orchestrator.environments.packages import ensure_wheels, run_uv, wheels_of
from orchestrator.environments.site_settings import uv_environment
from orchestrator.errors import ConfigurationError, ForeignDataError, InfrastructureError, Say
from orchestrator.files import exclusive, write_atomically

MARKER = "taxmeter-complete.json"

# `python -m venv`, which makes the images' environments, brings these itself, so a lock need not name them; the last
# one comes with the Python of Debian and Ubuntu up to 2021.
_SEEDS = frozenset({"pip", "setuptools", "pkg-resources"})
_PROBE = "import sys; print('%d.%d' % sys.version_info[:2])"
_PROBE_S = 30


def ensure_virtualenv(entry: EnvironmentEntry, root: Path, say: Say) -> Path:
    """The Python of the virtual environment of `entry` under `root`, whose installed versions equal the lock.

    It is built when it is not there or only half there.
    """
    directory = _directory(entry, root)
    if not _is_complete(entry, directory):
        lock = directory.with_name(f".{directory.name}.lock")
        with exclusive(lock, lambda: say(f"waiting for another command that sets up the environment {entry.name}")):
            if not _is_complete(entry, directory):
                _build(entry, directory, say)
    return _python(directory)


def virtualenv_problem(entry: EnvironmentEntry, root: Path) -> str | None:
    """Why this machine cannot have the virtual environment of `entry`, in one line, or None. Builds nothing."""
    if _is_complete(entry, _directory(entry, root)) or find_python(entry.python) is not None:
        return None
    return missing_python(entry.name, entry.python)


def _directory(entry: EnvironmentEntry, root: Path) -> Path:
    return root.absolute() / f"{entry.name}-{lock_sha256(entry)[:12]}"


def _python(directory: Path) -> Path:
    return directory / "bin" / "python"


def _is_complete(entry: EnvironmentEntry, directory: Path) -> bool:
    try:
        marker = load_json(read_foreign_file(directory / MARKER, MAX_JSON_BYTES), MARKER)
    except (FileNotFoundError, ForeignDataError):
        return False
    # The interpreter is a link: it dangles after the Python that it came from was removed.
    return marker == _marker(entry) and _python(directory).exists()


def _marker(entry: EnvironmentEntry) -> dict[str, str]:
    return {"lock_sha256": lock_sha256(entry), "python": entry.python}


def _build(entry: EnvironmentEntry, directory: Path, say: Say) -> None:
    interpreter = find_python(entry.python)
    if interpreter is None:
        raise ConfigurationError(missing_python(entry.name, entry.python))
    pins = read_lock(entry.lock_path)
    ensure_wheels(entry, say)
    say(f"setting up the environment {entry.name} in {directory} (first time, about a minute)")
    # In place, because a virtual environment cannot be moved; the marker, written last, says that it is whole.
    if directory.exists():
        shutil.rmtree(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    uv = uv_environment()
    make = ["venv", "--quiet", "--no-project", "--python", str(interpreter), str(directory)]
    run_uv(make, uv, "a virtual environment cannot be made")
    python = ["--python", str(_python(directory))]
    # Compiled now, and not while the first trial imports.
    install = ["pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "--compile-bytecode", *python]
    for place in [str(entry.wheel_directory), *uv.pop("UV_FIND_LINKS", "").split(",")]:
        install += ["--find-links", place] if place else []
    if all(wheels_of(entry, pin.name, pin.version) for pin in pins.values()):
        # uv would stop at an index that is out of reach, though it has nothing to ask it for.
        install.append("--no-index")
    entry.wheel_directory.mkdir(parents=True, exist_ok=True)
    failure = f"the packages of {entry.lock_path.name} cannot be installed"
    run_uv([*install, "--requirement", str(entry.lock_path)], uv, failure)
    run_uv(["pip", "check", *python], uv, "the installed packages do not fit together")
    listed = run_uv(["pip", "list", "--format", "json", *python], uv, "the installed packages cannot be listed")
    difference = lock_differences(pins, json.loads(listed))
    if difference:
        raise InfrastructureError(
            f"{directory} is not what {entry.lock_path.name} says: {', '.join(difference)}; remove it and try again"
        )
    write_atomically(
        directory / MARKER,
        json.dumps(_marker(entry)) + "\n",
    )


def lock_differences(pins: Mapping[str, Pin], listed: list[dict[str, str]]) -> list[str]:
    """Each way in which the installed distributions differ from the lock."""
    installed: dict[str, str] = {canonicalize_name(item["name"]): item["version"] for item in listed}
    found = [
        f"{name} is {installed.get(name, 'absent')} instead of {pin.version}"
        for name, pin in pins.items()
        if installed.get(name) != pin.version
    ]
    return found + [f"{name} is not in the lock" for name in sorted(installed.keys() - pins.keys() - _SEEDS)]


def environment_differences(python: str, pins: Mapping[str, str], versions: Mapping[str, str]) -> list[str]:
    """Each way in which what was seen in an environment differs from its lock. Python comes first.

    Args:
        pins: version of each distribution of the lock, by its canonical name.
    """
    locked = {name: Pin(name, version, frozenset()) for name, version in pins.items()}
    listed = [{"name": name, "version": version} for name, version in versions.items() if name != "python"]
    found = versions.get("python", "absent")
    fits = found == python or found.startswith(f"{python}.")
    return [*([] if fits else [f"python is {found} instead of {python}"]), *lock_differences(locked, listed)]


def find_python(version: str, environment: Mapping[str, str] | None = None) -> Path | None:
    """An interpreter of exactly this minor version, or None: an environment of another era needs another one than ours.

    uv's own search ends at the first shim of a version that is not selected.

    Args:
        environment: the variables that say where to look; by default those of this process, whose own interpreter
            then comes first.
    """
    own = [Path(sys.executable)] if environment is None else []
    variables = os.environ if environment is None else environment
    for candidate in [*own, *_on_path(version, variables), *_of_version_managers(version, variables)]:
        # Asked, not believed: a version manager's shim exists for versions that are not selected.
        if candidate.is_file() and os.access(candidate, os.X_OK):
            with suppress(subprocess.TimeoutExpired):  # one that hangs is none that could be taken
                done = subprocess.run(
                    [str(candidate), "-c", _PROBE], capture_output=True, text=True, check=False, timeout=_PROBE_S
                )
                if done.returncode == 0 and done.stdout.strip() == version:
                    return candidate
    return None


def missing_python(name: str, version: str) -> str:
    """What to tell when the environment `name` cannot be had because there is no Python `version`, in one line."""
    return (
        f"the environment {name} needs Python {version} and this machine has none: neither "
        f"python{version} nor python3 on PATH is that, nor has pyenv or uv one; install it (uv python install "
        f"{version}, pyenv install {version}, or apt-get install python{version} where the distribution has it), "
        f"start a Docker engine, or leave {name} out of the sweep's environments"
    )


def _on_path(version: str, variables: Mapping[str, str]) -> Iterator[Path]:
    directories = [Path(part) for part in variables.get("PATH", os.defpath).split(os.pathsep) if part]
    for name in (f"python{version}", "python3"):
        yield from (directory / name for directory in directories)


def _of_version_managers(version: str, variables: Mapping[str, str]) -> Iterator[Path]:
    """What pyenv and uv have installed, the newest patch first; neither puts it on PATH unless it is selected."""
    home = Path(variables.get("HOME", "/nonexistent"))
    data = Path(variables.get("XDG_DATA_HOME") or home / ".local/share")
    pyenv = Path(variables.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(variables.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python")
    for root, prefix in ((pyenv, ""), (uv, "cpython-")):
        found = root.glob(f"{prefix}{version}.*/bin/python{version}")
        yield from sorted(found, key=_numbers, reverse=True)


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parents[1].name)]
