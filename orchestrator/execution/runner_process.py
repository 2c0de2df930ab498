"""Runs a runner to its end: here, or on a host that has nothing but SSH and the interpreter that runs this.

There the text of this file is the whole program, so it needs nothing but the standard library of Python 3.8. It reads
an order, a line of JSON, from its standard input, and ends when that closes; it answers in lines, see `say`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MARK = "TAXMETER_TASK_DIRECTORY"
"""In the environment of every process of a task: it tells them from all others."""

GRACE_S = 10.0
"""Between closing the lifeline, or asking the supervisor to end, and killing it."""

POLL_INTERVAL_S = 0.1
"""How often it is looked whether a task is over or to be ended."""

GREETING = b"\ntaxmeter-supervising\n"
"""Before the first answer: login scripts may have printed something."""

_ALIVE_S = 1.0
_PIECE_BYTES = 64 * 2**10
_LOG_BYTES = 8192
_MAX_DOCUMENT_BYTES = 64 * 2**20
_LOCK_MODE = 0o644
_ANYBODYS = 0o1777


@dataclass(frozen=True)
class RunnerCommand:
    """How a runner is started. Nothing is inherited."""

    argv: Sequence[str]
    directory: str
    """Of the task; marks its processes."""
    code: str
    """Working directory."""
    log: str
    environment: Mapping[str, str]
    limit_s: float


def run_runner(command: RunnerCommand, is_stopped: Callable[[float], bool]) -> tuple[int | None, str | None]:
    """Runs a runner to its end; however that comes, none of its processes is left.

    Args:
        command: how it is started.
        is_stopped: waits so many seconds, and says whether the runner is to be ended.

    Returns:
        The exit code, null if its time was over, and that it was.

    Raises:
        OSError: it cannot be started.
    """
    with open(command.log, "ab") as log:
        process = subprocess.Popen(
            list(command.argv),
            cwd=command.code,
            env=dict(command.environment),
            stdin=subprocess.PIPE,  # the lifeline: it closes when this process dies, however it dies
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + command.limit_s + 30
    ended_because = None
    try:
        while process.poll() is None and not is_stopped(POLL_INTERVAL_S):
            if time.monotonic() > deadline:
                ended_because = f"the task outlived its own limit of {command.limit_s:.0f} s"
                break
    finally:
        _end(process)
        kill_marked(command.directory)
    return None if ended_because else process.returncode, ended_because


def kill_marked(directory: str) -> None:
    """Kills what a dead supervisor left: processes that its trials had started outlive their parents."""
    mark = f"{MARK}={directory}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # gone meanwhile, or not ours


def open_locks(directory: Path, names: Sequence[str], opened: list[int]) -> None:
    """Opens lock files in a directory in which every user of the host can make files.

    Args:
        directory: is made.
        names: of the files; they stay behind, because removing one would let two in.
        opened: the descriptors are added to it, that of the directory first.

    Raises:
        OSError: they cannot be made.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if directory.stat().st_uid == os.geteuid():
        directory.chmod(_ANYBODYS)  # whatever the umask says; an engine makes what it mounts for root alone
    # systemd-tmpfiles removes files that have not changed for days, held or not, unless the directory is locked
    opened.append(os.open(str(directory), os.O_RDONLY | os.O_CLOEXEC))
    fcntl.flock(opened[0], fcntl.LOCK_SH)
    opened.extend(open_lock(directory / name) for name in names)


