"""Hosts over a real sshd: commands, the engine's socket, and every way in which a host is not reached; many at once."""

import errno
import socket
import socketserver
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.config import Connection, Host
from orchestrator.hosts.connection import Connections, HostConnectionError, for_each
from orchestrator.hosts.connection.configuration import BY_ADDRESS, BY_ALIAS, files
from orchestrator.hosts.connection.ssh import MAX_AT_ONCE
from tests.recording import processes_naming, wait_for
from tests.sshd import Sshd, make_key, public, running_sshd

LIMIT_S = 60.0
Reach = Callable[..., Connections]
Problem = Callable[..., str]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def user_directory(tmp_path: Path) -> Path:
    """In place of the user's ~/.ssh."""
    directory = tmp_path / "dot-ssh"
    directory.mkdir()
    return directory


def host_of(sshd: Sshd, **changes: object) -> Host:
    return Host(**(sshd.settings(**changes) | {"connection": Connection.SSH}))  # type: ignore[arg-type]


@pytest.fixture
def reach(sshd: Sshd, user_directory: Path) -> Reach:
    """Connections to the host h1."""
    return lambda **changes: Connections({"h1": host_of(sshd, **changes)}, user_directory)


@pytest.fixture
def problem(reach: Reach) -> Problem:
    """Why nothing runs on the host h1."""

    def told(**changes: object) -> str:
        with reach(**changes) as connections:
            return refusal(connections)

    return told


def refusal(connections: Connections) -> str:
    with pytest.raises(HostConnectionError) as caught:
        connections.run("h1", ["true"], LIMIT_S)
    assert "\n" not in str(caught.value)
    return caught.value.problem


def test_a_command_gets_its_words_and_its_input_and_nothing_stays_here(reach: Reach, user_directory: Path) -> None:
    with reach() as connections:
        script = 'cat; printf "[%s]" "$@"; echo said >&2; exit 3'
        done = connections.run("h1", ["sh", "-c", script, "sh", "a b", "$HOME", "it's"], LIMIT_S, stdin="in\n")
        directory = connections._directory
        assert directory is not None
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (done.exit_code, done.stdout, done.stderr) == (3, "in\n[a b][$HOME][it's]", "said\n")
    assert not directory.exists()
    assert list(user_directory.iterdir()) == []


def test_nothing_stays_of_connections_that_were_never_made(reach: Reach, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def full(_hosts: object, directory: Path, _user: object) -> dict[str, str]:
        made.append(directory)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("orchestrator.hosts.connection.ssh.files", full)
    with pytest.raises(OSError, match="No space"), reach():
        pytest.fail("it was entered")
    assert [directory.exists() for directory in made] == [False]


def test_a_user_of_a_domain_is_told_to_ssh_as_it_is(reach: Reach) -> None:
    with reach(user=r"LAB\jdoe") as connections:
        configuration = f"{connections._directory}/{BY_ADDRESS}"
        read = subprocess.run(["ssh", "-G", "-F", configuration, "h1"], capture_output=True, text=True, check=True)
    assert "user LAB\\jdoe\n" in read.stdout


def test_without_a_pinned_key_the_users_known_hosts_decide_and_an_offered_key_is_not_trusted(
    sshd: Sshd, reach: Reach, user_directory: Path, tmp_path: Path
) -> None:
    known = user_directory / "known_hosts"
    with reach(host_key=None) as connections:
        assert connections.offered_key("h1", LIMIT_S) == sshd.host_key
        assert "its host key is not known: `taxmeter hosts key h1`" in refusal(connections)
        assert list(user_directory.iterdir()) == []
        known.write_text(f"[127.0.0.1]:{sshd.port} {sshd.host_key}\n")
        assert connections.run("h1", ["echo", "in"], LIMIT_S).stdout == "in\n"
        known.write_text(f"[127.0.0.1]:{sshd.port} {public(make_key(tmp_path / 'other'))}\n")
        told = refusal(connections)
    assert "wrong host key: it offers" in told
    assert f"your known_hosts has another ({known}:1)" in told


def test_another_kind_of_key_than_the_pinned_one(problem: Problem, tmp_path: Path) -> None:
    key = tmp_path / "ecdsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(key)], check=True)
    assert "wrong host key: it offers" in problem(host_key=public(key))


def test_a_key_that_does_not_open(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    stranger = make_key(tmp_path / "stranger")
    told = problem(identity_file=str(stranger))
    assert "it refuses" in told
    assert f"add the public half of {stranger} to " in told
    for nowhere in ("/nonexistent/key", "~nosuchuser/key"):
        assert f"there is no key {nowhere} on this machine" in problem(identity_file=nowhere)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "no ssh client on this machine" in problem()


def test_an_abort_ends_what_runs(reach: Reach) -> None:
    with reach() as connections, ThreadPoolExecutor() as pool:
        call = pool.submit(connections.run, "h1", ["sh", "-c", "echo here; exec sleep 600"], 600)
        while not call.done():
            connections.abort()
            time.sleep(0.05)
        with pytest.raises(HostConnectionError, match="ssh was ended by signal 9"):
            call.result()


def test_a_host_behind_another(sshd: Sshd, problem: Problem, user_directory: Path) -> None:
    hosts = {"gate": host_of(sshd), "h1": host_of(sshd, address="localhost", jump="gate")}
    with Connections(hosts, user_directory) as connections:
        assert connections.run("h1", ["echo", "through"], LIMIT_S).stdout == "through\n"
    told = problem(address="localhost", jump=f"127.0.0.1:{sshd.port}")  # which the inventory does not have
    assert f"the jump host [127.0.0.1]:{sshd.port} has a host key that is unknown" in told


def test_an_alias_keeps_the_users_configuration_and_no_key_is_trusted_blindly(
    sshd: Sshd, user_directory: Path, tmp_path: Path
) -> None:
    known = user_directory / "mine"
    (user_directory / "config").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.identity}\n"
        f"  UserKnownHostsFile {known}\n  StrictHostKeyChecking no\n  RemoteCommand false\n"
    )
    known.write_text(f"[127.0.0.1]:{sshd.port} {sshd.host_key}\n")

    def lab(host_key: str | None = None) -> Host:
        return Host(connection=Connection.SSH, ssh_alias="lab", host_key=host_key)

    hosts = {"h1": lab(), "h2": host_of(sshd, address="localhost", jump="h1")}
    with Connections(hosts, user_directory) as connections:
        assert connections.run("h1", ["echo", "mine"], LIMIT_S).stdout == "mine\n"
        assert connections.run("h2", ["echo", "behind"], LIMIT_S).stdout == "behind\n"
        known.write_text("")
        assert "host key is not known" in refusal(connections)
    assert known.read_text() == ""
    assert "BatchMode yes" in files({}, Path("/private"), user_directory)[BY_ALIAS]
    with Connections({"h1": lab(sshd.host_key)}, user_directory) as connections:
        assert connections.run("h1", ["true"], LIMIT_S).exit_code == 0
    with Connections({"h1": lab(public(make_key(tmp_path / "other")))}, user_directory) as connections:
        assert "wrong host key: it offers" in refusal(connections)


