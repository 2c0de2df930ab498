"""Runs uv with the settings of this site, and says in one line why it, or pip, failed."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from uv import find_uv_bin

from orchestrator.errors import InfrastructureError

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


def run_uv(
    arguments: Sequence[str], environment: Mapping[str, str], failure: str, directory: Path | None = None
) -> str:
    """What uv prints.

    Args:
        arguments: of the command.
        environment: its variables (`uv_environment`).
        failure: what cannot be done if it fails.
        directory: where it runs; null for the current one.

    Raises:
        InfrastructureError: it fails; begins with `failure`.
    """
    command = [find_uv_bin(), *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
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
