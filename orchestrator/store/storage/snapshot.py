"""What is sealed, at one moment: a list of immutable files that whatever runs meanwhile leaves alone."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from orchestrator.boundary import load_json, read_foreign_file
from orchestrator.errors import ForeignDataError, StoreError
from orchestrator.store.schema import SCHEMA_VERSION, SCHEMAS

if TYPE_CHECKING:
    from orchestrator.store.storage.files import Layout

FORMAT: Final = 1
"""Where files are and what they are called: generations of Parquet beside a journal."""

PART: Final = re.compile(r"month=(\d{4}-\d{2})/part-[A-Za-z0-9-]+\.parquet")
"""What a part of `trials` is called below its table, with its month."""

_DESCRIPTION_BYTES: Final = 2**16
_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_EXPECTED: Final = (
    f'expected {{"format": {FORMAT}, "schema_version": {SCHEMA_VERSION}, "store_id": "…"}}; '
    "delete it, and the next sweep writes it"
)


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

    def dataset(self, table: str) -> ds.Dataset:
        """A table, rows in no promised order.

        Raises:
            StoreError: a file is gone or cannot be opened.
        """
        files = self.files[table]
        if not files:
            return ds.dataset(SCHEMAS[table].empty_table())
        try:
            return ds.dataset(list(files), schema=SCHEMAS[table], format="parquet", filesystem=self.filesystem)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"cannot read {self.directory}/{table}: {error}") from error

    def parts(self) -> list[Path]:
        """The parts of `trials` of a local store."""
        return [Path(path) for path in self.files["trials"]]

    def names(self, table: str) -> list[str]:
        """Paths of a table's files below `directory`: `trials/month=2026-11/part-….parquet`."""
        return [path[len(self.directory) + 1 :] for path in self.files[table]]


def snapshot_of(layout: "Layout") -> Snapshot:
    """The sealed files of a store; of a store that does not exist, none.

    Raises:
        StoreError: another version of taxmeter wrote the store, or it cannot be listed.
    """
    store_id(layout)
    refuse_lost_link(layout)
    try:
        # Once: a link that is switched in the middle must not mix two generations.
        directory = layout.current
        files = {table: tuple(_parquet_files(directory / table)) for table in SCHEMAS}
    except OSError as error:
        raise StoreError(f"cannot list {layout.root}: {error.strerror or error}") from error
    # After the listing: a generation that expires in the middle goes as a whole, and must not look empty.
    if layout.current_link.is_symlink() and not directory.is_dir():
        raise StoreError(f"{layout.current_link} leads to {directory}, which is not there; restore it from a copy")
    return Snapshot(str(directory), pafs.LocalFileSystem(), files)


def refuse_lost_link(layout: "Layout") -> None:
    """Refuses a store that was copied without its links: it must neither look empty nor be cleared away.

    Raises:
        StoreError: says how to mend it.
    """
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


def store_id(layout: "Layout") -> str | None:
    """The identity of a store, random at its creation; null for a store that does not exist.

    Raises:
        StoreError: the description of the store is damaged, or another version of taxmeter wrote it.
    """
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
