"""Commands in containers: what an engine sends in one packet with its answer's header is not lost."""

import json
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from docker import DockerClient
from docker.errors import APIError

from orchestrator.hosts.cluster.commands import Execution, run_in
from orchestrator.hosts.connection import CommandOutput


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(data)) + data


WRITTEN = frame(1, b"600 root\n") + frame(2, b"a warning\n") + frame(1, b"700 root\n")


class Engine(HTTPServer):
    """An engine that knows one container and sends each answer, header and body, in one packet."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.exit_code: int | None = 0
        self.started = "200 OK"
        self.asked: list[tuple[str, Any]] = []


class Answer(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, json.loads(sent) if sent else None))
        answers = {"start": {"message": "is not running"}, "json": {"ExitCode": self.server.exit_code}}
        action = self.path.rpartition("/")[2]
        status, body = "200 OK", json.dumps(answers.get(action, {"Id": "e1"})).encode()
        if action == "start":
            status, body = self.server.started, WRITTEN if self.server.started[0] in "12" else body
        self.wfile.write(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n".encode() + body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.05,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def client(engine: Engine) -> Iterator[DockerClient]:
    with closing(DockerClient(f"tcp://127.0.0.1:{engine.server_port}", version="1.41", timeout=10)) as found:
        yield found


@pytest.mark.parametrize(("code", "told"), [(0, 0), (3, 3), (None, 137)])
def test_what_came_with_the_header_and_the_exit_code_are_told(
    engine: Engine, client: DockerClient, code: int | None, told: int
) -> None:
    engine.exit_code = code
    done = run_in(SimpleNamespace(client=client, id="c1"), ["stat", "x"])
    assert done == CommandOutput(told, "600 root\n700 root\n", "a warning\n")
    paths = [path.removeprefix("/v1.41/") for path, _ in engine.asked]
    assert paths == ["containers/c1/exec", "exec/e1/start", "exec/e1/json"]
    assert engine.asked[0][1]["Cmd"] == ["stat", "x"]


def test_the_same_for_a_command_that_is_followed(engine: Engine, client: DockerClient) -> None:
    engine.started = "101 UPGRADED"
    with Execution(client, "c1", ["stat", "x"], {}) as running:
        assert b"".join(data for stream, data in running.frames() if stream == 1) == b"600 root\n700 root\n"
        assert running.exit_code() == 0


def test_an_engine_that_refuses_says_why(engine: Engine, client: DockerClient) -> None:
    engine.started = "409 Conflict"
    with pytest.raises(APIError, match="is not running"):
        run_in(SimpleNamespace(client=client, id="c1"), ["stat", "x"])
