"""Brings the wheels that the site's usual package index does not have."""

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import ConfigurationError, InfrastructureError
from orchestrator.images.catalogue import EnvironmentEntry, WheelIndex
from orchestrator.images.locking import exclusive
from orchestrator.images.locks import Pin, read_lock

# An index that cannot be reached must be known as such within seconds.
_INDEX_TIMEOUT_S = 20
# pip repeats its HTTP library's text: after connection broken by 'SomeError('<object at 0x...>: what happened')'
_BROKEN = re.compile(r"after connection broken by '\w+\([\s'\"]*(?:<[^>]*>[:\s]*)?([^'\"]{1,160})")


def ensure_wheels(entry: EnvironmentEntry, say: Callable[[str], None]) -> None:
    """Makes sure that the wheels of `wheel_index` are in the wheel directory, each with a hash of the lock.

    Raises:
        ConfigurationError: the lock does not pin one of them.
        InfrastructureError: neither the site's own package index nor the catalogue's has one.
    """
    if entry.wheel_index is None:
        return
    index = entry.wheel_index
    pins = read_lock(entry.lock_path)
    for name in index.distributions:
        if name not in pins:
            raise ConfigurationError(
                f"the lock does not pin {name}, which the catalogue's wheel_index names", file=entry.lock_path
            )
    lock = entry.state_directory / "locks" / "wheels"
    with exclusive(lock, lambda: say("waiting for another command that fetches wheels")):
        for name in index.distributions:
            if not has_wheel(entry.wheel_directory, pins[name]):
                _fetch(entry, pins[name], index, say)


def has_wheel(directory: Path, pin: Pin) -> bool:
    """Whether the directory holds a wheel of this pin that the lock accepts."""
    prefix = pin.name.replace("-", "_")
    return any(
        _sha256(path) in pin.sha256
        for path in directory.glob("*.whl")
        if path.name.lower().startswith(f"{prefix}-{pin.version}-")
    )


def _fetch(entry: EnvironmentEntry, pin: Pin, index: WheelIndex, say: Callable[[str], None]) -> None:
    say(f"fetching {pin.name} {pin.version}")
    # The site's own index comes first: behind a proxy or without a network it is the only one.
    site = _download(entry, pin, [])
    if site is None:
        return
    catalogue = _download(entry, pin, ["--index-url", index.url])
    if catalogue is None:
        return
    raise InfrastructureError(
        f"no wheel of {pin.name} {pin.version} for Python {entry.python}: this machine's pip settings: {site}; "
        f"{index.url}: {catalogue}; put the wheel into {entry.wheel_directory} by hand, or mend the network"
    )


def _download(entry: EnvironmentEntry, pin: Pin, options: list[str]) -> str | None:
    """Downloads one wheel. Returns None, or why pip could not."""
    entry.wheel_directory.mkdir(parents=True, exist_ok=True)
    # Unpacked beside its destination and then moved: an interrupted download leaves no half wheel there.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=entry.wheel_directory) as directory:
        requirements = Path(directory, "requirements.txt")
        requirements.write_text(pin.requirement + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", str(requirements)]
        command += ["--python-version", entry.python, "--implementation", "cp", "--platform", entry.platform]
        command += ["--timeout", str(_INDEX_TIMEOUT_S), "--retries", "1", "--dest", directory, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return pip_failure(done.stdout + done.stderr)
        for wheel in Path(directory).glob("*.whl"):
            wheel.replace(entry.wheel_directory / wheel.name)
    return None


def pip_failure(output: str) -> str:
    """The line of pip's output that says what went wrong."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    broken = _BROKEN.search(" ".join(lines))
    if broken is not None:
        return f"cannot be reached ({broken[1].strip()})"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip failed without a message"])[-1]


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
