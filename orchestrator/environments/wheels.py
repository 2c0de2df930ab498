"""Brings the wheels that the site's usual package index does not have."""

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from orchestrator.environments.catalogue import EnvironmentEntry, WheelIndex
from orchestrator.environments.locks import Pin, read_lock
from orchestrator.environments.messages import hash_mismatch
from orchestrator.environments.wheelnames import WheelName
from orchestrator.errors import ConfigurationError, InfrastructureError
from orchestrator.files import exclusive

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
            if not has_wheel(entry, pins[name]):
                _fetch(entry, pins[name], index, say)


def has_wheel(entry: EnvironmentEntry, pin: Pin) -> bool:
    """Whether the wheel directory holds a wheel of this pin for the environment, one that the lock accepts."""
    return any(_sha256(path) in pin.sha256 for path in wheels_of(entry, pin.name, pin.version))


def wheels_of(entry: EnvironmentEntry, name: str, version: str) -> list[Path]:
    """The wheels of one version that are there for the environment's Python and platform.

    Args:
        entry: the environment.
        name: of the distribution, in its canonical spelling.
        version: with its local part, if it has one.
    """
    found = []
    for path in sorted(entry.wheel_directory.glob("*.whl")):
        wheel = WheelName.parse(path.name)
        if wheel is None or (wheel.distribution, wheel.version) != (name, version):
            continue
        if wheel.serves(entry.python, entry.platform):
            found.append(path)
    return found


def fetch_unlocked(entry: EnvironmentEntry, name: str, version: str, say: Callable[[str], None]) -> list[Path]:
    """Brings a wheel of `wheel_index` whose hash no lock has yet, so that a lock can be resolved from it.

    Returns:
        The wheels of this version that the environment may have.

    Raises:
        ConfigurationError: wheels spell this version in another way.
        InfrastructureError: neither the site's own package index nor the catalogue's has one.
    """
    assert entry.wheel_index is not None
    there = wheels_of(entry, name, version)
    if there:
        return there
    requirement = f"{name}=={version}"
    say(f"fetching {requirement}")
    _from_either(entry, requirement, requirement, ["--no-deps"], entry.wheel_index)
    fetched = wheels_of(entry, name, version)
    if not fetched:
        raise ConfigurationError(
            f"a wheel of {requirement} was fetched into {entry.wheel_directory}, and its file name has the version in "
            f"another spelling; write it in that one",
            file=entry.requirements_path,
            key=name,
        )
    return fetched


def _fetch(entry: EnvironmentEntry, pin: Pin, index: WheelIndex, say: Callable[[str], None]) -> None:
    say(f"fetching {pin.name} {pin.version}")
    _from_either(entry, pin.requirement, f"{pin.name} {pin.version}", ["--no-deps", "--require-hashes"], index)


def _from_either(entry: EnvironmentEntry, requirement: str, what: str, options: list[str], index: WheelIndex) -> None:
    # The site's own index comes first: behind a proxy or without a network it is the only one.
    site = _download(entry, requirement, options)
    if site is None:
        return
    catalogue = _download(entry, requirement, [*options, "--index-url", index.url])
    if catalogue is None:
        return
    raise InfrastructureError(
        f"no wheel of {what} for Python {entry.python}: this machine's pip settings: {site}; "
        f"{index.url}: {catalogue}; put the wheel into {entry.wheel_directory} by hand, or mend the network"
    )


def _download(entry: EnvironmentEntry, requirement: str, options: list[str]) -> str | None:
    """Downloads one wheel. Returns None, or why pip could not."""
    entry.wheel_directory.mkdir(parents=True, exist_ok=True)
    # Unpacked beside its destination and then moved: an interrupted download leaves no half wheel there.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=entry.wheel_directory) as directory:
        requirements = Path(directory, "requirements.txt")
        requirements.write_text(requirement + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--only-binary", ":all:", "--requirement", str(requirements)]
        command += ["--python-version", entry.python, "--implementation", "cp", "--platform", entry.platform]
        # what PyTorch's own index called its wheels until 2023
        command += ["--platform", f"linux_{entry.architecture}"]
        command += ["--timeout", str(_INDEX_TIMEOUT_S), "--retries", "1", "--dest", directory, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return pip_failure(done.stdout + done.stderr)
        for wheel in Path(directory).glob("*.whl"):
            wheel.replace(entry.wheel_directory / wheel.name)
    return None


def pip_failure(output: str) -> str:
    """The line of pip's output that says what went wrong."""
    mismatch = hash_mismatch(output)
    if mismatch is not None:
        return mismatch
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    broken = _BROKEN.search(" ".join(lines))
    if broken is not None:
        return f"cannot be reached ({broken[1].strip()})"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip failed without a message"])[-1]


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