def lock_in_turn(opened: Sequence[int]) -> None:
    """Waits for a host in the order of those who came: its queue, the host, and a part of it if one is named.

    Only one waits for the host itself, so that those who want a part do not come in one after the other while somebody
    waits for the whole.
    """
    _, queue, whole, *part = opened
    fcntl.flock(queue, fcntl.LOCK_EX)
    fcntl.flock(whole, fcntl.LOCK_SH if part else fcntl.LOCK_EX)
    fcntl.flock(queue, fcntl.LOCK_UN)
    for descriptor in part:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def open_lock(path: Path) -> int:
    """Opens a lock file, which is made if it is not there.

    Raises:
        OSError: it cannot be.
    """
    # Reading is enough for a lock. The kernel may refuse O_CREAT on a file of another user in such a directory.
    while True:
        with suppress(FileNotFoundError):
            return os.open(str(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with suppress(FileExistsError):
            descriptor = os.open(str(path), os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _LOCK_MODE)
            os.fchmod(descriptor, _LOCK_MODE)
            return descriptor


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        # The supervisor does not look at its lifeline while it imports; its trials die with it in any case.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# What follows runs on such hosts alone.


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """What `boundary.open_foreign_file` is elsewhere."""
    with open(os.open(str(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        yield stream


def _document(path: Path) -> bytes:
    """A file of ours; one that is longer than any comes cut, and so is damaged."""
    with _opened(path) as stream:
        return stream.read(_MAX_DOCUMENT_BYTES)


class _Piecewise:
    """Says what a file of records holds from an offset on, as it grows, and each second that it is still there."""

    def __init__(self, path: Path, offset: int) -> None:
        self.path, self.offset, self.spoken_s = path, offset, time.monotonic()

    def say(self) -> None:
        with suppress(FileNotFoundError), _opened(self.path) as stream:
            stream.seek(self.offset)
            while piece := stream.read(_PIECE_BYTES):
                say("records", piece)
                self.offset += len(piece)
                self.spoken_s = time.monotonic()
        if time.monotonic() - self.spoken_s >= _ALIVE_S:
            say("alive")
            self.spoken_s = time.monotonic()


def say(word: str, data: bytes = b"") -> None:
    """Writes one answer: a word, the number of bytes that follow the line, and these."""
    sys.stdout.buffer.write(f"{word} {len(data)}\n".encode() + data)
    sys.stdout.buffer.flush()


def _run(order: dict[str, Any], stop: threading.Event) -> dict[str, Any]:
    """Runs a task that was placed, when the host is free."""
    command = RunnerCommand(**order["command"])
    records = _Piecewise(Path(command.directory, "records.jsonl"), 0)
    # Held as long as this process lives: it tells `_find` that somebody runs it.
    fcntl.flock(os.open(command.directory, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    locks: list[int] = []
    open_locks(Path(order["locks"]), ["host-queue", "host"], locks)
    held = threading.Event()

    def wait() -> None:
        lock_in_turn(locks)  # they are held as long as this process lives
        held.set()

    def is_stopped(wait_s: float) -> bool:
        records.say()
        return stop.wait(wait_s)

    threading.Thread(target=wait, daemon=True).start()
    if not held.wait(_ALIVE_S):
        say("waits")
        while not held.wait(_ALIVE_S):
            say("alive")
            if stop.is_set():
                return {"exit_code": None, "ended_because": "the task was ended from outside", "log_tail": ""}
    Path(command.code).stat()  # gone if the connection was lost meanwhile: then nothing is to be made anew
    for directory in order["directories"]:
        Path(directory).mkdir(parents=True, exist_ok=True)
    exit_code, ended_because = run_runner(command, is_stopped)
    records.say()
    with _opened(Path(command.log)) as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
        tail = log.read(_LOG_BYTES).decode("utf-8", "replace")
    return {"exit_code": exit_code, "ended_because": ended_because, "log_tail": tail}


def _find(order: dict[str, Any], _: threading.Event) -> list[list[str]]:
    """Campaign and name of the task directories that wait here for a store.

    One that is run is told and left out. One that is just ending is waited for, such as that of a killed command.
    """
    found, until_s = [], time.monotonic() + order["wait_s"]
    for origin in sorted(Path(order["campaigns"]).glob("*/*/origin.json")):
        # damaged, gone meanwhile, or another user's
        with suppress(ValueError, TypeError, KeyError, RecursionError, OSError):
            if json.loads(_document(origin))["store_id"] == order["store_id"]:
                while _is_run(origin.parent) and time.monotonic() < until_s:
                    time.sleep(POLL_INTERVAL_S)
                if _is_run(origin.parent):
                    say("runs", f"{origin.parts[-3]}/{origin.parts[-2]}".encode())
                else:
                    found.append([origin.parts[-3], origin.parts[-2]])
    return found


def _is_run(directory: Path) -> bool:
    descriptor = os.open(str(directory), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _take(order: dict[str, Any], _: threading.Event) -> None:
    """Ends what goes on in a task directory, and says what is in it."""
    directory = Path(order["directory"])
    kill_marked(str(directory))
    for name in ("origin.json", "task.json"):
        with suppress(FileNotFoundError):
            say(name, _document(directory / name))
    _Piecewise(directory / "records.jsonl", order["offset"]).say()


def _remove(order: dict[str, Any], _: threading.Event) -> list[str]:
    """Removes directories, those that are there, and what is above them and empty then. Returns what stays, and why."""
    stays = []
    for name in order["directories"]:
        with suppress(OSError):
            # First, so that what cannot be removed is told once, and not found and fetched by every campaign.
            Path(name, "origin.json").unlink()
        try:
            if Path(name).is_dir():
                shutil.rmtree(name)
        except OSError as error:
            stays.append(f"{name} stays there: {error.filename or ''}: {error.strerror or error}")
        for above in list(Path(name).parents)[:2]:
            with suppress(OSError):
                above.rmdir()
    return stays


def main() -> None:
    """Does what the order says; the last word is `ended`, with the answer, or `failed`, with why."""
    sys.stdout.buffer.write(GREETING)
    order = json.loads(sys.stdin.buffer.readline())
    stop = threading.Event()

    def listen() -> None:
        while os.read(0, 4096):
            pass
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    actions = {"run": _run, "find": _find, "take": _take, "remove": _remove}
    try:
        say("ended", json.dumps(actions[order["do"]](order, stop)).encode())
    except OSError as error:
        say("failed", f"{error.filename or order['do']}: {error.strerror or error}".encode())
    sys.stdout.flush()
    os._exit(0)  # a thread may wait for a lock still
