"""Whether a sealed file is whole: its pages against their checksums, its footer against what the pages hold.

A page has a checksum and the footer has none, and by the statistics in it readers pass over row groups: a flipped bit
there loses rows in silence. So the statistics are computed again.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.store.schema import SCHEMAS
from orchestrator.store.storage.layout import Snapshot

_BATCH_ROWS: Final = 8192


def open_checked(stream: pa.NativeFile) -> pq.ParquetFile:
    """A Parquet file whose pages are compared with their checksums as they are read.

    Raises:
        pyarrow.ArrowException: its footer cannot be read.
        OSError: the same.
    """
    return pq.ParquetFile(stream, page_checksum_verification=True)


def differences(file: pq.ParquetFile) -> Iterator[str]:
    """Reads every page, and says in which places the footer tells something else.

    Of nested columns only the extremes of plain lists are compared.

    Args:
        file: from `open_checked`.

    Raises:
        pyarrow.ArrowException: a page cannot be read, or differs from its checksum.
        OSError: the same.
    """
    rows = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        seen: dict[str, _Seen] = {}
        in_group = 0
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number]):
            batch.validate(full=True)
            # Not before pages were read: pyarrow ends the process where it is asked for a description that it cannot
            # read, and the reader of pages meets that first and raises.
            seen = seen or {column.path_in_schema: _Seen() for column in _with_statistics(file, group)}
            in_group += batch.num_rows
            for path, one in seen.items():
                one.add(path, batch)
        if in_group != group.num_rows:
            yield f"row group {number} has {in_group} rows, and its footer says {group.num_rows}"
        rows += in_group
        for column in _with_statistics(file, group) if in_group else ():
            what = seen[column.path_in_schema].difference(column.statistics)
            if what:
                yield f"column {column.path_in_schema}, row group {number}: its footer says {what}; queries lose rows"
    if rows != file.metadata.num_rows:
        yield f"has {rows} rows, and its footer says {file.metadata.num_rows}"


def require_whole(stream: pa.NativeFile, path: object) -> int:
    """Checks one file before it is copied, for the copy would have fresh checksums; returns its number of rows.

    Raises:
        StoreError: it is damaged.
    """
    try:
        file = open_checked(stream)
        problem = next(differences(file), None)
    except (pa.ArrowException, OSError, ValueError) as error:
        problem = str(error).partition("\n")[0]
    if problem is not None:
        raise StoreError(f"{path} is damaged and was not copied: {problem}; `taxmeter results verify` tells more")
    return int(file.metadata.num_rows)


def require_whole_files(snapshot: Snapshot) -> None:
    """Checks all files of a snapshot before something is made of them.

    Raises:
        StoreError: one is damaged.
    """
    for path in (path for table in SCHEMAS for path in snapshot.files[table]):
        try:
            stream = snapshot.filesystem.open_input_file(path)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"cannot read {path}: {error}") from error
        with stream:
            require_whole(stream, path)


class _Seen:
    """What a column of a row group holds, as far as statistics speak of it."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        """The extremes of each batch."""
        self._nulls: int | None = 0

    def add(self, path: str, batch: pa.RecordBatch) -> None:
        column = batch.column(batch.schema.get_field_index(path.partition(".")[0]))
        if "." in path:
            # What Parquet counts as null there has an empty list in it, too.
            self._nulls = None
            column = column.flatten()
        elif self._nulls is not None:
            self._nulls += column.null_count
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_floating(column.type):
            # Statistics leave these out.
            column = column.filter(pc.invert(pc.is_nan(column)))
        extremes = pc.min_max(column)
        self._values += [one.as_py() for one in extremes.values() if one.is_valid]

    def difference(self, footer: pq.Statistics) -> str | None:
        """What the footer says otherwise; null if nothing."""
        if footer.has_null_count and self._nulls is not None and footer.null_count != self._nulls:
            return f"{footer.null_count} nulls, and there are {self._nulls}"
        if not footer.has_min_max:
            return None
        try:
            said = footer.min, footer.max
        except (ValueError, OverflowError):
            return "extremes that are no values"
        held = (min(self._values), max(self._values)) if self._values else (None, None)
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
        is_comparable = column.path_in_schema.count(".") == 0 or _is_plain_list(column.path_in_schema)
        if column.statistics is not None and is_comparable:
            yield column


def _is_plain_list(path: str) -> bool:
    return path.split(".")[1:] in (["list", "element"], ["list", "item"])
