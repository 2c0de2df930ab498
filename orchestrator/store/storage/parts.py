"""Files of the store in Parquet: how they are written, and what their footers say."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.store.schema import SORT_ORDER, TRIALS, parquet_options

ROW_GROUP_ROWS: Final = 16384
"""Small enough that statistics prune within a part, large enough that a scan is one of few pieces."""

# A row has some 70 nested columns: what Parquet says about each of them is more than what stands in it.
_SMALL: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": False,
    "write_statistics": False,
    "write_page_checksum": True,
}
CHECKED: Final = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
"""Parquet of which every page is compared with its checksum as it is read."""


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


def part_name(stem: str) -> str:
    """The name of a part of `trials`."""
    return f"part-{stem}.parquet"


def read_footer(path: Path) -> Footer:
    """The footer of a part of `trials`.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return Footer(metadata.num_rows, sum(group.total_byte_size for group in groups), _campaigns(metadata))


def encode_trials(rows: pa.Table) -> memoryview:
    """A sorted part of `trials`, as the bytes of a file.

    Raises:
        StoreError: Arrow cannot write it, for want of memory for instance.
    """
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(rows, sink, row_group_size=ROW_GROUP_ROWS, **parquet_options())
    except pa.ArrowException as error:
        raise StoreError(f"{len(rows)} rows cannot be written as Parquet: {error}") from error
    return memoryview(sink.getvalue())


def encode_small(rows: pa.Table) -> memoryview:
    """A file of `systems`, `environments` or `campaigns`, as bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **_SMALL)
    return memoryview(sink.getvalue())


def write_trials(path: Path, rows: pa.Table) -> None:
    """Writes a part of rows in any order, sorted; a sorted copy of one row group is made at a time.

    Raises:
        OSError: the disk refuses.
        StoreError: Arrow cannot write it, for want of memory for instance.
    """
    try:
        _write_sorted(path, rows)
    except pa.ArrowException as error:
        raise StoreError(f"cannot write {path}: {error}") from error


def _write_sorted(path: Path, rows: pa.Table) -> None:
    order = pc.sort_indices(rows.select(list(SORT_ORDER)), sort_keys=[(name, "ascending") for name in SORT_ORDER])
    # Opened here, to be closed also if the disk is full and the writer cannot write its end.
    with pa.OSFile(str(path), "wb") as sink, pq.ParquetWriter(sink, TRIALS, **parquet_options()) as writer:
        for start in range(0, len(order), ROW_GROUP_ROWS):
            writer.write_table(rows.take(order.slice(start, ROW_GROUP_ROWS)), row_group_size=ROW_GROUP_ROWS)


def read_trials_checked(paths: Iterable[Path]) -> pa.Table:
    """All rows of some parts, after every page was compared with its checksum.

    Raises:
        StoreError: a part cannot be read, or is damaged.
    """
    tables = []
    for path in paths:
        try:
            tables.append(ds.dataset([str(path)], schema=TRIALS, format=CHECKED).to_table().cast(TRIALS))
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"cannot read {path}: {error}; `taxmeter results verify` tells more") from error
    return pa.concat_tables(tables)


def _campaigns(metadata: pq.FileMetaData) -> tuple[str, str] | None:
    number = next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == "campaign_id"), None)
    if number is None or not metadata.num_row_groups:
        return None
    statistics = [metadata.row_group(i).column(number).statistics for i in range(metadata.num_row_groups)]
    if not all(one is not None and one.has_min_max for one in statistics):
        return None
    return min(one.min for one in statistics), max(one.max for one in statistics)
