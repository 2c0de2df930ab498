"""A real sshd for tests: a plain process on 127.0.0.1, with keys and a configuration of its own."""

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAM = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

ADDRESSES = tuple(f"127.0.0.{number}" for number in range(1, 17))


class Sshd:
    """A server that lets this user in with the key `identity`."""

    def __init__(self, directory: Path, extra: str = "") -> None:
        self._directory = directory
        self.identity = make_key(directory / "identity")
        self.host_key_file = make_key(directory / "host")
        (directory / "authorized_keys").write_text(public(self.identity) + "\n")
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            self.port: int = reserved.getsockname()[1]
        # One machine with many addresses, where a test needs many hosts.
        listen = "".join(f"ListenAddress {address}\n" for address in ADDRESSES)
        (directory / "sshd_config").write_text(
            f"{extra}\nPort {self.port}\n{listen}HostKey {self.host_key_file}\n"
            f"AuthorizedKeysFile {directory / 'authorized_keys'}\nPidFile none\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            "MaxStartups 100\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host_key(self) -> str:
        """Its public host key, as an inventory takes it."""
        return public(self.host_key_file)

    def settings(self, **changes: object) -> dict[str, object]:
        """A host of an inventory that is reached through this server."""
        usual: dict[str, object] = {
            "connection": "ssh",
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "identity_file": str(self.identity),
            "host_key": self.host_key,
        }
        return {key: value for key, value in (usual | changes).items() if value is not None}

    def start(self) -> None:
        """Returns when it answers."""
        assert PROGRAM is not None
        if os.geteuid() == 0:
            # as the init script of Debian does it
            Path("/run/sshd").mkdir(exist_ok=True)
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "-D", "-e", "-f", str(self._directory / "sshd_config")], stdout=log, stderr=log
            )
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            except ConnectionRefusedError:
                log_text = (self._directory / "log").read_text()
                assert self._process.poll() is None, log_text
                assert time.monotonic() < deadline, log_text
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Ends it; connections that are open live on."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()


def make_key(path: Path) -> Path:
    """Makes a key pair; returns the private half's file."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)
    return path


def public(key: Path) -> str:
    """The public half of a key: its type and text."""
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


@contextmanager
def running_sshd(directory: Path, extra: str = "") -> Iterator[Sshd]:
    """A server, or a skip where there is no sshd, unless one is required."""
    if PROGRAM is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        problem = "no sshd here; install one (Debian: openssh-server and openssh-client)"
        if os.environ.get("TAXMETER_REQUIRE_ENGINE") == "1":
            pytest.fail(f"TAXMETER_REQUIRE_ENGINE=1, but {problem}")
        pytest.skip(problem)
    directory.mkdir(parents=True, exist_ok=True)
    server = Sshd(directory, extra)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def pretend_ssh(directory: Path, before: str = "") -> None:
    """In place of ssh, for faults that no sshd can be brought to: runs commands here, after a shell has printed."""
    program = directory / "ssh"
    program.write_text(
        f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nprintf \'%s\' {shlex.quote(before)}\nexec sh -c "$3"\n'
    )
    program.chmod(0o755)
