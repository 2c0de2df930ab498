"""What is said when no engine can be used, and what an engine may answer to a removal."""

import socket
from pathlib import Path

import pytest
from docker.errors import APIError, NotFound

from orchestrator.environments import connect, engine_problem, remove_container
from orchestrator.errors import InfrastructureError


def test_a_socket_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    problem = engine_problem()
    assert problem is not None
    assert problem == (
        "no Docker engine answers at unix:///nonexistent/docker.sock: there is no such socket; is the engine started?"
    )


def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "nonsense://x")
    problem = engine_problem()
    assert problem is not None
    assert "nonsense://x" in problem
    assert "\n" not in problem


def test_an_engine_that_hangs(tmp_path: Path):
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(InfrastructureError, match="did not answer in time"):
            connect(f"unix://{path}", timeout_s=0.2)


def test_nobody_listens():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with pytest.raises(InfrastructureError, match="connection refused"):
            connect(f"tcp://127.0.0.1:{reserved.getsockname()[1]}", timeout_s=2)


class Removed:
    """A container whose engine answers a removal with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.is_gone = isinstance(error, NotFound)

    def remove(self, *, force: bool, v: bool) -> None:
        assert force
        assert v
        raise self._error

    def wait(self, *, condition: str, timeout: int) -> None:
        assert (condition, timeout) == ("removed", 60)
        self.is_gone = True
        raise NotFound("404 Client Error")


@pytest.mark.parametrize(
    "error",
    [NotFound("404 Client Error"), APIError("409 Client Error", explanation="removal of x is already in progress")],
    ids=["gone", "going"],
)
def test_a_container_that_goes_by_itself_is_removed(error: APIError) -> None:
    container = Removed(error)
    remove_container(container)
    assert container.is_gone


def test_a_container_that_stays_is_not_taken_as_removed() -> None:
    with pytest.raises(APIError, match="device or resource busy"):
        remove_container(Removed(APIError("500 Server Error", explanation="device or resource busy")))
