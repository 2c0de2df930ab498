"""Files of the store in Parquet: how they are written and read, what their footers say, and whether they are whole.

A file is named by the SHA-256 of its content. Checksums of Parquet leave out the footer, by whose statistics readers
pass over row groups: a flipped bit there loses rows in silence.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.store.schema import SCHEMAS, SORT_ORDER, TRIALS, parquet_options
from orchestrator.store.storage.layout import Snapshot, reading_errors

ROW_GROUP_ROWS: Final = 16384
"""Small enough that statistics prune within a part, large enough that a scan is one of few pieces."""

_SMALL: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": False,
    "write_statistics": False,
}
_VERIFY: Final = "; `taxmeter results verify` tells more"


@dataclass(frozen=True)
class Footer:
    """What the end of a part says about it."""

    rows: int
    size_bytes: int
    """Uncompressed."""
    campaigns: tuple[str, str] | None
    """The first and the last campaign by name; null if the part does not say."""

    def may_hold(self, campaigns: Iterable[str]) -> bool:
        """Whether rows of one of these campaigns can be in the part."""
        if self.campaigns is None:
            return True
        first, last = self.campaigns
        return any(first <= campaign <= last for campaign in campaigns)


def file_name(content: pa.Buffer | memoryview | bytes) -> str:
    """The name of a file with this content, in any table."""
    return f"part-{hashlib.sha256(content).hexdigest()}.parquet"


def read_whole(filesystem: pafs.FileSystem, path: str) -> pa.Buffer:
    """The content of a file; a `StoreError` if it is not the one that its name tells."""
    with reading_errors(path, _VERIFY), filesystem.open_input_file(path) as stream:
        content = stream.read_buffer()
    if file_name(content) != PurePosixPath(path).name:
        raise StoreError(f"{path} is damaged: its content is not that of its name{_VERIFY}")
    return content


def require_whole(snapshot: Snapshot) -> None:
    """Checks all files of a snapshot before something is made of them, which would have fresh names."""
    for path in (path for table in SCHEMAS for path in snapshot.files[table]):
        read_whole(snapshot.filesystem, path)


def read_footer(path: Path) -> Footer:
    """The footer of a part of `trials`."""
    with reading_errors(path):
        metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    number = columns.index("campaign_id") if "campaign_id" in columns else None
    statistics = [] if number is None else [group.column(number).statistics for group in groups]
    campaigns = None
    if statistics and all(known is not None and known.has_min_max for known in statistics):
        campaigns = min(known.min for known in statistics), max(known.max for known in statistics)
    return Footer(metadata.num_rows, sum(group.total_byte_size for group in groups), campaigns)


def campaigns_in(filesystem: pafs.FileSystem, path: str) -> list[str]:
    """The campaigns that have rows in a part of `trials`; errors are Arrow's."""
    # Half of what a dataset takes
    part = pq.ParquetFile(path, read_dictionary=["campaign_id"], filesystem=filesystem)
    return list(map(str, part.read(["campaign_id"])["campaign_id"].unique().to_pylist()))


def encode_trials(rows: pa.Table) -> memoryview:
    """A part of rows of `trials` in any order, sorted, as the bytes of a file."""
    sink = pa.BufferOutputStream()
    try:
        _write(sink, row_groups(rows))
    except pa.ArrowException as error:
        raise StoreError(f"{len(rows)} rows cannot be written as Parquet: {error}") from error
    return memoryview(sink.getvalue())


def encode_small(rows: pa.Table) -> memoryview:
    """A file of `systems`, `environments` or `campaigns`, as bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **_SMALL)
    return memoryview(sink.getvalue())


def write_trials(path: Path, groups: Iterable[pa.Table]) -> None:
    """Writes a part of row groups, of which no more than one is held at a time.

    Raises:
        OSError: the disk refuses.
        StoreError: Arrow cannot write it, for want of memory for instance.
    """
    try:
        # Opened here, to be closed also if the disk is full and the writer cannot write its end.
        with pa.OSFile(str(path), "wb") as sink:
            _write(sink, groups)
    except pa.ArrowException as error:
        raise StoreError(f"cannot write {path}: {error}") from error


def row_groups(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows in any order as the row groups of a part; a sorted copy of one is made at a time."""
    order = _sorted(rows)
    for start in range(0, len(order), ROW_GROUP_ROWS):
        yield rows.take(order.slice(start, ROW_GROUP_ROWS))


