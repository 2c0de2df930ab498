"""The lock of a host: whoever measures there has it for itself, a local sweep or a task of whichever cluster.

And that of a project, which has one sweep at a time.
"""

import fcntl
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import StringConstraints

from orchestrator.boundary import adapter_of, open_foreign_file, validated
from orchestrator.errors import ForeignDataError, InfrastructureError, NoUsableHostError
from orchestrator.execution.runner_process import lock_in_turn, open_locks
from orchestrator.files import held_at_once, is_locked

LOCKS_VARIABLE: Final = "TAXMETER_LOCKS"
LOCKS: Final = Path(os.environ.get(LOCKS_VARIABLE, "/tmp/taxmeter-locks"))  # noqa: S108 - whatever TMPDIR says
"""Of a host, one for all users and projects, and under the same path in containers of ours that take its lock: agents
mount it. The tests, which do not measure, have another."""

_AT_ONCE_S: Final = 1.0
"""Whoever waits longer for the lock of this machine waits for a measurement."""
_NOTE: Final = ".holder-"
_NOTE_BYTES: Final = 8192


@dataclass(frozen=True)
class HostLock:
    """What is to be held while something is measured on the host where this process runs."""

    part: str | None = None
    """The part of the host, such as a GPU, beside which others may run on other parts; null for all of the host."""
    directory: Path = LOCKS

    @property
    def path(self) -> Path:
        """The file that is locked; it stays behind, because removing it would let two in."""
        return self.directory / "host"

    def hold(self) -> "HeldHostLock":
        """Begins to wait for it; see there."""
        return HeldHostLock(self)


class HeldHostLock:
    """A lock that is waited for, and then held as long as the block lasts; the kernel ends it with the process.

    Those who wait get it in the order in which they came, so that two clusters alternate. A call of the kernel waits
    for it, in a thread: an interrupt of Ray reaches Python code only, and polling would lose against whoever has just
    held it.
    """

    def __init__(self, lock: HostLock) -> None:
        """Begins to wait."""
        names = ["host-queue", "host"] if lock.part is None else ["host-queue", "host", f"host-{lock.part}"]
        self._opened: list[int] = []
        try:
            open_locks(lock.directory, names, self._opened)
        except OSError as error:
            self._close()
            raise InfrastructureError(f"{lock.path} cannot be locked: {error.strerror or error}") from error
        self._mutex = threading.Lock()
        self._is_left = False
        self._held = threading.Event()
        threading.Thread(target=self._wait, name="host-lock", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            self._is_left = True
            if self._held.is_set():
                self._close()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is held; returns after the timeout at the latest."""
        return self._held.wait(timeout_s)

    def _wait(self) -> None:
        lock_in_turn(self._opened)
        with self._mutex:
            self._held.set()
            if self._is_left:
                self._close()  # it came too late, and is the next one's

    def _close(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)
        self._opened.clear()


HOST_LOCK: Final = HostLock()


@dataclass(frozen=True)
class LockHolder:
    """Who has a lock, as its note beside the lock says."""

    project: Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]
    """The directory in which the sweep runs."""
    pid: int


class SweepUnderWayError(NoUsableHostError):
    """Another sweep has what this one needs."""

    def __init__(self, where: str, lock: Path) -> None:
        self.holder = _holder(lock)
        who = "" if self.holder is None else f": project {self.holder.project}, process {self.holder.pid}"
        super().__init__(f"another sweep {where} ({lock} is locked){who}")


@contextmanager
def this_machine_to_ourselves(project: Path) -> Iterator[None]:
    """Keeps others off this machine, local sweeps and tasks of clusters: two benchmarks at once measure each other."""
    with HOST_LOCK.hold() as held:
        if not held.wait(_AT_ONCE_S):
            raise SweepUnderWayError("runs on this machine", HOST_LOCK.path)
        with _noted(HOST_LOCK.path, project):
            yield


@contextmanager
def project_to_ourselves(root: Path, state: Path) -> Iterator[None]:
    """Keeps a second sweep off a project, whose files and containers it would take for those of a killed one."""
    lock = _project_lock(state)
    with ExitStack() as stack:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            # for writing: over NFS the kernel locks no other file exclusively
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            stack.callback(os.close, descriptor)
            is_held = held_at_once(descriptor)
        except OSError as error:
            raise NoUsableHostError(f"{lock} cannot be locked: {error.strerror or error}") from error
        if not is_held:
            raise SweepUnderWayError("of this project runs", lock)
        with _noted(lock, root):
            yield


@contextmanager
def _noted(lock: Path, project: Path) -> Iterator[None]:
    """Says beside a lock who has it. A note counts while its writer keeps it locked, and is removed by who comes next.

    The lock itself cannot say it: it may be the file of another user.
    """
    note = lock.with_name(f"{lock.name}{_NOTE}{secrets.token_hex(4)}")
    for old in lock.parent.glob(f"{lock.name}{_NOTE}*"):
        with suppress(PermissionError):  # of another user, whose sweep was killed
            old.unlink(missing_ok=True)
    try:
        descriptor = os.open(note, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise NoUsableHostError(f"{note} cannot be written: {error.strerror or error}") from error
    try:
        os.fchmod(descriptor, 0o644)  # whatever the umask says
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, adapter_of(LockHolder).dump_json(LockHolder(str(project.resolve()), os.getpid())))
        yield
    finally:
        note.unlink(missing_ok=True)
        os.close(descriptor)


def _holder(lock: Path) -> LockHolder | None:
    """Who says to have a lock; null if nobody does, as a task of a cluster."""
    for note in lock.parent.glob(f"{lock.name}{_NOTE}*"):
        with suppress(FileNotFoundError, ForeignDataError), open_foreign_file(note) as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return validated(LockHolder, stream.read(_NOTE_BYTES), str(note))
    return None


def a_sweep_is_under_way(state: Path) -> bool:
    """Whether a sweep has this machine, or the project with this state, for itself."""
    return is_locked(HOST_LOCK.path) or is_locked(_project_lock(state))


def _project_lock(state: Path) -> Path:
    return state / "locks" / "sweep"
