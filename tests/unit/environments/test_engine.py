"""What is said when no engine can be used or one fails, and what it may answer to a removal; the messages are real."""

import socket
import threading
from pathlib import Path
from unittest.mock import MagicMock, call

import docker
import pytest
from docker.errors import APIError, NotFound, StreamParseError
from requests.exceptions import ConnectionError as LostConnectionError
from urllib3.exceptions import ReadTimeoutError

from orchestrator.environments import connect, engine_errors, engine_problem, remove_container, remove_forgotten
from orchestrator.errors import InfrastructureError


@pytest.mark.parametrize(
    ("address", "reason"),
    [("unix:///nonexistent/docker.sock", "there is no such socket; is the engine started?"), ("nonsense://x", "")],
)
def test_an_engine_that_is_not_there_is_one_line(address: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    problem = engine_problem() or ""
    assert problem.startswith(f"no Docker engine answers at {address}: {reason}")
    assert "\n" not in problem


def test_an_engine_that_hangs_or_listens_no_more(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket() as reserved:
        listener.bind(f"{tmp_path}/docker.sock")
        listener.listen()
        reserved.bind(("127.0.0.1", 0))
        with pytest.raises(InfrastructureError, match="did not answer in time"):
            connect(f"unix://{tmp_path}/docker.sock", timeout_s=0.2)
        with pytest.raises(InfrastructureError, match="connection refused"):
            connect(f"tcp://127.0.0.1:{reserved.getsockname()[1]}", timeout_s=2)


REMOVED = [call(condition="removed", timeout=60)]


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (NotFound("404 Client Error"), []),
        (APIError("409 Client Error", explanation="removal of x is already in progress"), REMOVED),
    ],
    ids=["gone", "going"],
)
def test_a_container_that_goes_by_itself_is_removed_and_one_that_stays_is_not(
    error: APIError, waits: list[object]
) -> None:
    container = MagicMock()
    container.remove.side_effect = error
    container.wait.side_effect = NotFound("404 Client Error")
    remove_container(container)
    container.remove.assert_called_once_with(force=True, v=True)
    assert container.wait.mock_calls == waits
    container.remove.side_effect = APIError("500 Server Error", explanation="device or resource busy")
    with pytest.raises(APIError, match="device or resource busy"):
        remove_container(container)


@pytest.mark.parametrize(
    ("created", "goes"),
    [("T11:58:00.123456789Z", False), ("T12:58:00+01:00", False), ("T11:48:00.123456789Z", True), ("", False)],
)
def test_what_killed_commands_left_is_known_by_the_clock_of_its_engine(created: str, goes: bool) -> None:
    engine = MagicMock()
    engine.info.return_value = {"SystemTime": "2020-02-03T12:00:00.123456789Z"}
    container = MagicMock(attrs={"Created": created and f"2020-02-03{created}"})
    engine.containers.list.return_value = [container]
    remove_forgotten(engine, "x=1", 600)
    assert container.remove.called is goes


NOT_OF_A_REGISTRY = (
    "archive/tar: unexpected EOF",
    "OCI runtime create failed: runc create failed: open /dev/x: permission denied: unknown",
    "dial unix /var/run/docker.sock: connect: permission denied",
    'exec: "python": stat python: not found: unknown',
)


def refused(explanation: str) -> APIError:
    return APIError("500 Server Error", explanation=explanation)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("write /x: no space left on device", "the disk is full: .*`docker system df`"),
        (
            'Get "https://lab:5000/": server gave HTTP response to HTTPS client',
            "speaks plain HTTP: .*insecure-registries",
        ),
        ("denied: requested access to the resource is denied", "the registry refuses: denied: .*`docker login`"),
        ("no basic auth credentials", "the registry refuses: .*`docker login`"),
        ("manifest for python@sha256:00 not found: manifest unknown", "the registry does not have it: manifest for"),
        ("dial tcp 127.0.0.1:9: connect: connection refused", "the registry cannot be reached: dial tcp"),
        (
            "tls: failed to verify certificate: x509: unknown authority",
            "does not trust .*/etc/docker/certs.d/HOST/ca.crt",
        ),
        ("something\n  new", "^x: something new$"),
    ],
)
def test_a_message_about_a_registry_says_what_to_do(message: str, told: str) -> None:
    with pytest.raises(InfrastructureError, match=told) as raised, engine_errors("x", about_a_registry=True):
        raise refused(message)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        *((refused(message), message) for message in NOT_OF_A_REGISTRY),
        (refused("write /x: no space left on device"), "the disk is full: write /x: "),
        (
            LostConnectionError("('Connection aborted.', RemoteDisconnected('x'))"),
            "the engine broke the connection off ((",
        ),
        (ReadTimeoutError(None, "/x", "Read timed out."), "the engine did not answer in time (None: Read timed out.)"),
        (StreamParseError("Extra data"), "Extra data"),
    ],
)
def test_what_an_engine_raises_becomes_one_line_that_blames_no_registry(error: Exception, told: str) -> None:
    with pytest.raises(InfrastructureError) as raised, engine_errors("a copy failed"):
        raise error
    assert str(raised.value).startswith(f"a copy failed: {told}")
    assert not any(word in str(raised.value) for word in ("registry", "docker login"))
    assert "\n" not in str(raised.value)


def test_in_a_push_the_connection_to_the_engine_speaks_of_itself() -> None:
    lost = LostConnectionError("dial unix /var/run/docker.sock: connect: permission denied")
    with pytest.raises(InfrastructureError) as raised, engine_errors("x", about_a_registry=True):
        raise lost
    assert "registry" not in str(raised.value)


def answer_and_break_off(listener: socket.socket) -> None:
    """An engine that ends in the middle of a chunk of 256 bytes."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n" + b'{"status": "Pu')


def test_an_engine_that_ends_in_the_middle_of_a_stream_is_one_line() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        engine = threading.Thread(target=answer_and_break_off, args=(listener,))
        engine.start()
        client = docker.DockerClient(f"tcp://127.0.0.1:{listener.getsockname()[1]}", version="1.41", timeout=5)
        try:
            with (
                pytest.raises(InfrastructureError, match="^a pull failed: the engine broke the connection off"),
                engine_errors("a pull failed"),
            ):
                list(client.api.pull("x", tag="y", stream=True, decode=True))
        finally:
            engine.join()
            client.close()
