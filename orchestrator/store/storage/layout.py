"""Where the store keeps things, what is sealed at one moment, and the file operations that a crash must not tear."""

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from orchestrator import files
from orchestrator.boundary import load_json, read_foreign_file
from orchestrator.errors import ForeignDataError, StoreError
from orchestrator.store.schema import SCHEMA_VERSION, SCHEMAS

FORMAT: Final = 1
"""Where files are and what they are called: generations of Parquet beside a journal."""
SEGMENT: Final = ".arrows"
PART: Final = re.compile(r"month=(\d{4}-\d{2})/[^/]+\.parquet")
"""What a part of `trials` is called below its table, with its month."""

LOCK_NOTICE_S: Final = 5.0
LOCK_LIMIT_S: Final = 120.0
"""The store's lock is held for milliseconds, or for seconds on a slow disk: after the first a line is told, after the
second it is an error."""

_DESCRIPTION_BYTES: Final = 2**16
_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_EXPECTED: Final = (
    f'expected {{"format": {FORMAT}, "schema_version": {SCHEMA_VERSION}, "store_id": "…"}}; '
    "delete it, and the next sweep writes it"
)
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """The files of one generation, as they were listed once.

    They stay as they are until the generation is expired, a long while after another took its place.
    """

    directory: str
    """Where the tables are, with no link in it; for `filesystem`."""
    filesystem: pafs.FileSystem
    files: Mapping[str, tuple[str, ...]]
    """Name of the table to its sorted paths, for `filesystem`."""

    def dataset(self, table: str, dictionaries: Collection[str] = ()) -> ds.Dataset:
        """A table, rows in no promised order.

        Args:
            dictionaries: names of texts that are wanted as dictionaries: much faster where few values are in many rows.
        """
        files, schema = self.files[table], SCHEMAS[table]
        if not files:
            return ds.dataset(schema.empty_table())
        for name in dictionaries:
            index = schema.get_field_index(name)
            schema = schema.set(index, schema.field(index).with_type(pa.dictionary(pa.int32(), pa.string())))
        parquet = ds.ParquetFileFormat(dictionary_columns=list(dictionaries))
        with reading_errors(f"{self.directory}/{table}"):
            return ds.dataset(list(files), schema=schema, format=parquet, filesystem=self.filesystem)

    def table(self, name: str) -> pa.Table:
        """One of the small tables, whole."""
        with reading_errors(f"{self.directory}/{name}"):
            return self.dataset(name).to_table()

    def parts(self) -> list[Path]:
        """The parts of `trials` of a local store."""
        return [Path(path) for path in self.files["trials"]]

    def names(self, table: str) -> list[str]:
        """Paths of a table's files below `directory`: `trials/month=2026-11/part-….parquet`."""
        return [path[len(self.directory) + 1 :] for path in self.files[table]]

    def named(self, table: str) -> dict[str, Path]:
        """The paths of a local store's table by their names."""
        return dict(zip(self.names(table), map(Path, self.files[table]), strict=True))


class Layout:
    """Paths below the root of a store.

    Nothing unfinished ever stands in a generation: a plain reader that meets one torn or temporary file there
    would fail altogether.
    """

    def __init__(self, root: Path) -> None:
        self.root: Final = root
        self.description: Final = root / "STORE.json"
        """The format of the store and its identity."""
        self.generations: Final = root / "generations"
        self.current_link: Final = root / "current"
        """Leads to the current generation: the only thing that readers follow and that ever changes."""
        self.journal: Final = root / "journal"
        self.quarantine: Final = root / "quarantine"
        """Journals in which something could not be read, whole."""
        self.temporary: Final = root / "tmp"
        """Work in progress of whoever holds the store's lock; what stands there without it is a leftover."""
        self.merging: Final = root / "tmp" / "compaction"
        """Work in progress of the one compaction: it holds a lock of its own, and the store's only at its end."""
        self.lock: Final = root / "lock"
        self.compaction_lock: Final = root / "lock.compaction"
        self.push_lock: Final = root / "lock.push"

    @property
    def current(self) -> Path:
        """The directory of the current generation, resolved once; of a store that does not exist, its root."""
        return Path(os.path.realpath(self.current_link)) if self.current_link.is_symlink() else self.root

    def snapshot(self) -> Snapshot:
        """The sealed files as they are now; what is compacted later does not change it. Of no store, none."""
        store_id(self)
        refuse_lost_link(self)
        with storage_errors(f"cannot list {self.root}"):
            # Once: a link that is switched in the middle must not mix two generations.
            directory = self.current
            files = {table: tuple(_parquet_files(directory / table)) for table in SCHEMAS}
        # After the listing: a generation that expires in the middle goes as a whole, and must not look empty.
        if self.current_link.is_symlink() and not directory.is_dir():
            raise StoreError(f"{self.current_link} leads to {directory}, which is not there; restore it from a copy")
        return Snapshot(str(directory), pafs.LocalFileSystem(), files)

    def parts(self) -> list[Path]:
        """Sealed parts of `trials`, sorted by path."""
        return self.snapshot().parts()

    def segments(self) -> list[Path]:
        """Journals that are not sealed yet, oldest first."""
        return sorted(self.journal.glob(f"*{SEGMENT}"))


