"""Reaches hosts with the system's own ssh program, with a configuration that is private to this process."""

import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.config.inventory import Connection, Host, local_path
from orchestrator.hosts.connection import process
from orchestrator.hosts.connection.configuration import files, route
from orchestrator.hosts.connection.failures import HostConnectionError, Reason, explain
from orchestrator.hosts.connection.forward import EngineForward

SSH_FAILED = 255
"""The exit code by which ssh says that it, and not the command, failed."""

# The path of a socket has 107 bytes at most.
_LONGEST_DIRECTORY = 80
_NOTHING_TRUSTED = ("-o", "StrictHostKeyChecking=accept-new", "-o", "GlobalKnownHostsFile=/dev/null")
_NOBODY = ("-o", "PreferredAuthentications=none", "-o", "PubkeyAuthentication=no", "-o", "IdentityAgent=none")
# The first of the usual places that is there; a rootless engine has its socket with its user.
_SOCKETS = {
    "docker": "/var/run/docker.sock /run/user/$u/docker.sock",
    "podman": "/run/user/$u/podman/podman.sock /run/podman/podman.sock",
}


@dataclass(frozen=True)
class Completed:
    """A command that ended on a host."""

    exit_code: int
    stdout: str
    stderr: str


class Connections:
    """The hosts of an inventory. A context manager: leaving it removes what it wrote on this machine.

    Any number of threads may use it. Nobody is ever asked for anything: without a key that works, a call fails.
    """

    def __init__(self, hosts: Mapping[str, Host], user_directory: Path | None = None) -> None:
        """Reaches nothing yet.

        Args:
            hosts: of an inventory, by name.
            user_directory: with the user's `config` and `known_hosts`; by default ~/.ssh.
        """
        self._hosts = dict(hosts)
        # As ssh itself finds it, whatever HOME says.
        self._user = user_directory or Path(pwd.getpwuid(os.geteuid()).pw_dir, ".ssh")
        self._directory: Path | None = None
        self._started: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> "Connections":
        directory = tempfile.mkdtemp(prefix="taxmeter-ssh-")
        if len(directory) > _LONGEST_DIRECTORY:
            Path(directory).rmdir()
            directory = tempfile.mkdtemp(prefix="taxmeter-ssh-", dir="/tmp")
        self._directory = Path(directory)
        try:
            for name, text in files(self._hosts, self._directory, self._user).items():
                (self._directory / name).write_text(text, encoding="utf-8")
        except BaseException:
            # what is not entered is not left either
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()
        if self._directory is not None:
            shutil.rmtree(self._directory)
            self._directory = None

    def abort(self) -> None:
        """Ends every connection at once; the calls that use them, in whatever thread, fail."""
        with self._lock:
            running = [one for one in self._started if one.poll() is None]
        for one in running:
            process.kill(one)

    def run(self, name: str, argv: Sequence[str], timeout_s: float, stdin: str | bytes = b"") -> Completed:
        """Runs a command on a host, connecting included in the time.

        Args:
            name: of the host.
            argv: the command; no shell of the host's sees more of it than quoted words.
            timeout_s: after which ssh is killed. The command then ends when it next reads or writes.
            stdin: what it reads.

        Raises:
            HostConnectionError: the host was not reached, or the time was up.
        """
        done = self._ssh(name, [], shlex.join(argv), timeout_s, stdin)
        if done.exit_code == SSH_FAILED:
            raise explain(name, self._hosts[name], done.stderr)
        if done.exit_code < 0:
            raise HostConnectionError(name, Reason.OTHER, f"ssh was ended by signal {-done.exit_code}")
        return done

    def start(self, name: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts a command that is spoken with through pipes; whoever calls ends it with `process.end`.

        Raises:
            HostConnectionError: there is no ssh client, or the settings cannot work.
        """
        pipe = subprocess.PIPE
        return self._start(name, [], shlex.join(argv), stdin=pipe, stdout=pipe, stderr=pipe)

    def offered_key(self, name: str, timeout_s: float) -> str:
        """The public key that a host offers, as `type text`. It is not trusted by this, and nobody logs in.

        Raises:
            HostConnectionError: the host was not reached.
        """
        with tempfile.TemporaryDirectory(dir=self._directory) as directory:
            noted = Path(directory, "offered")
            options = ["-o", f"HostKeyAlias={name}", "-o", f"UserKnownHostsFile={noted}", "-o", "HashKnownHosts=no"]
            done = self._ssh(name, [*_NOTHING_TRUSTED, *_NOBODY, *options], "true", timeout_s, "")
            if not noted.exists():
                raise explain(name, self._hosts[name], done.stderr)
            kind, text = noted.read_text(encoding="ascii").splitlines()[0].split()[1:3]
        return f"{kind} {text}"

    @contextmanager
    def forward_engine(self, name: str, timeout_s: float, socket: str | None = None) -> Iterator[EngineForward]:
        """The host's engine as a socket on this machine, for as long as the block lasts.

        Whoever can open the socket is root on that host: nobody but this user can. Give an SDK that uses it short
        time limits, and call `ensure` after an error.

        Args:
            name: of the host.
            timeout_s: for connecting.
            socket: its path there; by default that of the engine that the inventory names.

        Raises:
            HostConnectionError: the host was not reached, or does not forward.
        """
        assert self._directory is not None, "used outside its block"
        remote = socket or self.engine_socket(name, timeout_s)
        if "${" in remote or "%" in remote:
            # the host may have said it, and ssh would tell the host a variable of ours
            problem = f"ssh cannot forward {remote}; name the engine's socket as `engine: unix:///path`"
            raise HostConnectionError(name, Reason.FORWARDING, problem)
        with tempfile.TemporaryDirectory(dir=self._directory, prefix="f") as directory:
            forward = EngineForward(
                lambda options, errors: self._start(
                    name, options, "echo ready; exec cat >/dev/null", subprocess.PIPE, subprocess.PIPE, errors
                ),
                lambda said: explain(name, self._hosts[name], said),
                Path(directory),
                remote,
                timeout_s,
            )
            try:
                forward.ensure()
                yield forward
            finally:
                forward.close()

    def engine_socket(self, name: str, timeout_s: float) -> str:
        """Where the socket of the host's engine is on that host, or would be if the engine were there.

        Raises:
            HostConnectionError: the host was not reached.
        """
        engine = self._hosts[name].engine or "docker"
        if "://" in engine:
            return engine.removeprefix("unix://")
        script = f'u=$(id -u); for s in {_SOCKETS[engine]}; do if [ -S "$s" ]; then echo "$s"; exit; fi; done'
        found = self.run(name, ["sh", "-c", script], timeout_s).stdout.strip()
        return found or re.split(r"\s", _SOCKETS[engine])[0].replace("/user/$u", "")

    def _ssh(self, name: str, options: Sequence[str], remote: str, timeout_s: float, stdin: str | bytes) -> Completed:
        pipe = subprocess.PIPE
        started = self._start(name, [*options, "-o", "ClearAllForwardings=yes"], remote, pipe, pipe, pipe)
        try:
            out, errors = started.communicate(stdin.encode() if isinstance(stdin, str) else stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            problem = f"no answer within {timeout_s:g} s: is the host up, or too busy to answer?"
            raise HostConnectionError(name, Reason.TIMEOUT, problem) from None
        finally:
            process.end(started)
        return Completed(started.returncode, out.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))

    def _start(
        self, name: str, options: Sequence[str], remote: str, stdin: int, stdout: int, stderr: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        assert self._directory is not None, "used outside its block"
        host = self._hosts[name]
        assert host.connection is Connection.SSH, name
        if host.identity_file is not None and not local_path(host.identity_file).is_file():
            problem = f"there is no key {host.identity_file} on this machine; correct `identity_file:`"
            raise HostConnectionError(name, Reason.SETTINGS, problem)
        way = route(name, host, self._directory)
        command = ["ssh", "-F", str(way.configuration), "-T", *options, "--", way.target, remote]
        try:
            started = process.start(command, stdin=stdin, stdout=stdout, stderr=stderr)
        except FileNotFoundError:
            problem = "no ssh client on this machine; install one (Debian: openssh-client)"
            raise HostConnectionError(name, Reason.NO_CLIENT, problem) from None
        with self._lock:
            self._started = {one for one in self._started if one.returncode is None} | {started}
        return started
