"""Runs uv and pip with the settings of this site, and brings the wheels that its usual index does not have."""

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version
from uv import find_uv_bin

from orchestrator.environments.catalogue import EnvironmentEntry, Pin, WheelIndex, read_lock
from orchestrator.errors import ConfigurationError, InfrastructureError, Say
from orchestrator.files import exclusive

# An index that cannot be reached must be known as such within seconds.
_INDEX_TIMEOUT_S = 20
# The glibc of each name of a platform that came before manylinux_X_Y.
_LEGACY_PLATFORMS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_MAX_REASON = 600
# The requirement, with pip also the place that it was taken from, then what was expected (one or several) and got.
_PIP_MISMATCH = re.compile(
    r"^\s*(?P<requirement>[A-Za-z0-9][^\s]*)(?: from [^\n]*?)?(?: \(from [^\n]*\))?:\s*\n"
    r"\s*Expected sha256 (?P<expected>[0-9a-f]+(?:\s*\n\s*Expected\s+or [0-9a-f]+)*)\s*\n"
    r"\s*Got\s+(?P<got>[0-9a-f]+)",
    re.MULTILINE,
)
_UV_MISMATCH = re.compile(
    r"Hash mismatch for `(?P<requirement>[^`]+)`\s+Expected:\s+(?P<expected>(?:sha256:[0-9a-f]+\s+)+)"
    r"Computed:\s+sha256:(?P<got>[0-9a-f]+)"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
# pip repeats its HTTP library's text: after connection broken by 'SomeError('<object at 0x...>: what happened')'
_BROKEN = re.compile(r"after connection broken by '\w+\([\s'\"]*(?:<[^>]*>[:\s]*)?([^'\"]{1,160})")

ANSWER_S: Final = 60.0
"""For a question such as a version."""

FETCH_S: Final = 2 * 3600.0
"""For what fetches or packs gigabytes."""

BUILD_S: Final = 4 * 3600.0
"""For the build of an image, whose wheels may come over a slow line."""


def ensure_wheels(entry: EnvironmentEntry, say: Say) -> None:
    """Makes sure that the wheels of `wheel_index` are in the wheel directory, each with a hash of the lock."""
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
            pin = pins[name]
            if not has_wheel(entry, pin):
                say(f"fetching {name} {pin.version}")
                _fetch(entry, pin.requirement, f"{name} {pin.version}", ["--require-hashes"], index)


def has_wheel(entry: EnvironmentEntry, pin: Pin) -> bool:
    """Whether the wheel directory holds a wheel of this pin for the environment, one that the lock accepts."""
    return any(_sha256(path) in pin.sha256 for path in wheels_of(entry, pin.name, pin.version))


def wheels_of(entry: EnvironmentEntry, name: str, version: str) -> list[Path]:
    """The wheels of one version that are there for the environment's Python and platform.

    Args:
        version: with its local part, if it has one.
    """
    served = supported_tags(entry.python, entry.platform)
    found = []
    for path in sorted(entry.wheel_directory.glob("*.whl")):
        try:
            distribution, wheel_version, _, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if (distribution, wheel_version) == (name, Version(version)) and tags & served:
            found.append(path)
    return found


def supported_tags(python: str, platform: str) -> frozenset[Tag]:
    """The tags of wheels that install for a CPython and a platform.

    Args:
        platform: the newest that will do, such as `manylinux_2_28_x86_64`.
    """
    _, _, newest, architecture = platform.split("_", 3)
    major, minor = (int(part) for part in python.split("."))
    versions = range(int(newest), 4, -1)
    platforms = [f"manylinux_2_{glibc}_{architecture}" for glibc in versions]
    platforms += [f"{_LEGACY_PLATFORMS[glibc]}_{architecture}" for glibc in versions if glibc in _LEGACY_PLATFORMS]
    # what PyTorch's own index called its wheels until 2023
    platforms.append(f"linux_{architecture}")
    interpreter = f"cp{major}{minor}"
    return frozenset(cpython_tags((major, minor), [interpreter], platforms)) | frozenset(
        compatible_tags((major, minor), interpreter, platforms)
    )


def fetch_unlocked(entry: EnvironmentEntry, name: str, version: str, say: Say) -> list[Path]:
    """Brings a wheel of `wheel_index` whose hash no lock has yet, so that a lock can be resolved from it.

    Returns:
        The wheels of this version that the environment may have.
    """
    assert entry.wheel_index is not None
    if not wheels_of(entry, name, version):
        requirement = f"{name}=={version}"
        say(f"fetching {requirement}")
        _fetch(entry, requirement, requirement, [], entry.wheel_index)
    return wheels_of(entry, name, version)


def _fetch(entry: EnvironmentEntry, requirement: str, what: str, options: list[str], index: WheelIndex) -> None:
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
    """Downloads one wheel with pip, since uv cannot. Returns None, or why not."""
    entry.wheel_directory.mkdir(parents=True, exist_ok=True)
    # Unpacked beside its destination and then moved: an interrupted download leaves no half wheel there.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=entry.wheel_directory) as directory:
        requirements = Path(directory, "requirements.txt")
        requirements.write_text(requirement + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", "--only-binary", ":all:", "--requirement", str(requirements)]
        command += ["--python-version", entry.python, "--implementation", "cp"]
        command += ["--platform", entry.platform, "--platform", f"linux_{entry.architecture}"]
        command += ["--timeout", str(_INDEX_TIMEOUT_S), "--retries", "1", "--dest", directory, *options]
        done = run_command(command, FETCH_S, capture_output=True)
        if done.returncode != 0:
            return pip_failure(done.stdout + done.stderr)
        for wheel in Path(directory).glob("*.whl"):
            wheel.replace(entry.wheel_directory / wheel.name)
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def run_uv(
    arguments: Sequence[str], environment: Mapping[str, str], failure: str, directory: Path | None = None
) -> str:
    """What uv prints.

    Raises:
        InfrastructureError: it fails; begins with `failure`.
    """
    command = [find_uv_bin(), *arguments]
    done = run_command(command, FETCH_S, cwd=directory, env=environment, capture_output=True)
    if done.returncode != 0:
        raise InfrastructureError(f"{failure}: {uv_failure(done.stderr or done.stdout)}")
    return done.stdout


def uv_failure(output: str) -> str:
    """What went wrong, from uv's output: its error, and the last of the causes that it names."""
    mismatch = hash_mismatch(output)
    if mismatch is not None:
        return mismatch
    _, _, told = output.rpartition("error: ")
    error, *causes = [" ".join(part.split()) for part in told.split("cause: ")]
    return ": ".join([error, *causes[-1:]])[:_MAX_REASON] or "uv failed without a message"


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


def hash_mismatch(output: str) -> str | None:
    """The complaint of pip or uv about a file that the lock does not accept, in one line; null if there is none."""
    match = _PIP_MISMATCH.search(output) or _UV_MISMATCH.search(output)
    if match is None:
        return None
    expected, *others = _SHA256.findall(match["expected"])
    more = f" or one of {len(others)} more" if others else ""
    return (
        f"{match['requirement']}: the lock expects sha256 {expected}{more}, but what was fetched has "
        f"{match['got']}; correct the lock, or find out who changed the file"
    )


def run_command(command: Sequence[str], limit_s: float, **settings: Any) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end, however it ends.

    Raises:
        InfrastructureError: it did not end in time.
        OSError: it cannot be started.
    """
    try:
        return subprocess.run(command, text=True, check=False, timeout=limit_s, **settings)
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"{Path(command[0]).name} did not end within {limit_s:.0f} s") from None
