"""Hands out results: as a store of their own, or as files of other programs, without the people and machines of a lab.

The schema says of each column what an anonymised export shows (`Sharing`), and by default that is nothing: a new column
stays in the lab until somebody lets it out. Identities stay, so that rows still join.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import ConfigurationError, near_names
from orchestrator.store.facade import Store
from orchestrator.store.query.sql import connect, query_errors, quoted
from orchestrator.store.query.tabular import (
    MARK,
    SIDE_FILE,
    appearing,
    described,
    place_errors,
    require_place,
    write_description,
    write_rows,
)
from orchestrator.store.query.view import View
from orchestrator.store.schema import COLUMNS, KEYS, SCHEMA_VERSION, SCHEMAS, TRIALS
from orchestrator.store.schema.columns import SHARED_KEYS, Sharing
from orchestrator.store.schema.tables import as_merged
from orchestrator.store.storage.parts import require_whole

_BATCH_ROWS: Final = 8192
_SUFFIXES: Final = {".csv", ".parquet", ".json", ".ndjson", ".jsonl"}
REMOVED: Final = "[removed]"
"""Stands where a column needs a text and shows none."""
_OF_SAMPLES: Final = dict.fromkeys(("mode", "position", "duration_s", "cpu_s", "pressure_s"), Sharing.PUBLIC)
"""What the view `samples` has besides columns of `trials`."""
_DIGITS: Final = 12


@dataclass(frozen=True)
class ExportOrder:
    """What is to be handed out, and how."""

    form: str
    """`csv`, `parquet` or `json`."""
    output: Path
    where: str | None = None
    """SQL condition on trials, or on samples if those are wanted; all rows if null."""
    columns: tuple[str, ...] | None = None
    samples: bool = False
    """A row per sample instead of one per trial."""
    anonymise: bool = False
    force: bool = False

    @property
    def is_file(self) -> bool:
        """One table in one file; else a directory with all tables."""
        return self.samples or self.columns is not None or self.output.suffix in _SUFFIXES


@dataclass(frozen=True)
class Anonymiser:
    """Anonymises the rows of one export."""

    names: Mapping[Sharing, Mapping[str, str]]
    """Of hosts and sweeps, to what stands for them: `host-1`, the same in all tables."""

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection) -> "Anonymiser":
        """Numbers all hosts and sweeps of a store, in the order of their names."""
        hosts = connection.sql("SELECT DISTINCT host FROM trials WHERE host IS NOT NULL ORDER BY host").fetchall()
        sweeps = connection.sql("SELECT DISTINCT sweep FROM campaigns ORDER BY sweep").fetchall()
        return cls({Sharing.HOST: _numbered("host", hosts), Sharing.SWEEP: _numbered("sweep", sweeps)})

    def table(self, name: str, rows: pa.Table) -> pa.Table:
        """Rows of a table of the store or of the view `samples`, or some of its columns."""
        columns = COLUMNS["trials" if name == "samples" else name]
        sharing = _OF_SAMPLES | {column.name: column.sharing for column in columns}
        for number, column in enumerate(rows.schema):
            # A column that nobody knows, as of a query, is shown as one that nobody let out.
            shown = self._column(sharing.get(column.name, Sharing.PRIVATE), column, rows.column(number))
            rows = rows.set_column(number, column, shown)
        return rows

    def _column(self, sharing: Sharing, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if sharing is Sharing.PUBLIC:
            return column
        if sharing is Sharing.PRIVATE:
            nothing = None if field.nullable else REMOVED
            return pa.chunked_array([pa.array([nothing] * len(column), field.type)])
        if not pa.types.is_string(field.type):
            return pa.chunked_array([pa.array([_shared(value) for value in column.to_pylist()], field.type)])
        encoded = pc.dictionary_encode(column.combine_chunks())
        # Each text once, however many rows have it.
        texts = [None if text is None else self._text(sharing, text) for text in encoded.dictionary.to_pylist()]
        return pa.chunked_array([pa.array(texts, field.type).take(encoded.indices)], field.type)

    def _text(self, sharing: Sharing, text: str) -> str:
        if sharing in self.names:
            return self.names[sharing][text]
        if sharing is Sharing.DOCUMENT:
            document = json.loads(text)
            shown = _shared(document)
            # Its digest is not `system_id` any more: whoever verifies it must know why.
            marked = shown if shown == document else {**shown, "anonymised": True}
            return json.dumps(marked, sort_keys=True, separators=(",", ":"))
        # Campaigns of two labs must stay apart where their exports are merged.
        return f"{sharing.value}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def _numbered(what: str, rows: Iterable[tuple[str, ...]]) -> dict[str, str]:
    return {name: f"{what}-{number}" for number, (name,) in enumerate(rows, 1)}


def _shared(value: Any, is_known: bool = False) -> Any:
    """A value without its texts, but for those under known keys."""
    if isinstance(value, dict):
        return {key: _shared(inner, is_known or key in SHARED_KEYS) for key, inner in value.items() if key != "private"}
    if isinstance(value, list):
        return [_shared(inner, is_known) for inner in value]
    return None if isinstance(value, str) and not is_known else value


def export(view: View, order: ExportOrder) -> dict[str, int]:
    """Writes an export, which appears whole or not at all; how many rows were handed out, by table.

    In Parquet and without a choice of columns it is a store, which `open_store` and `merge` read.
    """
    side = order.output.with_name(order.output.name + SIDE_FILE)
    has_side = order.is_file and order.form != "parquet"
    for place, is_directory in {order.output: not order.is_file, **({side: False} if has_side else {})}.items():
        with place_errors(place):
            require_place(place, force=order.force, directory=is_directory)
    require_whole(view.snapshot)
    source = _Source(view, order)
    counts: dict[str, int] = {}
    with appearing(order.output, force=order.force, directory=not order.is_file) as place:
        if order.is_file:
            counts[source.table] = write_rows(source.rows(), place, order.form)
        else:
            place.mkdir()
            (_write_store if order.form == "parquet" else _write_tables)(source, order, place, counts)
            write_description(place / MARK, _about(order, source.schema, counts))
    if has_side:
        with appearing(side, force=order.force) as place:
            write_description(place, _about(order, source.schema, counts))
    return counts


class _Source:
    """The rows of an export, batch by batch, anonymised if that is wanted."""

    def __init__(self, view: View, order: ExportOrder) -> None:
        self._view = view
        self._order = order
        self.table = "samples" if order.samples else "trials"
        self._connection = connect(view)
        with query_errors(self._connection, order.where or ""):
            self.schema = _with_units(self._relation().limit(0).to_arrow_table().schema)
        self._anonymiser = Anonymiser.of(self._connection) if order.anonymise else None

    def rows(self) -> pa.RecordBatchReader:
        """The chosen rows."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def small(self, name: str, keys: set[str]) -> pa.Table:
        """The rows of a small table that the chosen rows refer to; all if there is no condition."""
        rows = self._view.snapshot.table(name)
        if self._order.where is not None:
            rows = rows.filter(pc.is_in(rows[KEYS[name]], pa.array(sorted(keys), pa.string())))
        return rows if self._anonymiser is None else self._anonymiser.table(name, rows)

    def references(self) -> dict[str, set[str]]:
        """What the chosen trials refer to, before anything is anonymised."""
        condition = self._order.where or "true"
        found = {}
        for name, key in KEYS.items():
            with query_errors(self._connection, condition):
                values = self._connection.view("trials").filter(condition).project(key).distinct().to_arrow_table()
            found[name] = {value for value in values[key].to_pylist() if value is not None}
        return found

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with query_errors(self._connection, self._order.where or ""):
            for batch in self._relation().to_arrow_reader(_BATCH_ROWS):
                rows = pa.Table.from_batches([batch]).cast(self.schema)
                if self._anonymiser is not None:
                    rows = self._anonymiser.table(self.table, rows)
                yield from rows.combine_chunks().to_batches()

    def _relation(self) -> duckdb.DuckDBPyRelation:
        rows = self._connection.view(self.table)
        known = rows.columns
        for name in self._order.columns or ():
            if name not in known:
                raise ConfigurationError(f"`{self.table}` has no column {name}{near_names(name, known)}")
        return rows.filter(self._order.where or "true").project(", ".join(map(quoted, self._order.columns or known)))


