"""The one validator of rows: what is written, imported, merged or verified is judged here, by column and by batch.

A violation is told in one line that names the column, its value and what was expected, and costs its row alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.boundary import load_json
from orchestrator.errors import ForeignDataError, StoreError, one_line
from orchestrator.store.schema import COLUMNS, KEYS, ROW_KEY, SCHEMAS
from orchestrator.store.schema.columns import GUARD_RESULTS, Origin
from orchestrator.store.schema.tables import Row
from runners.contract import GuardMoment, GuardOutcome, GuardPolicy, Interleaving, Status, Stop

AHEAD: Final = timedelta(days=1)
"""Clocks differ; a row from further in the future would be the newest of all for good."""

MAX_NAME: Final = 4096
MAX_TEXT: Final = 2**20
MAX_DOCUMENT: Final = 2**30
"""Bytes of a name or a word, of a text that a runner wrote, and of a document of a whole campaign."""

_SHOWN: Final = 60
_LONGEST: Final = 300
_UNFIT: Final = (pa.ArrowException, TypeError, OverflowError, UnicodeError)
"""What Arrow raises for a value that it cannot take: text with half a character is one."""

_IDENTITY: Final = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,239}$"
"""One plain component of a path: campaigns and tasks have directories and files of their names."""

_IDENTITIES: Final = frozenset(
    {
        *("trial_id", "trial_key", "campaign_id", "task_id", "environment_id", "system_id", "hw_id", "session_id"),
        *("reproduces", "reproduces_trial_key", "plan_digest", "origin_store"),
    }
)
_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "status": [word.value for word in Status],
    "dtype": ["float32", "float16", "bfloat16"],
    "device": ["cpu", "cuda"],
    "isolation": ["docker", "process"],
    "origin": [word.value for word in Origin],
    "exclusive": ["host", "gpu"],
    "interleaving": [word.value for word in Interleaving],
    "sync_stopped": [word.value for word in Stop],
    "pipelined_stopped": [word.value for word in Stop],
}
_OBJECTS: Final = frozenset(
    {
        *("workload_options", "backend_options", "protocol", "facts", "conditions_before", "conditions_after"),
        *("fingerprint", "versions", "plan"),
    }
)

_TEXTS: Final = frozenset(
    {
        *("reason", "log_tail", "session_reason", "executor_reason", "reproduction_differs", "dispatch_floor_problem"),
        *(_OBJECTS - {"plan"}),
    }
)
_DOCUMENTS: Final = frozenset({"sweep_document", "inventory_document", "plan"})
_LEAST: Final = {"attempt": 1, "batch": 1, "threads": 1}
"""Of integers; others are at least 0."""
_SIGNED: Final = frozenset({"exit_code"})
_GUARD_WORDS: Final[Mapping[str, type[Enum]]] = {"moment": GuardMoment, "policy": GuardPolicy, "outcome": GuardOutcome}


@dataclass(frozen=True)
class _Check:
    """What is asked of some columns of one type."""

    columns: tuple[str, ...]
    expected: str
    is_bad: Callable[[Any], Any]
    """Of an Arrow array, of a list's elements if the columns are lists: which of its values are wrong, or null."""


def batch_of(rows: Sequence[Mapping[str, object]], table: str) -> pa.RecordBatch:
    """Rows of one table as a batch in its schema; a column that a row lacks is null.

    Raises:
        StoreError: of the first row that is wrong, in what.
    """
    batch = _converted(rows, SCHEMAS[table])
    for line in told(batch, table, violations(batch, table)):
        raise StoreError(line)
    return batch


