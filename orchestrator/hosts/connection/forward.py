"""A socket on this machine behind which a host's engine answers, carried by ssh."""

import select
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from orchestrator.hosts.connection import process
from orchestrator.hosts.connection.failures import HostConnectionError

Start = Callable[[Sequence[str], IO[bytes]], "subprocess.Popen[bytes]"]


class EngineForward:
    """A forwarded engine. Its address stays the same when it is made again."""

    def __init__(
        self,
        start: Start,
        explain: Callable[[str], HostConnectionError],
        directory: Path,
        remote: str,
        timeout_s: float,
    ) -> None:
        """Starts nothing yet.

        Args:
            start: starts ssh with these options and this standard error. On the host it must say a line and then read
                its standard input to the end: by that ssh ends when we do, however we end.
            explain: understands what ssh said.
            directory: for the socket; nobody else may enter it.
            remote: path of the engine's socket on the host.
            timeout_s: for connecting.
        """
        self.socket = directory / "engine.sock"
        self.remote = remote
        self._log = directory / "ssh.log"
        self._start = start
        self._explain = explain
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """As the engine's clients take it."""
        return f"unix://{self.socket}"

    def ensure(self) -> None:
        """Returns when the socket is there, and makes it again if its connection has ended.

        Raises:
            HostConnectionError: the host was not reached, or does not forward.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        options = [
            *("-o", "ExitOnForwardFailure=yes", "-o", "StreamLocalBindMask=0177"),
            # at this level ssh says why a connection through the socket failed
            *("-o", "LogLevel=INFO", "-L", f"{self.socket}:{self.remote}"),
        ]
        with self._log.open("wb") as errors:
            self._process = self._start(options, errors)
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], self._timeout_s)
        # ssh binds the socket before it starts the command that says this line
        if not readable or not self._process.stdout.readline():
            said = self.said() if readable else f"connection timed out after {self._timeout_s:g} s"
            self.close()
            raise self._explain(said)

    def said(self) -> str:
        """What ssh has complained about so far."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def is_refused(self) -> bool:
        """Whether the host did not connect us to the socket: it is not there, not ours, or forwarding is forbidden."""
        # ssh writes it down a moment after the client of the socket has lost its connection
        deadline = time.monotonic() + 5
        while "open failed" not in self.said():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def close(self) -> None:
        """Ends ssh, and with it the socket."""
        if self._process is not None:
            process.end(self._process)
            self._process = None
        self.socket.unlink(missing_ok=True)
