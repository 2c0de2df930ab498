"""Files of the store in Parquet: how they are written and read, what their footers say, and whether they are whole.

A page has a checksum and the footer has none, and by the statistics in it readers pass over row groups: a flipped bit
there loses rows in silence. So the statistics are computed again, and compared with what the pages hold.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.store.schema import SCHEMAS, SORT_ORDER, TRIALS, parquet_options
from orchestrator.store.storage.layout import Snapshot, first_line, reading_errors

ROW_GROUP_ROWS: Final = 16384
"""Small enough that statistics prune within a part, large enough that a scan is one of few pieces."""

_SMALL: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": False,
    "write_statistics": False,
    "write_page_checksum": True,
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


def part_name(stem: str) -> str:
    """The name of a part of `trials`."""
    return f"part-{stem}.parquet"


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
        order = pc.sort_indices(rows.select(list(SORT_ORDER)), sort_keys=[(name, "ascending") for name in SORT_ORDER])
        # Opened here, to be closed also if the disk is full and the writer cannot write its end.
        with pa.OSFile(str(path), "wb") as sink, pq.ParquetWriter(sink, TRIALS, **parquet_options()) as writer:
            for start in range(0, len(order), ROW_GROUP_ROWS):
                writer.write_table(rows.take(order.slice(start, ROW_GROUP_ROWS)), row_group_size=ROW_GROUP_ROWS)
    except pa.ArrowException as error:
        raise StoreError(f"cannot write {path}: {error}") from error


def read_checked(paths: Iterable[Path], table: str) -> pa.Table:
    """All rows of some files of a table, after every page was compared with its checksum."""
    tables = [SCHEMAS[table].empty_table()]
    for path in paths:
        with reading_errors(path, _VERIFY):
            tables.append(pq.ParquetFile(path, page_checksum_verification=True).read().cast(SCHEMAS[table]))
    return pa.concat_tables(tables)


def read_columns(
    paths: Iterable[Path], table: str, columns: Iterable[str], condition: ds.Expression | None = None
) -> pa.Table:
    """Some columns of the rows of some files of a table."""
    files = list(map(str, paths))
    with reading_errors(files[0] if files else table):
        dataset = ds.dataset(files, schema=SCHEMAS[table], format="parquet")
        return dataset.to_table(columns=list(columns), filter=condition)


def open_checked(stream: pa.NativeFile) -> pq.ParquetFile:
    """A Parquet file whose pages are compared with their checksums as they are read; errors are Arrow's."""
    return pq.ParquetFile(stream, page_checksum_verification=True)


def differences(file: pq.ParquetFile) -> Iterator[str]:
    """Reads every page, and says in which places the footer tells something else.

    Of nested columns only the extremes of plain lists are compared.

    Args:
        file: from `open_checked`; where a page cannot be read, or differs from its checksum, errors are Arrow's.
    """
    rows = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        held = file.read_row_group(number)
        held.validate(full=True)
        if len(held) != group.num_rows:
            yield f"row group {number} has {len(held)} rows, and its footer says {group.num_rows}"
        rows += len(held)
        # Not before pages were read: pyarrow ends the process where it is asked for a description that it cannot
        # read, and the reader of pages meets that first and raises.
        for column in _with_statistics(file, group) if len(held) else ():
            if what := _difference(column, held):
                yield f"column {column.path_in_schema}, row group {number}: its footer says {what}; queries lose rows"
    if rows != file.metadata.num_rows:
        yield f"has {rows} rows, and its footer says {file.metadata.num_rows}"


def require_whole(stream: pa.NativeFile, path: object) -> int:
    """Checks one file before it is copied, for the copy would have fresh checksums; returns its number of rows."""
    try:
        file = open_checked(stream)
        problem = next(differences(file), None)
    except (pa.ArrowException, OSError, ValueError) as error:
        problem = first_line(error)
    if problem is not None:
        raise StoreError(f"{path} is damaged and was not copied: {problem}; `taxmeter results verify` tells more")
    return int(file.metadata.num_rows)


def require_whole_files(snapshot: Snapshot) -> None:
    """Checks all files of a snapshot before something is made of them."""
    for path in (path for table in SCHEMAS for path in snapshot.files[table]):
        with reading_errors(path):
            stream = snapshot.filesystem.open_input_file(path)
        with stream:
            require_whole(stream, path)


def _difference(column: pq.ColumnChunkMetaData, rows: pa.Table) -> str | None:
    """What the footer of a row group says of a column that is not so; null if nothing."""
    footer, path = column.statistics, column.path_in_schema
    values = rows.column(path.partition(".")[0])
    if "." in path:
        values = pc.list_flatten(values)
    elif footer.has_null_count and footer.null_count != values.null_count:
        # Not of lists: what Parquet counts as null there has an empty list in it, too.
        return f"{footer.null_count} nulls, and there are {values.null_count}"
    if not footer.has_min_max:
        return None
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_floating(values.type):
        # Statistics leave these out.
        values = values.filter(pc.invert(pc.is_nan(values)))
    try:
        said = footer.min, footer.max
    except (ValueError, OverflowError):
        return "extremes that are no values"
    extremes = pc.min_max(values)
    held = extremes["min"].as_py(), extremes["max"].as_py()
    return None if said == held else f"{said[0]!r} to {said[1]!r}, and there is {held[0]!r} to {held[1]!r}"


def _with_statistics(file: pq.ParquetFile, group: pq.RowGroupMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for number in range(group.num_columns):
        column = group.column(number)
        expected = file.schema.column(number)
        if (column.physical_type, column.path_in_schema) != (expected.physical_type, expected.path):
            # Asked for its statistics, pyarrow would end the process.
            raise pa.ArrowInvalid(
                f"the footer has column {expected.path} as {column.physical_type} {column.path_in_schema}, "
                f"not {expected.physical_type}"
            )
        is_comparable = column.path_in_schema.partition(".")[2] in ("", "list.element", "list.item")
        if column.statistics is not None and is_comparable:
            yield column
