"""Reading the store: sealed parts and what is still in the journal, each row once."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from orchestrator.errors import StoreError
from orchestrator.store.files import Layout, storage_errors
from orchestrator.store.journal import read_segment
from orchestrator.store.schema import ROW_KEY, TRIALS


def read_trials(layout: Layout, columns: Sequence[str] | None = None, campaign_id: str | None = None) -> pa.Table:
    """All trials, with those that no plain reader sees yet.

    Args:
        layout: where the store is.
        columns: names of columns; all of them if null.
        campaign_id: only the trials of this campaign; all trials if null.

    Raises:
        StoreError: a column is unknown, or a file cannot be read.
    """
    wanted = list(TRIALS.names if columns is None else columns)
    unknown = sorted(set(wanted) - set(TRIALS.names))
    if unknown:
        raise StoreError(f"the store has no column {', '.join(unknown)}")
    needed = list(dict.fromkeys([*wanted, *ROW_KEY]))
    # The journal first: a segment that is sealed meanwhile is then met twice, never missed.
    open_rows = _read_journal(layout)
    condition = None if campaign_id is None else pc.field("campaign_id") == campaign_id
    sealed = read_parts(layout.parts(), needed, condition)
    open_rows = (open_rows if condition is None else open_rows.filter(condition)).select(needed)
    return without_duplicates(pa.concat_tables([sealed, open_rows])).select(wanted)


def read_parts(parts: Sequence[Path], columns: list[str], condition: ds.Expression | None = None) -> pa.Table:
    """Some columns of some parts; what an older part does not have is null.

    Raises:
        StoreError: a part cannot be read.
    """
    schema = pa.schema([TRIALS.field(name) for name in columns], metadata=TRIALS.metadata)
    if not parts:
        return schema.empty_table()
    try:
        dataset = ds.dataset([str(part) for part in parts], schema=TRIALS, format="parquet")
        return dataset.to_table(columns=columns, filter=condition).cast(schema)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"cannot read {parts[0].parent.parent}: {error}") from error


def read_dimension(directory: Path, schema: pa.Schema) -> pa.Table:
    """One of the small tables, whole.

    Raises:
        StoreError: a file cannot be read.
    """
    files = sorted(directory.glob("*.parquet"))
    if not files:
        return schema.empty_table()
    try:
        return ds.dataset([str(file) for file in files], schema=schema, format="parquet").to_table()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"cannot read {directory}: {error}") from error


def without_duplicates(table: pa.Table) -> pa.Table:
    """The first row of each (trial_id, attempt), in order."""
    numbered = table.select(list(ROW_KEY)).append_column("row", pa.array(range(len(table)), pa.int64()))
    first = numbered.group_by(list(ROW_KEY)).aggregate([("row", "min")])["row_min"]
    if len(first) == len(table):
        return table
    return table.take(first.sort())


def _read_journal(layout: Layout) -> pa.Table:
    tables = [TRIALS.empty_table()]
    for segment in layout.segments():
        with storage_errors(f"cannot read {segment}"):
            try:
                tables.append(read_segment(segment).table)
            except FileNotFoundError:
                continue
    return pa.concat_tables(tables)
