"""Reading the store: sealed parts and what is still in the journal, each row once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from orchestrator.store.schema import SCHEMAS, TRIALS
from orchestrator.store.storage.journal import read_segment
from orchestrator.store.storage.layout import Layout, Snapshot, storage_errors
from orchestrator.store.storage.seal import new_rows


@dataclass(frozen=True)
class View:
    """All rows of the store at one moment."""

    snapshot: Snapshot
    unsealed: pa.Table
    """Rows of `trials` that no plain reader sees yet; none of them is in the snapshot, and none is twice here."""
    _datasets: dict[str, ds.Dataset] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By table; a dataset remembers the footers of its files."""

    def dataset(self, table: str) -> ds.Dataset:
        """A table, rows in no promised order."""
        if table not in self._datasets:
            known = self.snapshot.dataset(table)
            if table == "trials" and len(self.unsealed):
                known = ds.dataset([known, ds.dataset(self.unsealed)])
            self._datasets[table] = known
        return self._datasets[table]

    def table(self, table: str, columns: Sequence[str], condition: pc.Expression | None) -> pa.Table:
        """Some columns of the rows of a table for which a condition is true, with their units; errors are Arrow's."""
        schema = pa.schema([SCHEMAS[table].field(name) for name in columns], SCHEMAS[table].metadata)
        return self.dataset(table).to_table(columns=list(columns), filter=condition).cast(schema)


def current_view(layout: Layout) -> View:
    """What is in the store now. Sealed parts are unique among themselves; only the journal is compared with them."""
    # The journal first: a segment that is sealed meanwhile is then met twice, never missed.
    tables = [TRIALS.empty_table()]
    for segment in layout.segments():
        with storage_errors(f"cannot read {segment}"):
            try:
                tables.append(read_segment(segment).table)
            except FileNotFoundError:
                continue
    snapshot = layout.snapshot()
    return View(snapshot, new_rows(pa.concat_tables(tables), snapshot.parts()))
