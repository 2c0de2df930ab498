"""Rows of `trials` with few columns: how they travel, and how they wait in the journal.

A row has far more columns than Arrow likes to be told of for one row: to read, check, join, write and forget them
costs more than all that they hold. Columns of one type are therefore one column of lists, one list per row, until
many rows are together.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from orchestrator.store.schema import TRIALS


def _alike() -> list[list[pa.Field]]:
    """The columns of each type; those that every row has apart from the others."""
    found: dict[tuple[pa.DataType, bool], list[pa.Field]] = {}
    for field in TRIALS:
        found.setdefault((field.type, field.nullable), []).append(field)
    return list(found.values())


PACKED: Final = pa.schema(
    [pa.field(",".join(field.name for field in some), pa.list_(some[0].type, len(some))) for some in _alike()]
)
"""Each column has the names of those that it holds."""

_REQUIRED: Final = [(place, len(some)) for place, some in enumerate(_alike()) if not some[0].nullable]
_PLACES: Final = {
    field.name: (place, len(some), inner) for place, some in enumerate(_alike()) for inner, field in enumerate(some)
}


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
    columns = columns_of(packed)
    return pa.RecordBatch.from_arrays([columns[name] for name in TRIALS.names], schema=TRIALS)


def columns_of(packed: pa.RecordBatch) -> dict[str, pa.Array]:
    """By name the columns that were packed."""
    rows = packed.num_rows
    columns = {}
    for field, column in zip(packed.schema, packed.columns, strict=True):
        names = field.name.split(",")
        values = _transposed(_flat(column, len(names)), len(names))
        for inner, name in enumerate(names):
            columns[name] = values.slice(inner * rows, rows)
    return columns


def missing(packed: pa.RecordBatch) -> list[str]:
    """Names of the columns that lack a value which every row has."""
    columns = packed.columns
    if any(column.null_count for column in columns):
        return [name for name, column in zip(PACKED.names, columns, strict=True) if column.null_count]
    if not any(_flat(columns[place], width).null_count for place, width in _REQUIRED):
        return []
    trials = unpack(packed)
    return [field.name for field in TRIALS if not field.nullable and trials.column(field.name).null_count]


def values_of(packed: pa.RecordBatch, name: str) -> list[object]:
    """The values of one column of `trials`."""
    place, width, inner = _PLACES[name]
    values = _flat(packed.column(place), width)
    return [values[at].as_py() for at in range(inner, len(values), width)]


def _flat(column: pa.FixedSizeListArray, width: int) -> pa.Array:
    # `flatten` looks for lists that are null, which costs more than all else; there are none, `missing` makes sure.
    values, first, length = column.values, column.offset * width, len(column) * width
    return values if (first, length) == (0, len(values)) else values.slice(first, length)


def _transposed(values: pa.Array, width: int) -> pa.Array:
    """A table that was written line by line, `width` values each, written column by column."""
    if width in (0, 1, len(values)):
        return values
    return values.take(pa.array(np.arange(len(values)).reshape(-1, width).T.ravel()))
