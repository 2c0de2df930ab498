"""Hosts over a real sshd: commands, the engine's socket, and every way in which a host is not reached."""

import errno
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.config import Connection, Host
from orchestrator.hosts.connection import Connections, HostConnectionError
from orchestrator.hosts.connection.configuration import BY_ADDRESS, BY_ALIAS, files
from tests.recording import processes_naming, wait_for
from tests.sshd import Sshd, make_key, public, running_sshd

LIMIT_S = 60.0


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


@contextmanager
def reaching(sshd: Sshd, user_directory: Path, **changes: object) -> Iterator[Connections]:
    with Connections({"h1": host_of(sshd, **changes)}, user_directory) as connections:
        yield connections


def failure(sshd: Sshd, user_directory: Path, **changes: object) -> HostConnectionError:
    with (
        reaching(sshd, user_directory, **changes) as connections,
        pytest.raises(HostConnectionError) as caught,
    ):
        connections.run("h1", ["true"], LIMIT_S)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_command_gets_its_words_and_its_input(sshd: Sshd, user_directory: Path) -> None:
    with reaching(sshd, user_directory) as connections:
        script = 'cat; printf "[%s]" "$@"; echo said >&2; exit 3'
        done = connections.run("h1", ["sh", "-c", script, "sh", "a b", "$HOME", "it's"], LIMIT_S, stdin="in\n")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "in\n[a b][$HOME][it's]", "said\n")


def test_nothing_stays_on_this_machine(sshd: Sshd, user_directory: Path) -> None:
    with reaching(sshd, user_directory) as connections:
        directory = connections._directory
        assert directory is not None
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        connections.run("h1", ["true"], LIMIT_S)
    assert not directory.exists()
    assert list(user_directory.iterdir()) == []


def test_nothing_stays_of_connections_that_were_never_made(sshd: Sshd, user_directory: Path, monkeypatch) -> None:
    made: list[Path] = []

    def full(_hosts: object, directory: Path, _user: object) -> dict[str, str]:
        made.append(directory)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("orchestrator.hosts.connection.ssh.files", full)
    with pytest.raises(OSError, match="No space"), reaching(sshd, user_directory):
        pytest.fail("it was entered")
    assert [directory.exists() for directory in made] == [False]


def test_a_user_of_a_domain_is_told_to_ssh_as_it_is(sshd: Sshd, user_directory: Path) -> None:
    with reaching(sshd, user_directory, user=r"LAB\jdoe") as connections:
        configuration = f"{connections._directory}/{BY_ADDRESS}"
        read = subprocess.run(["ssh", "-G", "-F", configuration, "h1"], capture_output=True, text=True, check=True)
    assert "user LAB\\jdoe\n" in read.stdout


def test_another_kind_of_key_than_the_pinned_one(sshd: Sshd, user_directory: Path, tmp_path: Path) -> None:
    key = tmp_path / "ecdsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(key)], check=True)
    assert "wrong host key: it offers" in failure(sshd, user_directory, host_key=public(key)).problem


def test_an_unknown_host_key_is_not_trusted(sshd: Sshd, user_directory: Path) -> None:
    error = failure(sshd, user_directory, host_key=None)
    assert "host key is not known" in error.problem
    assert "`taxmeter hosts key h1`" in error.problem
    assert list(user_directory.iterdir()) == []


def test_without_a_pinned_key_the_users_known_hosts_decide(sshd: Sshd, user_directory: Path, tmp_path: Path) -> None:
    known = user_directory / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {sshd.host_key}\n")
    with reaching(sshd, user_directory, host_key=None) as connections:
        assert connections.run("h1", ["echo", "in"], LIMIT_S).stdout == "in\n"
    known.write_text(f"[127.0.0.1]:{sshd.port} {public(make_key(tmp_path / 'other'))}\n")
    error = failure(sshd, user_directory, host_key=None)
    assert "wrong host key: it offers" in error.problem
    assert f"your known_hosts has another ({known}:1)" in error.problem


