"""Whether a sealed file is whole: its pages against their checksums, its footer against what the pages hold.

A page has a checksum and the footer has none, and by the statistics in it readers pass over row groups: a flipped bit
there loses rows in silence. So the statistics are computed again.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.store.schema import SCHEMAS
from orchestrator.store.storage.layout import Snapshot, first_line, reading_errors


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
