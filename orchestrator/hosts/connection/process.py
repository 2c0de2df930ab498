"""Processes of ssh: no questions asked, none left behind, and no longer than they may take."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import IO

# Only the kind of a complaint counts, so it must not be translated; nobody is there to be asked for a password.
_ENVIRONMENT = {"LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}


def start(
    command: Sequence[str], *, stdin: int | IO[bytes], stdout: int | IO[bytes], stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Starts ssh in a session of its own, so that it has no terminal to ask at.

    Raises:
        FileNotFoundError: there is no such program.
    """
    return subprocess.Popen(
        list(command),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=os.environ | _ENVIRONMENT,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills ssh with the processes of its jumps. Whoever waits for it goes on."""
    if process.poll() is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # another thread has just waited for it
        return


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends ssh with the processes of its jumps, waits for it and closes its pipes."""
    kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            _close(stream)


def _close(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except BrokenPipeError:
        # what was not written yet has no reader any more
        return


class Deadline:
    """A time limit that several steps share; it counts from its creation."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._end = time.monotonic() + limit_s

    def left_s(self, at_most: float = float("inf")) -> float:
        """Seconds that a step may take: what is left, at least a blink, so that a step fails by its own time limit."""
        return max(0.05, min(at_most, self._end - time.monotonic()))