def test_a_key_that_does_not_open(sshd: Sshd, user_directory: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    stranger = make_key(tmp_path / "stranger")
    error = failure(sshd, user_directory, identity_file=str(stranger))
    assert "it refuses" in error.problem
    assert f"add the public half of {stranger} to " in error.problem


@pytest.mark.parametrize("key", ["/nonexistent/key", "~nosuchuser/key"])
def test_a_key_file_that_is_not_there(sshd: Sshd, user_directory: Path, key: str) -> None:
    assert f"there is no key {key} on this machine" in failure(sshd, user_directory, identity_file=key).problem


def test_a_host_that_says_nothing(sshd: Sshd, user_directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with (
            reaching(sshd, user_directory, port=port) as connections,
            pytest.raises(HostConnectionError, match=r"no answer within 0\.5 s"),
        ):
            connections.run("h1", ["true"], 0.5)


def test_an_abort_ends_what_runs(sshd: Sshd, user_directory: Path) -> None:
    with reaching(sshd, user_directory) as connections, ThreadPoolExecutor() as pool:
        call = pool.submit(connections.run, "h1", ["sh", "-c", "echo here; exec sleep 600"], 600)
        while not call.done():
            connections.abort()
            time.sleep(0.05)
        with pytest.raises(HostConnectionError, match="ssh was ended by signal 9"):
            call.result()


def test_no_client(sshd: Sshd, user_directory: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    error = failure(sshd, user_directory)
    assert "no ssh client on this machine" in error.problem


def test_the_offered_key_is_shown_and_not_trusted(sshd: Sshd, user_directory: Path) -> None:
    with reaching(sshd, user_directory, host_key=None) as connections:
        assert connections.offered_key("h1", LIMIT_S) == sshd.host_key
        with pytest.raises(HostConnectionError) as caught:
            connections.run("h1", ["true"], LIMIT_S)
    assert "host key is not known" in caught.value.problem


def test_a_host_behind_another_of_the_inventory(sshd: Sshd, user_directory: Path) -> None:
    hosts = {"gate": host_of(sshd), "h1": host_of(sshd, address="localhost", jump="gate")}
    with Connections(hosts, user_directory) as connections:
        assert connections.run("h1", ["echo", "through"], LIMIT_S).stdout == "through\n"


def test_a_host_behind_one_that_the_inventory_does_not_have(sshd: Sshd, user_directory: Path) -> None:
    jump = f"127.0.0.1:{sshd.port}"
    error = failure(sshd, user_directory, address="localhost", jump=jump)
    assert f"the jump host [127.0.0.1]:{sshd.port} has a host key that is unknown" in error.problem


def test_an_alias_keeps_the_users_configuration(sshd: Sshd, user_directory: Path) -> None:
    settings = sshd.settings()
    (user_directory / "config").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {settings['identity_file']}\n"
        f"  UserKnownHostsFile {user_directory}/mine\n  StrictHostKeyChecking no\n  RemoteCommand false\n"
    )
    (user_directory / "mine").write_text(f"[127.0.0.1]:{sshd.port} {sshd.host_key}\n")
    alias = Host(connection=Connection.SSH, ssh_alias="lab")
    with Connections({"h1": alias, "h2": host_of(sshd, address="localhost", jump="h1")}, user_directory) as connections:
        assert connections.run("h1", ["echo", "mine"], LIMIT_S).stdout == "mine\n"
        assert connections.run("h2", ["echo", "behind"], LIMIT_S).stdout == "behind\n"
        (user_directory / "mine").write_text("")
        with pytest.raises(HostConnectionError) as caught:
            connections.run("h1", ["true"], LIMIT_S)
    # never trusted blindly, whatever the user's configuration says
    assert "host key is not known" in caught.value.problem
    assert (user_directory / "mine").read_text() == ""


def test_a_pinned_key_counts_for_an_alias_too(sshd: Sshd, user_directory: Path, tmp_path: Path) -> None:
    (user_directory / "config").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.identity}\n"
    )
    for key, reached in ((sshd.host_key, True), (public(make_key(tmp_path / "other")), False)):
        alias = Host(connection=Connection.SSH, ssh_alias="lab", host_key=key)
        with Connections({"h1": alias}, user_directory) as connections:
            if reached:
                assert connections.run("h1", ["true"], LIMIT_S).exit_code == 0
            else:
                with pytest.raises(HostConnectionError) as caught:
                    connections.run("h1", ["true"], LIMIT_S)
                assert "wrong host key: it offers" in caught.value.problem


