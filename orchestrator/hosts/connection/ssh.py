"""Reaches hosts with the system's own ssh program, with a configuration that is private to this process.

No questions are asked, no process is left behind, and none takes longer than it may.
"""

import os
import pwd
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeVar

from orchestrator.config import Connection, Host, local_path
from orchestrator.errors import InfrastructureError
from orchestrator.files import temporary_directory
from orchestrator.hosts.connection.configuration import files, route
from orchestrator.hosts.connection.failures import HostConnectionError, explain, reason

SSH_FAILED = 255
"""The exit code by which ssh says that it, and not the command, failed."""

MAX_AT_ONCE: Final = 16
"""Hosts: a laptop can hold so many connections with ease, and a lab answers in one or two batches."""

Value = TypeVar("Value")
Result = TypeVar("Result")

# The path of a socket has 107 bytes at most.
_PREFIX: Final = "taxmeter-ssh-"
_LONGEST_DIRECTORY = 80
_NOTHING_TRUSTED = ("-o", "StrictHostKeyChecking=accept-new", "-o", "GlobalKnownHostsFile=/dev/null")
_NOBODY = ("-o", "PreferredAuthentications=none", "-o", "PubkeyAuthentication=no", "-o", "IdentityAgent=none")
# The first of the usual places that is there; a rootless engine has its socket with its user.
_SOCKETS = {
    "docker": "/var/run/docker.sock /run/user/$u/docker.sock",
    "podman": "/run/user/$u/podman/podman.sock /run/podman/podman.sock",
}
_FOUND = "taxmeter-socket:"
# Only the kind of a complaint counts, so it must not be translated; nobody is there to be asked for a password.
_ENVIRONMENT = {"LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}


class Deadline:
    """A time limit that several steps share; it counts from its creation."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._end = time.monotonic() + limit_s

    def left_s(self, at_most: float = float("inf")) -> float:
        """Seconds that a step may take: what is left, at least a blink, so that a step fails by its own time limit."""
        return max(0.05, min(at_most, self._end - time.monotonic()))


@dataclass(frozen=True)
class CommandOutput:
    """A command that ended on a host."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """Of its errors; its exit code where it said nothing."""
        return (self.stderr.strip().splitlines() or [f"exit code {self.exit_code} without a message"])[-1]


@dataclass(frozen=True)
class EngineForward:
    """A forwarded engine."""

    socket: Path
    log: Path
    """What ssh has complained about so far."""

    @property
    def address(self) -> str:
        """As the engine's clients take it."""
        return f"unix://{self.socket}"

    def is_refused(self) -> bool:
        """Whether the host did not connect us to the socket: it is not there, not ours, or forwarding is forbidden."""
        # ssh writes it down a moment after the client of the socket has lost its connection
        deadline = time.monotonic() + 5
        while b"open failed" not in self.log.read_bytes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


class Connections:
    """The hosts of an inventory. A context manager: leaving it removes what it wrote on this machine.

    Any number of threads may use it. Nobody is ever asked for anything: without a key that works, a call fails.
    """

    def __init__(self, hosts: Mapping[str, Host], user_directory: Path | None = None) -> None:
        """Reaches nothing yet.

        Args:
            user_directory: with the user's `config` and `known_hosts`; by default ~/.ssh.
        """
        self._hosts = dict(hosts)
        # As ssh itself finds it, whatever HOME says.
        self._user = user_directory or Path(pwd.getpwuid(os.geteuid()).pw_dir, ".ssh")
        self._directory: Path | None = None
        self._started: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> "Connections":
        directory = temporary_directory(_PREFIX, Path(tempfile.gettempdir()))
        if len(str(directory)) > _LONGEST_DIRECTORY:
            directory.rmdir()
            directory = temporary_directory(_PREFIX, Path("/tmp"))  # noqa: S108 - the paths of sockets must be short
        self._directory = directory
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
            running = [started for started in self._started if started.poll() is None]
        for started in running:
            _kill(started)

    def run(self, name: str, argv: Sequence[str], timeout_s: float, stdin: str | bytes = b"") -> CommandOutput:
        """Runs a command on a host, connecting included in the time.

        Args:
            argv: the command; no shell of the host's sees more of it than quoted words.
            timeout_s: after which ssh is killed. The command then ends when it next reads or writes.
        """
        done = self._ssh(name, [], shlex.join(argv), timeout_s, stdin)
        if done.exit_code == SSH_FAILED:
            raise explain(name, self._hosts[name], done.stderr)
        if done.exit_code < 0:
            raise HostConnectionError(name, f"ssh was ended by signal {-done.exit_code}")
        return done

    def start(self, name: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts a command that is spoken with through pipes; whoever calls ends it with `end`."""
        pipe = subprocess.PIPE
        return self._start(name, [], shlex.join(argv), stdin=pipe, stdout=pipe, stderr=pipe)

    def failure(self, name: str, started: "subprocess.Popen[bytes]") -> InfrastructureError:
        """Why a started command said no last word; ends it. An HostConnectionError if the connection is to blame."""
        _kill(started)
        was_silent = started.wait() == -signal.SIGKILL
        assert started.stderr is not None
        said = started.stderr.read().decode("utf-8", "replace")
        if was_silent:
            return HostConnectionError(name, "the connection ended, or nothing came through it any more")
        if started.returncode == SSH_FAILED:
            return explain(name, self._hosts[name], said)
        return InfrastructureError(CommandOutput(started.returncode, "", said).last_line)

    def offered_key(self, name: str, timeout_s: float) -> str:
        """The public key that a host offers, as `type text`. It is not trusted by this, and nobody logs in."""
        with tempfile.TemporaryDirectory(dir=self._directory) as directory:
            noted = Path(directory, "offered")
            options = ["-o", f"HostKeyAlias={name}", "-o", f"UserKnownHostsFile={noted}", "-o", "HashKnownHosts=no"]
            done = self._ssh(name, [*_NOTHING_TRUSTED, *_NOBODY, *options], "true", timeout_s, "")
            if not noted.exists():
                raise explain(name, self._hosts[name], done.stderr)
            kind, text = noted.read_text(encoding="ascii").splitlines()[0].split()[1:3]
        return f"{kind} {text}"

    @contextmanager
    def forward_engine(self, name: str, timeout_s: float, socket: str) -> Iterator[EngineForward]:
        """The host's engine as a socket on this machine, for as long as the block lasts.

        Whoever can open the socket is root on that host: nobody but this user can. Give an SDK that uses it short
        time limits.
        """
        assert self._directory is not None, "used outside its block"
        if "${" in socket or "%" in socket:
            # the host may have said it, and ssh would tell the host a variable of ours
            problem = f"ssh cannot forward {socket}; name the engine's socket as `engine: unix:///path`"
            raise HostConnectionError(name, problem)
        with tempfile.TemporaryDirectory(dir=self._directory, prefix="f") as directory:
            forward = EngineForward(Path(directory, "engine.sock"), Path(directory, "ssh.log"))
            options = [
                *("-o", "ExitOnForwardFailure=yes", "-o", "StreamLocalBindMask=0177"),
                # at this level ssh says why a connection through the socket failed
                *("-o", "LogLevel=INFO", "-L", f"{forward.socket}:{socket}"),
            ]
            pipe = subprocess.PIPE
            with forward.log.open("wb") as errors:
                # it reads its standard input to the end: by that ssh ends when we do, however we end
                started = self._start(name, options, "echo ready; exec cat >/dev/null", pipe, pipe, errors)
            try:
                assert started.stdout is not None
                readable, _, _ = select.select([started.stdout], [], [], timeout_s)
                # ssh binds the socket before it starts the command that says this line
                if not readable or not started.stdout.readline():
                    said = forward.log.read_text(encoding="utf-8", errors="replace")
                    late = f"connection timed out after {timeout_s:g} s"
                    raise explain(name, self._hosts[name], said if readable else late)
                yield forward
            finally:
                end(started)

    def engine_socket(self, name: str, timeout_s: float) -> str:
        """Where the socket of the host's engine is on that host, or would be if the engine were there."""
        engine = self._hosts[name].engine or "docker"
        if "://" in engine:
            return engine.removeprefix("unix://")
        script = (
            f'u=$(id -u); for s in {_SOCKETS[engine]}; do if [ -S "$s" ]; then printf "\\n{_FOUND}%s\\n" "$s"; fi; done'
        )
        lines = self.run(name, ["sh", "-c", script], timeout_s).stdout.splitlines()  # its login shell may print, too
        found = next((line.removeprefix(_FOUND) for line in lines if line.startswith(_FOUND)), "")
        return found or re.split(r"\s", _SOCKETS[engine])[0].replace("/user/$u", "")

    def _ssh(
        self, name: str, options: Sequence[str], remote: str, timeout_s: float, stdin: str | bytes
    ) -> CommandOutput:
        pipe = subprocess.PIPE
        started = self._start(name, [*options, "-o", "ClearAllForwardings=yes"], remote, pipe, pipe, pipe)
        try:
            out, errors = started.communicate(stdin.encode() if isinstance(stdin, str) else stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            problem = f"no answer within {timeout_s:g} s: is the host up, or too busy to answer?"
            raise HostConnectionError(name, problem) from None
        finally:
            end(started)
        return CommandOutput(started.returncode, out.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))

    def _start(
        self, name: str, options: Sequence[str], remote: str, stdin: int, stdout: int, stderr: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        assert self._directory is not None, "used outside its block"
        host = self._hosts[name]
        assert host.connection is Connection.SSH, name
        if host.identity_file is not None and not local_path(host.identity_file).is_file():
            problem = f"there is no key {host.identity_file} on this machine; correct `identity_file:`"
            raise HostConnectionError(name, problem)
        way = route(name, host, self._directory)
        command = ["ssh", "-F", str(way.configuration), "-T", *options, "--", way.target, remote]
        try:
            # in a session of its own, so that it has no terminal to ask at
            started = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=os.environ | _ENVIRONMENT,
                start_new_session=True,
            )
        except FileNotFoundError:
            problem = "no ssh client on this machine; install one (Debian: openssh-client)"
            raise HostConnectionError(name, problem) from None
        with self._lock:
            self._started = {known for known in self._started if known.returncode is None} | {started}
        return started


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills ssh with the processes of its jumps. Whoever waits for it goes on."""
    if process.poll() is None:
        with suppress(ProcessLookupError):  # another thread has just waited for it
            os.killpg(process.pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends ssh with the processes of its jumps, waits for it and closes its pipes."""
    _kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):  # what was not written yet has no reader any more
                stream.close()


def for_each(values: Iterable[Value], call: Callable[[Value], Result], connections: Connections) -> list[Result]:
    """What a function returns for each value, in the order of the values; it is called in threads.

    An exception, Ctrl-C among them, ends all connections: no interrupt reaches ssh, and a thread that waits for a host
    would else hold the command up until that host answers.
    """
    with ThreadPoolExecutor(max_workers=MAX_AT_ONCE, thread_name_prefix="host") as pool:
        running = [pool.submit(call, value) for value in values]
        try:
            return [future.result() for future in running]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            connections.abort()
            raise


def of_each(
    names: Iterable[str], do: Callable[[str], Result], connections: Connections
) -> tuple[dict[str, Result], dict[str, str]]:
    """Does something with several hosts at once: the results by host; and why it failed with the others, by host too.

    Only an InfrastructureError is such a reason, by its text without the name of the host; see `for_each`.
    """

    def answer(name: str) -> tuple[Result, ...] | str:
        try:
            return (do(name),)
        except InfrastructureError as error:
            return reason(error)

    chosen = tuple(names)
    answers = dict(zip(chosen, for_each(chosen, answer, connections), strict=True))
    results = {name: found[0] for name, found in answers.items() if not isinstance(found, str)}
    return results, {name: found for name, found in answers.items() if isinstance(found, str)}
