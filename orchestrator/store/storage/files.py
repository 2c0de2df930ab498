"""Where the store keeps things, and the few file operations that a crash must not tear."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator import files
from orchestrator.errors import StoreError
from orchestrator.store.storage.snapshot import Snapshot, snapshot_of

SEGMENT: Final = ".arrows"

LOCK_NOTICE_S: Final = 5.0
LOCK_LIMIT_S: Final = 120.0
"""The store's lock is held for milliseconds, or for seconds on a slow disk: after the first a line is told, after the
second it is an error."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """Paths below the root of a store.

    Nothing unfinished ever stands in a generation: a plain reader that meets one torn or temporary file there
    would fail altogether.
    """

    root: Path

    @property
    def description(self) -> Path:
        """`STORE.json`: the format of the store and its identity."""
        return self.root / "STORE.json"

    @property
    def generations(self) -> Path:
        return self.root / "generations"

    @property
    def current_link(self) -> Path:
        """The link to the current generation: the only thing that readers follow and that ever changes."""
        return self.root / "current"

    @property
    def current(self) -> Path:
        """The directory of the current generation, resolved once; of a store that does not exist, its root."""
        if self.current_link.is_symlink():
            return Path(os.path.realpath(self.current_link))
        return self.root

    @property
    def trials(self) -> Path:
        return self.current / "trials"

    @property
    def systems(self) -> Path:
        return self.current / "systems"

    @property
    def environments(self) -> Path:
        return self.current / "environments"

    @property
    def campaigns(self) -> Path:
        return self.current / "campaigns"

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def quarantine(self) -> Path:
        """Journals in which something could not be read, whole."""
        return self.root / "quarantine"

    @property
    def temporary(self) -> Path:
        """Work in progress of whoever holds the store's lock; what stands there without it is a leftover."""
        return self.root / "tmp"

    @property
    def merging(self) -> Path:
        """Work in progress of the one compaction: it holds a lock of its own, and the store's only at its end."""
        return self.root / "tmp" / "compaction"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def compaction_lock(self) -> Path:
        return self.root / "lock.compaction"

    def snapshot(self) -> Snapshot:
        """The sealed files as they are now; what is compacted later does not change it.

        Raises:
            StoreError: another version of taxmeter wrote the store, or it cannot be listed.
        """
        return snapshot_of(self)

    def parts(self) -> list[Path]:
        """Sealed parts of `trials`, sorted by path."""
        return self.snapshot().parts()

    def segments(self) -> list[Path]:
        """Journals that are not sealed yet, oldest first."""
        return sorted(self.journal.glob(f"*{SEGMENT}"))


@contextmanager
def storage_errors(action: str) -> Iterator[None]:
    """Turns an error of the operating system into one line for the user.

    Raises:
        StoreError: in place of any OSError.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(f"{action}: {error.strerror or error}") from error


@contextmanager
def exclusive(layout: Layout) -> Iterator[None]:
    """Holds the lock of the whole store; waits for it. Held for milliseconds, never while a trial runs.

    Raises:
        StoreError: the lock cannot be opened, or somebody holds it for `LOCK_LIMIT_S`.
    """

    def waiting() -> None:
        _LOG.warning("%s: waiting for another process that holds its lock, at most %.0f s", layout.root, LOCK_LIMIT_S)

    with ExitStack() as held:
        with storage_errors(f"cannot lock the result store {layout.root}"):
            held.enter_context(files.exclusive(layout.lock, waiting, notice_s=LOCK_NOTICE_S, limit_s=LOCK_LIMIT_S))
        yield


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Writes every byte, however many calls it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Writes a whole, synchronised file. What already stands there is overwritten."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Renames durably; the directory of `target` is made if it is missing."""
    if not target.parent.is_dir():
        target.parent.mkdir()
        sync_directory(target.parent.parent)
    source.replace(target)
    sync_directory(target.parent)


def remove(path: Path) -> None:
    """Deletes durably."""
    path.unlink()
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Makes the content of a file that someone else wrote durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Makes creations, renames and deletions in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