def test_what_the_user_set_cannot_undo_what_is_always_so() -> None:
    text = files({}, Path("/private"), Path("/home/me/.ssh"))[BY_ALIAS]
    assert text.index("StrictHostKeyChecking yes") < text.index('Include "/home/me/.ssh/config"')
    assert "BatchMode yes" in text


@pytest.fixture
def far_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Answers every connection with one word."""
    path = tmp_path_factory.mktemp("engine") / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"engine")

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        server.join()


def word_from(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT_S)
        client.connect(str(path))
        try:
            return client.recv(16)
        except ConnectionResetError:
            return b""


def test_an_engine_is_a_socket_that_only_this_user_opens(sshd: Sshd, user_directory: Path, far_socket: Path) -> None:
    with (
        reaching(sshd, user_directory) as connections,
        connections.forward_engine("h1", LIMIT_S, str(far_socket)) as forward,
    ):
        assert stat.S_IMODE(forward.socket.stat().st_mode) == 0o600
        assert len(str(forward.socket)) < 108
        assert word_from(forward.socket) == b"engine"
        assert not forward.is_refused()
        path = forward.socket
    assert not path.exists()


def test_a_socket_that_is_not_there_is_refused(sshd: Sshd, user_directory: Path) -> None:
    with (
        reaching(sshd, user_directory) as connections,
        connections.forward_engine("h1", LIMIT_S, "/nonexistent/docker.sock") as forward,
    ):
        assert word_from(forward.socket) == b""
        assert forward.is_refused()


@pytest.mark.parametrize("path", ["/run/${HOME}/s", "/run/%u/s"])
def test_a_host_is_told_no_variable_of_this_machine(sshd: Sshd, user_directory: Path, path: str) -> None:
    with (
        reaching(sshd, user_directory) as connections,
        pytest.raises(HostConnectionError) as caught,
        connections.forward_engine("h1", LIMIT_S, path),
    ):
        pytest.fail("it was forwarded")
    assert "ssh cannot forward" in caught.value.problem


def test_a_forward_to_nobody_says_why(sshd: Sshd, user_directory: Path) -> None:
    with (
        reaching(sshd, user_directory, host_key=None) as connections,
        pytest.raises(HostConnectionError) as caught,
        connections.forward_engine("h1", LIMIT_S, "/x"),
    ):
        pytest.fail("it was forwarded")
    assert "host key is not known" in caught.value.problem


def test_a_forward_ends_with_its_process(sshd: Sshd, user_directory: Path, far_socket: Path) -> None:
    with (
        reaching(sshd, user_directory) as connections,
        connections.forward_engine("h1", LIMIT_S, str(far_socket)),
    ):
        [started] = connections._started
        assert started.stdin is not None
        # what the kernel does when we are killed
        started.stdin.close()
        assert started.wait(LIMIT_S) == 0


def test_a_command_that_outlives_its_time_leaves_no_process_of_ssh(sshd: Sshd, user_directory: Path) -> None:
    with reaching(sshd, user_directory) as connections:
        with pytest.raises(HostConnectionError, match="no answer within"):
            connections.run("h1", ["sleep", "600"], 1)
        directory = connections._directory
    assert directory is not None
    wait_for(lambda: not processes_naming(directory))