def is_url(text: str) -> bool:
    """Whether a store is named by a URL, not by a path."""
    return "://" in text


def refuse_lost_link(layout: Layout) -> None:
    """Refuses a store that was copied without its links, and says how to mend it: it must not look empty."""
    link = layout.current_link
    if link.is_symlink() or not layout.generations.is_dir():
        return
    if link.is_dir():
        raise StoreError(f"{link} is a directory, as after a copy that followed links; copy the store with `cp -a`")
    for generation in sorted(layout.generations.iterdir(), reverse=True):
        # The first one may be as empty as it was when its making was cut short.
        if generation.name.isdigit() and any(True for table in SCHEMAS for _ in _parquet_files(generation / table)):
            mend = f"ln -s {layout.generations.name}/{generation.name} {link}"
            raise StoreError(f"{link} is missing, as after a copy without links: `{mend}` brings the results back")


def store_id(layout: Layout) -> str | None:
    """The identity of a store of this version, random at its creation; null for a store that does not exist."""
    path = layout.description
    try:
        document = load_json(read_foreign_file(path, _DESCRIPTION_BYTES), str(path))
    except FileNotFoundError:
        return None
    except ForeignDataError as error:
        raise StoreError(f"{path} is damaged: {_EXPECTED} ({error})") from error
    says = document if isinstance(document, dict) else {}
    written, identity = [says.get(key) for key in ("format", "schema_version")], str(says.get("store_id"))
    if not all(isinstance(number, int) for number in written) or not _ID.fullmatch(identity):
        raise StoreError(f"{path} is damaged: {_EXPECTED}")
    if written != [FORMAT, SCHEMA_VERSION]:
        raise StoreError(
            f"{path}: format {written[0]} with schema {written[1]}, and this taxmeter knows format {FORMAT} with "
            f"schema {SCHEMA_VERSION}: use the taxmeter that wrote it"
        )
    return identity


def _parquet_files(directory: Path, levels: int = 1) -> Iterator[str]:
    """Paths of the files below a directory, sorted; partitions are one level deep.

    Raises:
        StoreError: there is a link, a pipe or the like, which no store of ours has.
    """
    if not directory.is_dir():
        return
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _parquet_files(Path(entry.path), levels - 1) if levels else ()
        elif entry.is_symlink() or (entry.name.endswith(".parquet") and not entry.is_file()):
            raise StoreError(f"{entry.path} is no regular file; move it out of the store")
        elif entry.name.endswith(".parquet"):
            yield entry.path


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextmanager
def storage_errors(action: str) -> Iterator[None]:
    """Turns an error of the operating system into one line for the user, a `StoreError`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{action}: {error.strerror or error}") from error


@contextmanager
def reading_errors(place: object, more: str = "") -> Iterator[None]:
    """Turns what Arrow raises about a file into one line for the user, a `StoreError`."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StoreError(f"cannot read {place}: {first_line(error)}{more}") from error


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


@contextmanager
def at_most_once(lock: Path, busy: StoreError) -> Iterator[None]:
    """Holds one of the locks of a store; raises `busy` if another process has it."""
    with ExitStack() as held:
        with storage_errors(f"cannot lock the result store {lock.parent}"):
            is_mine = held.enter_context(files.at_once(lock))
        if not is_mine:
            raise busy
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


def sync(path: Path) -> None:
    """Makes the content of a file durable that someone else wrote, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Renames durably; the directory of `target` is made if it is missing."""
    if not target.parent.is_dir():
        target.parent.mkdir()
        sync(target.parent.parent)
    source.replace(target)
    sync(target.parent)


def remove(path: Path) -> None:
    path.unlink()
    sync(path.parent)
