"""Hands out results: as a store of their own, or as files of other programs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import ConfigurationError, near_names
from orchestrator.store.facade import Store
from orchestrator.store.query.reading import View
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
from orchestrator.store.schema import KEYS, SCHEMA_VERSION, SCHEMAS, TRIALS
from orchestrator.store.schema.tables import as_merged
from orchestrator.store.sharing.anonymising import Anonymiser
from orchestrator.store.storage.checking import require_whole_files

_BATCH_ROWS: Final = 8192
_SUFFIXES: Final = {".csv", ".parquet", ".json", ".ndjson", ".jsonl"}


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


@dataclass
class ExportReport:
    """How many rows were handed out."""

    rows: dict[str, int] = field(default_factory=dict)
    """By table."""


def export(view: View, order: ExportOrder) -> ExportReport:
    """Writes an export; it appears whole or not at all.

    In Parquet and without a choice of columns it is a store, which `open_store` and `merge` read.
    """
    side = order.output.with_name(order.output.name + SIDE_FILE)
    has_side = order.is_file and order.form != "parquet"
    for place, is_directory in {order.output: not order.is_file, **({side: False} if has_side else {})}.items():
        with place_errors(place):
            require_place(place, force=order.force, directory=is_directory)
    # What is damaged would have fresh checksums in the export.
    require_whole_files(view.snapshot)
    source = _Source(view, order)
    report = ExportReport()
    with appearing(order.output, force=order.force, directory=not order.is_file) as place:
        if order.is_file:
            report.rows[source.table] = write_rows(source.rows(), place, order.form)
        else:
            place.mkdir()
            (_write_store if order.form == "parquet" else _write_tables)(source, order, place, report)
            write_description(place / MARK, _about(order, source.schema, report))
    if has_side:
        with appearing(side, force=order.force) as place:
            write_description(place, _about(order, source.schema, report))
    return report


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


def _write_tables(source: _Source, order: ExportOrder, place: Path, report: ExportReport) -> None:
    report.rows["trials"] = write_rows(source.rows(), place / f"trials.{order.form}", order.form)
    references = source.references()
    for name in KEYS:
        rows = source.small(name, references[name])
        # Their JSON text says the same, and CSV has no nested values.
        rows = rows.drop_columns([name for name in rows.schema.names if name in ("details", "packages")])
        report.rows[name] = write_rows(rows.to_reader(), place / f"{name}.{order.form}", order.form)


def _write_store(source: _Source, _order: ExportOrder, place: Path, report: ExportReport) -> None:
    references = source.references()
    with Store.open(place).writer() as writer:
        for name in KEYS:
            rows = source.small(name, references[name]).to_pylist()
            report.rows[name] = writer.put(name, [as_merged(row) for row in rows] if name == "campaigns" else rows)
        report.rows["trials"] = 0
        for batch in source.rows():
            writer.append_batches([pa.RecordBatch.from_arrays(batch.columns, schema=TRIALS)])
            report.rows["trials"] += batch.num_rows


def _about(order: ExportOrder, schema: pa.Schema, report: ExportReport) -> dict[str, Any]:
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
        "rows": report.rows,
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
