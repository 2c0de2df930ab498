"""Finds a Python of a given minor version: an environment of another era needs another one than ours."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_PROBE = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"


def find_python(version: str, environment: Mapping[str, str] | None = None) -> Path | None:
    """An interpreter of exactly this minor version that can make virtual environments, or None.

    Args:
        version: such as `3.9`.
        environment: the variables that say where to look; by default those of this process, whose own interpreter
            then comes first.
    """
    own = [Path(sys.executable)] if environment is None else []
    variables = os.environ if environment is None else environment
    for candidate in [*own, *_on_path(version, variables), *_of_version_managers(version, variables)]:
        # Asked, not believed: a version manager's shim exists for versions that are not selected.
        if candidate.is_file() and os.access(candidate, os.X_OK) and _version(candidate) == version:
            return candidate
    return None


def missing_python(name: str, version: str) -> str:
    """What to tell when the environment `name` cannot be had because there is no Python `version`, in one line."""
    return (
        f"the environment {name} needs Python {version} with its venv module, and this machine has none: neither "
        f"python{version} nor python3 on PATH is that, nor has pyenv or uv one; install it (uv python install "
        f"{version}, pyenv install {version}, or apt-get install python{version}-venv where the distribution has it), "
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


def _version(interpreter: Path) -> str | None:
    done = subprocess.run([str(interpreter), "-c", _PROBE], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