def _write_tables(source: _Source, order: ExportOrder, place: Path, counts: dict[str, int]) -> None:
    counts["trials"] = write_rows(source.rows(), place / f"trials.{order.form}", order.form)
    references = source.references()
    for name in KEYS:
        rows = source.small(name, references[name])
        counts[name] = write_rows(rows.to_reader(), place / f"{name}.{order.form}", order.form)


def _write_store(source: _Source, _order: ExportOrder, place: Path, counts: dict[str, int]) -> None:
    references = source.references()
    with Store.open(place).writer() as writer:
        for name in KEYS:
            rows = source.small(name, references[name]).to_pylist()
            counts[name] = writer.put(name, [as_merged(row) for row in rows] if name == "campaigns" else rows)
        counts["trials"] = 0
        for batch in source.rows():
            writer.append_batches([pa.RecordBatch.from_arrays(batch.columns, schema=TRIALS)])
            counts["trials"] += batch.num_rows


def _about(order: ExportOrder, schema: pa.Schema, counts: dict[str, int]) -> dict[str, Any]:
    tables = {("samples" if order.samples else "trials"): described(schema)}
    if not order.is_file:
        tables |= {name: described(SCHEMAS[name]) for name in KEYS}
    return {
        "what": "an export of a result store of taxmeter; units stand with the columns",
        "format": order.form,
        "schema_version": SCHEMA_VERSION,
        "partial": order.where is not None,
        "where": None if order.anonymise else order.where,
        "anonymised": order.anonymise,
        "rows": counts,
        "tables": tables,
    }


def with_units(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Rows of any query, with the units of the columns that have the name and the type of one of the store's."""
    ours = _with_units(rows.schema)
    fields = [
        field.with_metadata(known.metadata) if known.type.equals(field.type) else field
        for field, known in zip(rows.schema, ours, strict=True)
    ]
    return rows.cast(pa.schema(fields))


def _with_units(schema: pa.Schema) -> pa.Schema:
    """A schema of DuckDB, with types and units of the store where the names are its own."""
    seconds = {
        name: pa.field(name, pa.float64(), metadata={"unit": "s"}) for name in ("duration_s", "cpu_s", "pressure_s")
    }
    ours = {field.name: field for field in TRIALS} | seconds
    return pa.schema([ours.get(field.name, field) for field in schema], metadata=TRIALS.metadata)
