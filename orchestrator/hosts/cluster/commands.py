"""Commands inside a running container, through the interface of its engine."""

import io
import signal
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from docker.errors import create_api_error_from_http_exception
from requests.exceptions import HTTPError

_HEADER = struct.Struct(">BxxxL")
_STDERR = 2
_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    exit_code: int
    """As if killed where its container ended under it."""
    output: bytes
    errors: bytes

    @property
    def last_words(self) -> str:
        """The last line that it wrote, errors first; empty if it wrote nothing."""
        lines = (self.errors.strip() or self.output.strip()).splitlines()
        return lines[-1].decode("utf-8", "replace") if lines else ""


def run_in(container: Any, argv: Sequence[str]) -> Ended:
    """Runs a command in a container until it ends.

    Not with the SDK's `exec_run`: that turns the connection into a bare socket and loses what came together with the
    answer's header, the whole output of a short command (docker-py, issue 3332): through a tunnel from a busy machine
    that of 16 commands in 200. The answer to a plain request is read through the buffer that has the header.

    Args:
        container: of the SDK, and running.
        argv: the command.

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
        b"".join(data for stream, data in written if (stream == _STDERR) is wanted) for wanted in (False, True)
    )
    code = api.exec_inspect(number)["ExitCode"]
    return Ended(_KILLED if code is None else int(code), output, errors)


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
