"""Results without the people and machines of a lab: for an export that leaves it.

The schema says of each column what may be shown (`Sharing`), and by default that is nothing: a new column stays in the
lab until somebody lets it out. Identities stay, so that rows still join.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.store.schema import COLUMNS
from orchestrator.store.schema.columns import SHARED_KEYS, Sharing
from orchestrator.store.schema.tables import with_nested

REMOVED: Final = "[removed]"
"""Stands where a column needs a text and shows none."""
_OF_SAMPLES: Final = dict.fromkeys(("mode", "position", "duration_s", "cpu_s", "pressure_s"), Sharing.PUBLIC)
"""What the view `samples` has besides columns of `trials`."""
_DIGITS: Final = 12


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
        """Rows of a table of the store or of the view `samples`, or some of its columns.

        Raises:
            StoreError: a JSON text does not fit the schema.
        """
        columns = COLUMNS["trials" if name == "samples" else name]
        sharing = _OF_SAMPLES | {column.name: column.sharing for column in columns}
        for number, field in enumerate(rows.schema):
            # A column that nobody knows, as of a query, is shown as one that nobody let out.
            shown = self._column(sharing.get(field.name, Sharing.PRIVATE), field, rows.column(number))
            rows = rows.set_column(number, field, shown)
        return with_nested(name, rows) if rows.schema.names == [column.name for column in columns] else rows

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
