"""Runs commands in containers of ours; in the head's as if they ran here: output, exit code and signals are theirs.

    python -m orchestrator.hosts.cluster.commands SIZE COMMAND...      SIZE is COLUMNSxROWS of a terminal, or `none`

is what runs there. Its standard input carries the numbers of signals, a line each, which the command gets. When it
ends, whoever started this is gone, and the command is told to end too.
"""

import fcntl
import io
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import IO, Any

from docker import DockerClient
from docker.errors import NotFound, create_api_error_from_http_exception
from requests.exceptions import HTTPError

from orchestrator.environments import connect, engine_errors
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.settings import CODE_VARIABLE
from orchestrator.hosts.cluster.state import Cluster
from orchestrator.hosts.connection import CommandOutput

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HEADER = struct.Struct(">BxxxL")
_STDERR = 2
_KILLED = 128 + signal.SIGKILL
_ENGINE_SAYS_S = 2.0
_POLL_S = 0.1
GRACE_S = 60.0
"""That a command has for ending when nobody is there any more."""


def run_in(container: Any, argv: Sequence[str]) -> CommandOutput:
    """Runs a command in a container until it ends.

    Not with the SDK's `exec_run`: that turns the connection into a bare socket and loses what came together with the
    answer's header, the whole output of a short command (docker-py, issue 3332): through a tunnel from a busy machine
    that of 16 commands in 200. The answer to a plain request is read through the buffer that has the header.

    Raises:
        docker.errors.DockerException, requests.RequestException: the engine failed, or says nothing for longer than
            its client waits.
    """
    api = container.client.api
    number = api.exec_create(container.id, list(argv))["Id"]
    address = f"{api.base_url}/v{api.api_version}/exec/{number}/start"
    with api.post(address, json={"Detach": False, "Tty": False}, timeout=api.timeout) as answer:
        try:
            answer.raise_for_status()
        except HTTPError as error:
            raise create_api_error_from_http_exception(error) from error
        written = list(frames(io.BytesIO(answer.content)))
    output, errors = (
        b"".join(data for stream, data in written if (stream == _STDERR) is wanted).decode("utf-8", "replace")
        for wanted in (False, True)
    )
    code = api.exec_inspect(number)["ExitCode"]
    # none where its container ended under it
    return CommandOutput(_KILLED if code is None else int(code), output, errors)


