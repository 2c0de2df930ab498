"""Writing the store: one writer at a time is usual, several do no harm."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.store.files import Layout, exclusive, publish, storage_errors
from orchestrator.store.journal import Segment
from orchestrator.store.schema import CAMPAIGNS, ENVIRONMENTS, SYSTEMS, TRIALS
from orchestrator.store.sealing import SealReport, recover, seal_segment

SEAL_ROWS = 1000
SEAL_BYTES = 64 * 2**20
"""A segment is sealed in memory: one of very long sample lists must not become a matter of gigabytes."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class Writer:
    """Appends trials. Not for several threads at once; close it, or use it as a context manager."""

    def __init__(self, layout: Layout, seal_after_rows: int = SEAL_ROWS) -> None:
        """Makes the store if it is missing, and seals what killed writers left.

        Raises:
            StoreError: the store cannot be written.
        """
        self._layout = layout
        self._seal_after_rows = seal_after_rows
        self._segment: Segment | None = None
        layout.create()
        self.reports: list[SealReport] = list(recover(layout))
        """What was sealed so far, damage included; those of earlier writers come first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Adds rows to `trials`. When this returns, they are acknowledged: on the disk and safe from a crash.

        Raises:
            StoreError: a row does not fit the schema, or the disk refuses; none of the rows counts as written.
        """
        if not rows:
            return
        batch = _batch(rows, TRIALS)
        # Before the write: a seal that fails must not look like a failure of rows that are already safe.
        if self._segment is not None and self._is_spent(self._segment):
            self.seal()
        if self._segment is None:
            self._segment = Segment.create(self._layout)
        self._segment.append(batch)

    def put_system(self, row: Mapping[str, object]) -> bool:
        """Writes a row of `systems` once; false if it was there."""
        return self._put(self._layout.systems, "system_id", row, SYSTEMS)

    def put_environment(self, row: Mapping[str, object]) -> bool:
        """Writes a row of `environments` once; false if it was there."""
        return self._put(self._layout.environments, "environment_id", row, ENVIRONMENTS)

    def put_campaign(self, row: Mapping[str, object]) -> bool:
        """Writes a row of `campaigns` once; false if it was there."""
        return self._put(self._layout.campaigns, "campaign_id", row, CAMPAIGNS)

    def seal(self) -> None:
        """Makes what was appended visible to plain readers.

        Raises:
            StoreError: the parts could not be written. The rows stay in the journal; the next writer seals them.
        """
        segment, self._segment = self._segment, None
        if segment is None:
            return
        try:
            self.reports.append(seal_segment(self._layout, segment.path))
        finally:
            segment.close()

    def close(self) -> None:
        """Seals and lets go of the store.

        Raises:
            StoreError: as for `seal`.
        """
        self.seal()

    def _is_spent(self, segment: Segment) -> bool:
        return segment.is_broken or segment.rows >= self._seal_after_rows or segment.size_bytes >= SEAL_BYTES

    def _put(self, directory: Path, key: str, row: Mapping[str, object], schema: pa.Schema) -> bool:
        batch = _batch([row], schema)
        name = str(row[key])
        if not _SAFE_NAME.fullmatch(name):
            raise StoreError(f"{key} {name!r} cannot be the name of a file")
        target = directory / f"{name}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([batch]), sink, compression="zstd")
        with storage_errors(f"cannot write {target}"), exclusive(self._layout):
            if target.exists():
                return False
            publish(self._layout, memoryview(sink.getvalue()), target)
        return True


def _batch(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.RecordBatch:
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
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise StoreError(f"a row does not fit the store: {_culprit(rows, schema) or error}") from error


def _culprit(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> str | None:
    for field in schema:
        try:
            pa.array([row.get(field.name) for row in rows], field.type)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            return f"{field.name}: {error}"
    return None
