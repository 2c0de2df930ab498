"""The names of a project's directories, locks that the kernel releases however a process ends, and whole files."""

import errno
import fcntl
import io
import math
import os
import secrets
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.boundary import plain_name, read_foreign_file
from orchestrator.errors import NoUsableHostError

_TRIES: Final = 50
_PAUSE_S: Final = 0.02
_MOST_PAUSE_S: Final = 0.1
MAX_PRIVATE_BYTES: Final = 2**32
"""Of the order of a campaign with a million trials, many times."""


@dataclass(frozen=True)
class WorkFiles:
    """Paths below the directory that a host keeps for us; each host has its own."""

    root: Path

    @property
    def state(self) -> Path:
        """What can be made anew, and the files of running campaigns."""
        return self.root

    @property
    def campaigns(self) -> Path:
        """One directory per campaign that is not finished."""
        return self.state / "campaigns"

    def campaign(self, campaign_id: str) -> Path:
        """Task directories, code and logs of one campaign; gone once it is complete.

        Raises:
            ForeignDataError: the identity would lead elsewhere.
        """
        return self.campaigns / plain_name(campaign_id, "campaign")

    def code(self, campaign_id: str) -> Path:
        """The runner's code as it was when the campaign began."""
        return self.campaign(campaign_id) / "code"

    def cache(self, environment: str, isolation: str, *, of_own_models: bool) -> Path:
        """References and artifacts that trials share, those of other campaigns too.

        What models of somebody's own may write is read for such models alone.

        Raises:
            ForeignDataError: the environment would lead elsewhere.
        """
        name = f"{plain_name(environment, 'environment')}-{isolation}"
        return self.state / "kept" / (f"{name}-own" if of_own_models else name)


@dataclass(frozen=True)
class ProjectFiles(WorkFiles):
    """Paths below the directory in which the command runs, which is also what this machine keeps as a host."""

    @property
    def catalogue(self) -> Path:
        """The environments."""
        return self.root / "docker" / "images.yaml"

    @property
    def state(self) -> Path:
        """As of a host; and virtual environments."""
        return self.root / ".taxmeter"

    @property
    def control(self) -> Path:
        """How the running campaign is seen and steered; see `campaign.control`."""
        return self.state / "control"

    def remember_store(self, store_id: str) -> None:
        """Makes a store one of those that sweeps of this project wrote to."""
        self._store(store_id).parent.mkdir(parents=True, exist_ok=True)
        self._store(store_id).touch()

    def knows_store(self, store_id: str) -> bool:
        """Whether a sweep of this project wrote to a store: a copy of somebody else's is none of ours."""
        return self._store(store_id).exists()

    def _store(self, store_id: str) -> Path:
        return self.state / "stores" / plain_name(store_id, "store")


def open_lock(path: Path) -> int:
    """Opens a lock file, which stays behind: removing it would let two holders in.

    Only its owner can: whoever may open a file may hold its lock for ever.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def try_lock(descriptor: int) -> bool:
    """Locks an open file until it is closed; false if someone else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def exclusive(
    path: Path, waiting: Callable[[], None], *, notice_s: float = 0.0, limit_s: float = math.inf
) -> Iterator[None]:
    """Holds the lock file `path`; the kernel releases it however the process ends.

    Args:
        path: the lock file.
        waiting: called once when another process holds the lock.
        notice_s: how long it has held it by then.
        limit_s: how long is waited.

    Raises:
        TimeoutError: another process held the lock all the time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = open_lock(path)
    try:
        start_s, pause_s, is_told = time.monotonic(), 0.001, False
        while not try_lock(descriptor):
            waited_s = time.monotonic() - start_s
            if waited_s > limit_s:
                raise TimeoutError(errno.ETIMEDOUT, f"another process has held {path} for {limit_s:.0f} s")
            if waited_s >= notice_s and not is_told:
                is_told = True
                waiting()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def at_once(path: Path) -> Iterator[bool]:
    """Holds the lock file `path` if nobody else does, and says whether that is so."""
    descriptor = open_lock(path)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def held_at_once(descriptor: int) -> bool:
    """Locks an open file; false if somebody keeps it. Whoever asks `is_locked` has it for a moment only."""
    for _ in range(_TRIES):
        if try_lock(descriptor):
            return True
        time.sleep(_PAUSE_S)
    return False


def is_locked(path: Path) -> bool:
    """Whether somebody holds a lock file: the kernel knows, across containers and however a holder ends.

    Raises:
        NoUsableHostError: the file is somebody else's, who lets nobody see it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        raise NoUsableHostError(
            f"{path} cannot be read: {os.strerror(errno.EACCES)}; ask as the user whose campaign it is"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file that is either wholly there or not at all, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as stream:
            stream.write(content if isinstance(content, bytes) else content.encode())
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Writes a file that is seen whole or not at all, and that only its owner can read or write."""
    part = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_private(path: Path) -> bytes:
    """Reads what `write_private` wrote.

    Raises:
        FileNotFoundError: it is not there.
        ForeignDataError: somebody else may have written it, or it is no file of its own.
    """
    return read_foreign_file(path, MAX_PRIVATE_BYTES, is_private=True)


def read_tree(directory: Path) -> dict[str, bytes]:
    """The content of all files below a directory by their relative paths, compiled code left out."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def tar_of(files: Mapping[str, bytes], owner: tuple[int, int] | None = None) -> bytes:
    """A tar of files, for an engine or for `unpack`.

    Args:
        files: the content by path, of which a leading slash is no part.
        owner: user and group who alone may read the files and the directories that they lie in; null for everybody.
    """
    buffer = io.BytesIO()
    named = {path.lstrip("/"): content for path, content in files.items()}
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        if owner is not None:
            for directory in dict.fromkeys(path.rpartition("/")[0] for path in named):
                entry = tarfile.TarInfo(directory)
                entry.type, entry.mode, (entry.uid, entry.gid) = tarfile.DIRTYPE, 0o700, owner
                archive.addfile(entry)
        for path, content in named.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644 if owner is None else 0o600
            entry.uid, entry.gid = owner or (0, 0)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def temporary_directory(prefix: str, parent: Path) -> Path:
    """A new directory that is named after this process; those that killed processes left are removed first.

    Args:
        prefix: of its name, and of nothing else there.
        parent: where.
    """
    remove_abandoned(prefix, parent)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))


def remove_abandoned(prefix: str, parent: Path) -> None:
    """Removes our directories of `temporary_directory` whose process is gone."""
    for directory in parent.glob(f"{prefix}*"):
        process = directory.name.removeprefix(prefix).partition("-")[0]
        try:
            ours = directory.lstat().st_uid == os.geteuid()
        except FileNotFoundError:
            continue  # another run has just removed it
        if ours and process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(directory, ignore_errors=True)
