"""Writing the store: one writer at a time is usual, several do no harm."""

from collections.abc import Mapping, Sequence
from typing import Final, Self

import pyarrow as pa

from orchestrator.errors import StoreError
from orchestrator.store.schema import KEYS, TRIALS
from orchestrator.store.storage.compaction import MANY_PARTS, CompactionBusyError, CompactionReport, compact
from orchestrator.store.storage.generations import KEEP_S, change_rows, prepare, put_rows
from orchestrator.store.storage.journal import Segment
from orchestrator.store.storage.layout import Layout, store_id
from orchestrator.store.storage.parts import release_memory
from orchestrator.store.storage.seal import SealReport, recover, seal_segment
from orchestrator.store.validation import batch_of

SEAL_ROWS: Final = 1000
MOST_SEAL_ROWS: Final = 30_000
GROWTH: Final = 4
"""One row may wait in the journal for every so many that were sealed: few parts of a large campaign, none kept long
of a small one. The end of a campaign seals all."""
DUE_PARTS: Final = 50
"""So many new parts are compacted before the end of a campaign."""
SEAL_BYTES = 16 * 2**20
"""A segment is sealed in memory: one of very long sample lists must not become a matter of gigabytes."""


class Writer:
    """Appends trials. Not for several threads at once; close it, or use it as a context manager."""

    def __init__(self, layout: Layout, seal_after_rows: int | None = None, *, keep_s: float = KEEP_S) -> None:
        """Makes the store if it is missing, and seals what killed writers left.

        Args:
            seal_after_rows: how many rows wait in the journal; by default the more, the more were sealed.
        """
        self._layout = layout
        self._seal_after_rows = seal_after_rows
        self._keep_s = keep_s
        self._segment: Segment | None = None
        self._sealed_rows = 0
        self._left_behind = False
        self._put: set[tuple[str, str]] = set()
        prepare(layout, keep_s)
        # Of more than many some are owed to writers that were killed before they could compact.
        self._parts = min(len(layout.parts()), MANY_PARTS)
        self.reports: list[SealReport] = list(recover(layout))
        """What was sealed so far, damage included; those of earlier writers come first."""
        self.compactions: list[CompactionReport] = []
        self.compaction_problems: list[str] = []
        """Why compactions of this writer ended early. Nothing is lost by it, and the next one tries again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Adds rows to `trials`, all or none. When this returns, they are acknowledged: safe from a crash."""
        if rows:
            self._append(batch_of(rows, "trials"))

    def append_batches(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Adds validated rows, in the schema of `trials`, with one synchronisation for all; otherwise as `append`."""
        if not all(batch.schema.equals(TRIALS) for batch in batches):
            raise StoreError("a batch does not fit the store: it is not in the current schema of `trials`")
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            self._append(pa.concat_batches(filled) if len(filled) > 1 else filled[0])

    def put(self, table: str, rows: Sequence[Mapping[str, object]]) -> int:
        """Writes rows of a small table, each once, all or none; how many were not there."""
        keys = [(table, str(row.get(KEYS[table]))) for row in rows]
        new = [row for key, row in zip(keys, rows, strict=True) if key not in self._put]
        added = put_rows(self._layout, table, new) if new else 0
        self._put.update(keys)
        return added

    def put_campaign(self, row: Mapping[str, object]) -> bool:
        """Writes a row of `campaigns` once; false if it was there."""
        return self.put("campaigns", [{**row, "origin_store": store_id(self._layout)}]) > 0

    def finish_campaigns(self, columns: Mapping[str, Mapping[str, object]]) -> None:
        """Writes what is known of campaigns at their end into their rows, by campaign; again changes nothing."""
        change_rows(self._layout, "campaigns", columns)

    def finish_campaign(self, campaign_id: str, **columns: object) -> None:
        """The same of one campaign."""
        self.finish_campaigns({campaign_id: columns})

    def seal(self) -> None:
        """Makes what was appended visible to plain readers.

        Raises:
            StoreError: the parts could not be written. The rows stay in the journal; the next seal takes them along.
        """
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                report = seal_segment(self._layout, segment.path)
            except BaseException:
                self._left_behind = True
                raise
            finally:
                segment.close()
            self.reports.append(report)
            self._sealed_rows += report.rows
            release_memory()
        if self._left_behind:
            self.reports.extend(recover(self._layout))
            self._left_behind = False

    def close(self) -> None:
        """Seals, compacts if that is worth it, and lets go of the store."""
        self.seal()
        self._compact()

    def _append(self, batch: pa.RecordBatch) -> None:
        # Before the write: a seal that fails must not look like a failure of rows that are already safe.
        if self._segment is not None and self._is_spent(self._segment):
            self.seal()
            if self._is_due():
                self._compact()
        if self._segment is None:
            self._segment = Segment(self._layout)
        self._segment.append(batch)

    def _compact(self) -> None:
        try:
            report = compact(self._layout, full=False, keep_s=self._keep_s)
        except CompactionBusyError:
            return
        except StoreError as error:
            # The rows are sealed and safe: a compaction that fails must not end a campaign.
            self.compaction_problems.append(str(error))
        else:
            self.compactions.append(report)
        self._parts = len(self._layout.parts())

    def _is_due(self) -> bool:
        """Whether there are so many more parts than after a compaction that its end should not be waited for."""
        parts = len(self._layout.parts())
        self._parts = min(self._parts, parts)
        return parts >= self._parts + DUE_PARTS

    def _is_spent(self, segment: Segment) -> bool:
        grown = min(MOST_SEAL_ROWS, max(SEAL_ROWS, self._sealed_rows // GROWTH))
        limit = grown if self._seal_after_rows is None else self._seal_after_rows
        return segment.is_broken or segment.rows >= limit or segment.size_bytes >= SEAL_BYTES
