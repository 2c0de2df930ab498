"""Where the store keeps things, and the few file operations that a crash must not tear."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import StoreError


@dataclass(frozen=True)
class Layout:
    """Paths below the root of a store.

    Nothing unfinished ever stands in `trials`, `systems`, `environments` or `campaigns`: a plain reader that
    meets one torn or temporary file there would fail altogether.
    """

    root: Path

    @property
    def trials(self) -> Path:
        return self.root / "trials"

    @property
    def systems(self) -> Path:
        return self.root / "systems"

    @property
    def environments(self) -> Path:
        return self.root / "environments"

    @property
    def campaigns(self) -> Path:
        return self.root / "campaigns"

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def quarantine(self) -> Path:
        """Journals in which something could not be read, whole."""
        return self.root / "quarantine"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def create(self) -> None:
        """Makes the directories of a new store."""
        with storage_errors(f"cannot create the result store {self.root}"):
            for directory in (
                self.trials,
                self.systems,
                self.environments,
                self.campaigns,
                self.journal,
                self.temporary,
            ):
                directory.mkdir(parents=True, exist_ok=True)

    def parts(self) -> list[Path]:
        """Sealed parts of `trials`, sorted by path."""
        return sorted(self.trials.glob("month=*/part-*.parquet"))

    def segments(self) -> list[Path]:
        """Journals that are not sealed yet, oldest first."""
        return sorted(self.journal.glob("*.arrows"))


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
    """Holds the lock of the whole store; waits for it. Held for milliseconds, never while a trial runs."""
    with storage_errors(f"cannot lock the result store {layout.root}"):
        descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with storage_errors(f"cannot lock the result store {layout.root}"):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Locks an open file until it is closed; false if someone else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Writes every byte, however many calls it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def publish(layout: Layout, data: bytes | memoryview, target: Path) -> None:
    """Makes a whole, synchronised file appear under `target` at once. The caller holds the store's lock.

    Raises:
        OSError: the file could not be written; `target` is as it was.
    """
    temporary = layout.temporary / target.name
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        move(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


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


def sync_directory(directory: Path) -> None:
    """Makes creations, renames and deletions in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