def merged_groups(paths: Iterable[Path], aside: Path) -> Iterator[pa.Table]:
    """The row groups of a part that has the rows of some others, one at a time.

    Args:
        paths: of the others, each of which is proven whole.
        aside: a file that is made here: the rows of each part, divided by the row groups that they come into.
    """
    parts = list(paths)
    release_memory()
    keys = [group for path in parts for group in _checked_groups(path, "trials", SORT_ORDER)]
    order = _sorted(pa.concat_tables(keys)).to_numpy()
    group_of = np.empty_like(order)
    group_of[order] = np.arange(len(order)) // ROW_GROUP_ROWS
    pieces = _lay_aside(parts, group_of, aside)
    release_memory()
    with pa.OSFile(str(aside)) as source:
        reader = pa.ipc.open_file(source)
        for _, numbers in sorted(pieces.items()):
            yield _in_order(pa.Table.from_batches(map(reader.get_batch, numbers), TRIALS))
            release_memory()


def _lay_aside(parts: Iterable[Path], group_of: npt.NDArray[np.integer[Any]], aside: Path) -> dict[int, list[int]]:
    """Writes the rows of parts as record batches, each of rows of one group; the numbers of the batches by group.

    Args:
        parts: one after the other.
        group_of: their rows, by place among all.
        aside: a file that is made.
    """
    pieces: dict[int, list[int]] = {}
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, TRIALS) as writer:
        place = written = 0
        for rows in (rows for path in parts for rows in _checked_groups(path, "trials")):
            groups, place = group_of[place : place + len(rows)], place + len(rows)
            # Parts are sorted, and what comes into one group stands together: slices copy nothing
            for start, end in pairwise([0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]):
                for batch in rows.slice(start, end - start).to_batches():
                    writer.write_batch(batch)
                    pieces.setdefault(int(groups[start]), []).append(written)
                    written += 1
            del rows  # before the next ones are read
    return pieces


def read_checked(paths: Iterable[Path], table: str) -> pa.Table:
    """All rows of some local files of a table, each of which was proven whole."""
    groups = (group for path in paths for group in _checked_groups(path, table))
    return pa.concat_tables([SCHEMAS[table].empty_table(), *groups])


def _checked_groups(path: Path, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The row groups of a local file that is proven whole: all columns, or some."""
    schema = SCHEMAS[table] if columns is None else pa.schema([SCHEMAS[table].field(name) for name in columns])
    content = read_whole(pafs.LocalFileSystem(), str(path))
    with reading_errors(path, _VERIFY):
        file = pq.ParquetFile(pa.BufferReader(content))
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns).cast(schema)


def read_columns(
    paths: Iterable[Path], table: str, columns: Iterable[str], condition: ds.Expression | None = None
) -> pa.Table:
    """Some columns of the rows of some files of a table."""
    files = list(map(str, paths))
    with reading_errors(files[0] if files else table):
        dataset = ds.dataset(files, schema=SCHEMAS[table], format="parquet")
        return dataset.to_table(columns=list(columns), filter=condition)


def release_memory() -> None:
    """Gives back what Arrow has freed: an allocator keeps for the next rows what the last ones took."""
    pa.default_memory_pool().release_unused()


def _in_order(rows: pa.Table) -> pa.Table:
    # Of a function: its rows are freed before the sorted ones are written
    return rows.take(_sorted(rows))


def _sorted(rows: pa.Table) -> pa.Array:
    return pc.sort_indices(rows.select(list(SORT_ORDER)), sort_keys=[(name, "ascending") for name in SORT_ORDER])


def _write(sink: pa.NativeFile, groups: Iterable[pa.Table]) -> None:
    with pq.ParquetWriter(sink, TRIALS, **parquet_options()) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
            del group  # before the next one is made
