"""Rows of `trials` with few columns: how they wait in the journal.

A row has far more columns than Arrow likes to be told of for one row: to read, check, join, write and forget them
costs more than all that they hold. Columns of one type are therefore one column of lists, one list per row, until
many rows are together.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from orchestrator.store.schema import TRIALS


def _packed() -> pa.Schema:
    alike: dict[tuple[pa.DataType, bool], list[str]] = {}
    for field in TRIALS:
        alike.setdefault((field.type, field.nullable), []).append(field.name)
    return pa.schema([pa.field(",".join(names), pa.list_(kind, len(names))) for (kind, _), names in alike.items()])


PACKED: Final = _packed()
"""Each column has the names of those that it holds; a column that every row has is apart from the others."""


def pack(trials: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `trials` in the schema `PACKED`."""
    columns = []
    for field in PACKED:
        names = field.name.split(",")
        values = pa.concat_arrays([trials.column(name) for name in names])
        columns.append(pa.FixedSizeListArray.from_arrays(_transposed(values, trials.num_rows), len(names)))
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)


def unpack(packed: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of `trials` that were packed."""
    rows = packed.num_rows
    columns = {}
    for field, column in zip(PACKED, packed.columns, strict=True):
        names = field.name.split(",")
        # `flatten` looks for lists that are null, which costs more than all else; there are none.
        values = _transposed(column.values.slice(column.offset * len(names), rows * len(names)), len(names))
        for place, name in enumerate(names):
            columns[name] = values.slice(place * rows, rows)
    return pa.RecordBatch.from_arrays([columns[name] for name in TRIALS.names], schema=TRIALS)


def _transposed(values: pa.Array, width: int) -> pa.Array:
    """A table that was written line by line, `width` values each, written column by column."""
    if width in (0, 1, len(values)):
        return values
    return values.take(pa.array(np.arange(len(values)).reshape(-1, width).T.ravel()))
