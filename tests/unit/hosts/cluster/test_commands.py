"""Commands in containers: what an engine sends in one packet with its answer's header is not lost."""

import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from docker import DockerClient
from docker.errors import APIError

from orchestrator.hosts.cluster.commands import Execution, run_in
from orchestrator.hosts.connection import CommandOutput


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(data)) + data


WRITTEN = frame(1, b"600 root\n") + frame(2, b"a warning\n") + frame(1, b"700 root\n")


@dataclass
class Engine:
    """An engine that knows one container and sends each answer, header and body, in one packet."""

    listener: socket.socket
    exit_code: int | None = 0
    started: str = "200 OK"
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return  # the test has closed it
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(65536)
        head, _, body = request.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        while length and len(body) < int(length[1]):
            body += connection.recv(65536)
        path = head.split()[1].decode()
        self.asked.append((path, json.loads(body) if body else None))
        if path.endswith("/start") and self.started.startswith(("101", "200")):
            connection.sendall(f"HTTP/1.1 {self.started}\r\nContent-Type: application/x\r\n\r\n".encode() + WRITTEN)
            return
        answers = {"/start": {"message": "is not running"}, "/json": {"ExitCode": self.exit_code}}
        text = json.dumps(answers.get(path[path.rindex("/") :], {"Id": "e1"})).encode()
        status = self.started if path.endswith("/start") else "200 OK"
        header = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        connection.sendall(f"{header}Connection: close\r\n\r\n".encode() + text)


@dataclass
class Container:
    client: DockerClient
    id: str = "c1"


@pytest.fixture
def engine() -> Iterator[Engine]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Engine(listener)
        thread = threading.Thread(target=found.serve)
        thread.start()
        yield found
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def client(engine: Engine) -> Iterator[DockerClient]:
    port = engine.listener.getsockname()[1]
    with closing(DockerClient(f"tcp://127.0.0.1:{port}", version="1.41", timeout=10)) as found:
        yield found


def test_what_came_with_the_header_is_there(engine: Engine, client: DockerClient) -> None:
    done = run_in(Container(client), ["stat", "x"])
    assert done == CommandOutput(0, "600 root\n700 root\n", "a warning\n")
    assert [path for path, _ in engine.asked] == [
        "/v1.41/containers/c1/exec",
        "/v1.41/exec/e1/start",
        "/v1.41/exec/e1/json",
    ]
    assert engine.asked[0][1]["Cmd"] == ["stat", "x"]


def test_the_same_for_a_command_that_is_followed(engine: Engine, client: DockerClient) -> None:
    engine.started = "101 UPGRADED"
    with Execution(client, "c1", ["stat", "x"], {}) as running:
        assert b"".join(data for stream, data in running.frames() if stream == 1) == b"600 root\n700 root\n"
        assert running.exit_code() == 0


def test_an_engine_that_refuses_says_why(engine: Engine, client: DockerClient) -> None:
    engine.started = "409 Conflict"
    with pytest.raises(APIError, match="is not running"):
        run_in(Container(client), ["stat", "x"])


@pytest.mark.parametrize(("code", "expected"), [(3, 3), (None, 137)])
def test_the_exit_code(engine: Engine, client: DockerClient, code: int | None, expected: int) -> None:
    engine.exit_code = code
    assert run_in(Container(client), ["stat", "x"]).exit_code == expected