def frames(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Takes apart what an engine sends of a command without a terminal, until the stream ends.

    The form is that of `attach` in the engine's interface: a byte for the stream, three of nothing, the length in four,
    and the data.

    Args:
        stream: blocks until there are as many bytes as are asked for.

    Returns:
        1 or 2, for standard output or error, and what was written there.
    """
    while len(header := stream.read(_HEADER.size)) == _HEADER.size:
        number, size = _HEADER.unpack(header)
        if data := stream.read(size):
            yield number, data


class Execution:
    """A command that runs in the head's container. Leaving the block ends it."""

    def __init__(self, client: DockerClient, container: str, argv: Sequence[str], options: Mapping[str, Any]) -> None:
        """Starts it.

        Raises:
            NotFound: there is no such container.
            APIError: it does not run.
        """
        self._client = client
        self._container = container
        self._id = client.api.exec_create(container, list(argv), stdin=True, **options)["Id"]
        self._stream = client.api.exec_start(self._id, socket=True)

    def __enter__(self) -> "Execution":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            # wakes whoever reads in another thread, for whose sake the kernel would else keep the connection
            self._stream._sock.shutdown(socket.SHUT_RDWR)
        # The SDK hands out a view of the socket; closing the view alone leaves the socket open.
        self._stream._sock.close()
        self._stream.close()

    def send(self, number: int) -> None:
        """Sends a signal to the command."""
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended
            self._stream._sock.sendall(f"{number}\n".encode())

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """What it writes, until it ends."""
        # through the buffer that had the header of the answer: the bare socket lacks what came with that
        yield from frames(self._stream._response.raw._fp.fp)

    def exit_code(self) -> int:
        """Of the command that has ended."""
        code = self._client.api.exec_inspect(self._id)["ExitCode"]
        if code is None or (code == _KILLED and self._has_container_ended()):
            raise InfrastructureError("the head of the cluster ended while a command ran in it")
        return int(code)

    def _has_container_ended(self) -> bool:
        """Its engine says so a moment after the end of what ran in it."""
        deadline = time.monotonic() + _ENGINE_SAYS_S
        while time.monotonic() < deadline:
            try:
                if not self._client.api.inspect_container(self._container)["State"]["Running"]:
                    return True
            except NotFound:
                return True
            time.sleep(_POLL_S)
        return False


@contextmanager
def execution(
    cluster: Cluster, argv: Sequence[str], environment: Mapping[str, str] | None = None, terminal: str = "none"
) -> Iterator[Execution]:
    """Starts a command in the head's container, in the project's directory; `terminal` is COLUMNSxROWS or `none`."""
    # The package imports this very module first, which Python would warn of.
    wrapped = ["python", "-W", "ignore", "-m", "orchestrator.hosts.cluster.commands", terminal, *argv]
    code = str(cluster.code)
    # Else the directory that it runs in would come first, and that is the project with code that may be edited.
    fixed = {"PYTHONSAFEPATH": "1", "PYTHONPATH": code, CODE_VARIABLE: code, "RAY_ADDRESS": cluster.ray_address}
    options = {"environment": {**fixed, **(environment or {})}}
    name = cluster.head_container
    with engine_errors("the engine of this machine failed"), closing(connect()) as client:
        try:
            running = Execution(client, name, wrapped, options)
        except NotFound:
            raise InfrastructureError(f"there is no container {name}; `taxmeter cluster up` makes it") from None
        # no answer for a long time is no error of a command
        running._stream._sock.settimeout(None)
        with running:
            yield running


def execute_in_head(cluster: Cluster, argv: Sequence[str]) -> int:
    """Runs a command in the head's container and passes on what it writes and what signals come.

    Its standard input is empty. Where our output is a terminal, so is its. If this process dies, the command is told
    to end (SIGTERM). Ctrl-C and SIGTERM go to the command, and this returns when it has ended.

    Args:
        argv: the command; `python -m orchestrator …` runs the very code that the hosts have.

    Returns:
        Its exit code; 128 and the number of a signal if one ended it.
    """
    shown = sys.stdout.isatty()
    size = "{0.columns}x{0.lines}".format(shutil.get_terminal_size()) if shown else "none"
    term = {"TERM": os.environ.get("TERM", "dumb")} if shown else {}
    with execution(cluster, argv, term, size) as running, _signals(running):
        for stream, data in running.frames():
            target: IO[bytes] = sys.stderr.buffer if stream == _STDERR else sys.stdout.buffer
            target.write(data)
            target.flush()
        return running.exit_code()


@contextmanager
def _signals(running: Execution) -> Iterator[None]:
    """Passed on to the command; whoever calls is the main thread, which alone gets any."""

    def forward(number: int, _: FrameType | None) -> None:
        running.send(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit code, 128 and the signal's number if one ended it."""
    size, *command = arguments
    copying = None
    if size == "none":
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    else:
        ours, theirs = pty.openpty()
        columns, rows = map(int, size.split("x"))
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        copying = threading.Thread(target=_copy, args=(ours,), daemon=True)
        copying.start()
    threading.Thread(target=_listen, args=(child,), daemon=True).start()
    code = child.wait()
    if copying is not None:
        # a process that the command left behind may still hold the terminal
        copying.join(1.0)
    return code if code >= 0 else 128 - code


def _listen(child: "subprocess.Popen[bytes]") -> None:
    for line in sys.stdin:
        if line.strip().isdigit() and child.poll() is None:
            child.send_signal(int(line))
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)


def _copy(terminal: int) -> None:
    with suppress(OSError):  # how Linux says that nobody has the other end any more
        while data := os.read(terminal, 1 << 16):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