def fitting(rows: Sequence[Row]) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Rows of `trials` as a batch without those that are wrong, and by their place what is wrong with these."""
    problems: dict[int, str] = {}
    places = list(range(len(rows)))
    try:
        batch = _converted(rows, SCHEMAS["trials"])
    except StoreError:
        for place in places:
            try:
                _converted([rows[place]], SCHEMAS["trials"])
            except StoreError as error:
                problems[place] = str(error)
        places = [place for place in places if place not in problems]
        batch = _converted([rows[place] for place in places], SCHEMAS["trials"])
    wrong = violations(batch, "trials")
    problems |= {places[place]: problem for place, problem in wrong.items()}
    return without(batch, wrong), problems


def violations(rows: pa.RecordBatch, table: str) -> dict[int, str]:
    """What is wrong with rows of a table: by the place of a row, its first violation.

    Args:
        rows: in the schema of the table; of any author, but decoded and so of the right types.
    """
    found: dict[int, str] = {}
    for check in _CHECKS[table]:
        columns = [rows.column(name) for name in check.columns]
        values = pa.concat_arrays(columns) if len(columns) > 1 else columns[0]
        for place, value in _bad_values(check, values):
            column = check.columns[place // rows.num_rows]
            found.setdefault(place % rows.num_rows, f"{column} is {value}; expected {check.expected}")
    return found


def without(rows: pa.RecordBatch, places: Mapping[int, object]) -> pa.RecordBatch:
    """The rows at all other places."""
    return rows.filter(pa.array([place not in places for place in range(rows.num_rows)])) if places else rows


def told(rows: pa.RecordBatch, table: str, problems: Mapping[int, str]) -> list[str]:
    """One line for each row that is wrong, with the name of the row."""
    keys = [rows.column(name) for name in (ROW_KEY if table == "trials" else (KEYS[table],))]
    words = "trial {}, attempt {}: {}" if table == "trials" else f"{table.removesuffix('s')} {{}}: {{}}"
    return [words.format(*(_plain(key[at].as_py()) for key in keys), problems[at]) for at in sorted(problems)]


def _converted(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.RecordBatch:
    for row in rows:
        unknown = sorted(set(row) - set(schema.names))
        if unknown:
            raise StoreError(one_line(f"a row does not fit the store: unknown column {', '.join(unknown)}", _LONGEST))
    try:
        return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema)
    except _UNFIT as error:
        raise StoreError(
            one_line(f"a row does not fit the store: {_culprit(rows, schema) or error}", _LONGEST)
        ) from error


def _culprit(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> str | None:
    for field in schema:
        try:
            pa.array([row.get(field.name) for row in rows], field.type)
        except _UNFIT as error:
            return f"{field.name}: {error}"
    return None


def _bad_values(check: _Check, values: pa.Array) -> Iterator[tuple[int, str]]:
    """Places in `values` that break a check, each with what stands there."""
    is_list = pa.types.is_list(values.type)
    elements = values.flatten() if is_list else values
    bad = check.is_bad(elements)
    if not pc.any(bad).as_py():
        return
    parents = pc.list_parent_indices(values) if is_list else None
    for place in np.flatnonzero(bad.fill_null(False).to_numpy(zero_copy_only=False)).tolist():
        yield (place if parents is None else parents[place].as_py()), _shown(elements[place])


def _checks(table: str) -> Iterator[_Check]:
    columns = COLUMNS[table]
    named_texts = [column.name for column in columns if column.type == pa.string()]
    for column in columns:
        if column.required:
            yield _Check((column.name,), "a value", lambda values: values.is_null())
        if column.name in _WORDS:
            yield _one_of((column.name,), _WORDS[column.name])
    for names, most in ((_DOCUMENTS, MAX_DOCUMENT), (_TEXTS, MAX_TEXT), (None, MAX_NAME)):
        some = [name for name in named_texts if (name not in _DOCUMENTS | _TEXTS if names is None else name in names)]
        yield _Check(tuple(some), f"at most {most} bytes", partial(_above, most=most))
    yield _Check(
        tuple(name for name in named_texts if name in _IDENTITIES),
        "letters, digits and . _ + - after a first letter or digit, at most 240",
        lambda values: pc.invert(pc.match_substring_regex(values, _IDENTITY)),
    )
    yield _Check(tuple(name for name in named_texts if name in _OBJECTS), "a JSON object", _is_no_object)
    for kind in (pa.int32(), pa.int64()):
        signed = [column.name for column in columns if column.type == kind and column.name not in _SIGNED]
        for least in (0, 1):
            some = [name for name in signed if _LEAST.get(name, 0) == least]
            yield _Check(tuple(some), f"at least {least}", partial(_below, least=least))
    yield _Check(_of_type(table, pa.timestamp("us", "UTC")), "a time from 1970 until tomorrow", _is_no_time)
    numbers = _of_type(table, pa.float64())
    yield _Check(numbers, "a finite number", lambda values: pc.invert(pc.is_finite(values)))
    measured = tuple(name for name in numbers if name.startswith("latency_") and name.endswith("_s"))
    yield _Check(measured, "at least 0", partial(_below, least=0.0))
    series = _of_type(table, pa.list_(pa.field("element", pa.float64())))
    yield _Check(series, "finite seconds of at least 0", lambda values: pc.invert(_is_duration(values)))
    counts = _of_type(table, pa.list_(pa.field("element", pa.int32())))
    yield _Check(counts, "counts of at least 0", partial(_below, least=0))
    for name in _of_type(table, GUARD_RESULTS):
        for field, words in _GUARD_WORDS.items():
            known = pa.array([word.value for word in words])
            expected = f"{field} one of {', '.join(known.to_pylist())}"
            yield _Check((name,), expected, partial(_unknown, field=field, known=known))


def _one_of(columns: tuple[str, ...], words: Sequence[str]) -> _Check:
    known = pa.array(words, pa.string())
    is_bad = lambda values: pc.and_(values.is_valid(), pc.invert(pc.is_in(values, known)))  # noqa: E731
    return _Check(columns, f"one of {', '.join(words)}", is_bad)


def _of_type(table: str, kind: pa.DataType) -> tuple[str, ...]:
    return tuple(column.name for column in COLUMNS[table] if column.type == kind)


def _below(values: pa.Array, least: float) -> pa.Array:
    return pc.less(values, least)


def _above(values: pa.Array, most: int) -> pa.Array:
    return pc.greater(pc.binary_length(values), most)


def _is_duration(values: pa.Array) -> pa.Array:
    return pc.and_(pc.is_finite(values), pc.greater_equal(values, 0.0))


def _is_no_time(values: pa.Array) -> pa.Array:
    first, last = (pa.scalar(at, values.type) for at in (datetime.fromtimestamp(0, UTC), datetime.now(UTC) + AHEAD))
    return pc.or_(pc.less(values, first), pc.greater(values, last))


def _unknown(results: pa.Array, field: str, known: pa.Array) -> pa.Array:
    return pc.invert(pc.is_in(pc.struct_field(results, field), known))


def _is_no_object(values: pa.Array) -> pa.Array:
    # Each text once, however many rows have it
    encoded = pc.dictionary_encode(values)
    return pa.array([not _is_object(text) for text in encoded.dictionary.to_pylist()], pa.bool_()).take(encoded.indices)


def _is_object(text: str) -> bool:
    try:
        return isinstance(load_json(text, "", limit_bytes=MAX_DOCUMENT), dict)
    except ForeignDataError:
        return False


def _shown(value: pa.Scalar) -> str:
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):
        return "beyond all calendars"
    return "null" if plain is None else _plain(plain if isinstance(plain, datetime) else repr(plain))


def _plain(value: object) -> str:
    text = str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_CHECKS: Final = {table: [check for check in _checks(table) if check.columns] for table in SCHEMAS}