class Word(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"engine")


def word_from(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT_S)
        client.connect(str(path))
        try:
            return client.recv(16)
        except ConnectionResetError:
            return b""


def test_an_engine_is_a_socket_that_only_this_user_opens(
    reach: Reach, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = str(tmp_path_factory.mktemp("engine") / "s")
    with socketserver.UnixStreamServer(path, Word) as server, ThreadPoolExecutor() as pool, reach() as connections:
        server.timeout = LIMIT_S
        with connections.forward_engine("h1", LIMIT_S, path) as forward:
            assert stat.S_IMODE(forward.socket.stat().st_mode) == 0o600
            assert len(str(forward.socket)) < 108
            answered = pool.submit(server.handle_request)
            assert word_from(forward.socket) == b"engine"
            answered.result()
            assert not forward.is_refused()
        assert not forward.socket.exists()


@pytest.mark.parametrize(
    ("path", "changes", "expected"),
    [
        ("/run/${HOME}/s", {}, "ssh cannot forward"),
        ("/run/%u/s", {}, "ssh cannot forward"),
        ("/x", {"host_key": None}, "host key is not known"),
    ],
    ids=["a variable of this machine", "a word of ssh's", "to nobody"],
)
def test_what_cannot_be_forwarded_says_why(reach: Reach, path: str, changes: dict[str, object], expected: str) -> None:
    with (
        reach(**changes) as connections,
        pytest.raises(HostConnectionError, match=expected),
        connections.forward_engine("h1", LIMIT_S, path),
    ):
        pytest.fail("it was forwarded")


def test_a_forward_refuses_what_is_not_there_and_ends_with_its_process(reach: Reach) -> None:
    with reach() as connections, connections.forward_engine("h1", LIMIT_S, "/nonexistent/docker.sock") as forward:
        assert word_from(forward.socket) == b""
        assert forward.is_refused()
        [started] = connections._started
        assert started.stdin is not None
        started.stdin.close()  # what the kernel does when we are killed
        assert started.wait(LIMIT_S) == 0


def test_a_command_that_outlives_its_time_leaves_no_process_of_ssh(reach: Reach) -> None:
    with reach() as connections:
        with pytest.raises(HostConnectionError, match="no answer within 1 s"):
            connections.run("h1", ["sleep", "600"], 1)
        directory = connections._directory
    assert directory is not None
    wait_for(lambda: not processes_naming(directory))


class Waiting(Connections):
    """A call waits until all connections are ended."""

    def __init__(self) -> None:
        super().__init__({})
        self.ended = threading.Event()

    def abort(self) -> None:
        self.ended.set()


def test_answers_come_in_the_order_of_the_hosts() -> None:
    def call(number: int) -> int:
        time.sleep(0.01 * (3 - number % 3))
        return number * number

    assert for_each(range(40), call, Waiting()) == [number * number for number in range(40)]
    assert for_each([], call, Waiting()) == []


def test_an_interrupt_ends_what_waits_and_starts_nothing_more() -> None:
    connections, started = Waiting(), []

    def call(number: int) -> bool:
        started.append(number)
        if number == 0:
            raise KeyboardInterrupt
        return connections.ended.wait(60)

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        for_each(range(10 * MAX_AT_ONCE), call, connections)
    assert time.monotonic() - begin < 30
    assert connections.ended.is_set()
    assert len(started) <= MAX_AT_ONCE + 1
