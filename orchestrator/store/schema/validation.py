"""Rows from outside, as Arrow takes them, or one line that says which value is at fault."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from orchestrator.errors import StoreError

_UNFIT = (pa.ArrowException, TypeError, OverflowError, UnicodeError)
"""What Arrow raises for a value that it cannot take: text with half a character is one."""


def batch_of(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of one table as a batch in its schema; a column that a row lacks is null.

    Raises:
        StoreError: a column is unknown, a required one is null, or a value has the wrong type.
    """
    names = set(schema.names)
    required = [field.name for field in schema if not field.nullable]
    for row in rows:
        unknown = sorted(set(row) - names)
        missing = [name for name in required if row.get(name) is None]
        if unknown or missing:
            problem = f"unknown column {', '.join(unknown)}" if unknown else f"{', '.join(missing)} is null"
            raise StoreError(f"a row does not fit the store: {problem}")
    try:
        return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema)
    except _UNFIT as error:
        raise StoreError(f"a row does not fit the store: {_culprit(rows, schema) or error}") from error


def _culprit(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> str | None:
    for field in schema:
        try:
            pa.array([row.get(field.name) for row in rows], field.type)
        except _UNFIT as error:
            return f"{field.name}: {error}"
    return None
