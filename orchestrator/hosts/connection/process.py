"""Processes of ssh: no questions asked, and none left behind."""

import os
import signal
import subprocess
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
