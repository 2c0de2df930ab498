"""From journal to Parquet: sorted, immutable parts that plain readers see all at once.

The names of the parts follow from the name of the segment. A crash between the rename of a part and the
deletion of the journal is therefore repaired by doing the same again.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.store.files import Layout, exclusive, publish, storage_errors
from orchestrator.store.journal import discard, lock_leftover, put_aside, read_segment
from orchestrator.store.reading import read_parts, without_duplicates
from orchestrator.store.schema import DICTIONARY_COLUMNS, ROW_KEY, SORT_ORDER, SPLIT_COLUMNS


@dataclass(frozen=True)
class SealReport:
    """What became of one segment of the journal."""

    segment: str
    rows: int
    duplicates: int
    """Rows that the store had already."""
    damage: str | None
    quarantined: Path | None
    """Where the damaged segment was put, whole."""


def seal_segment(layout: Layout, segment: Path) -> SealReport:
    """Makes parts of a segment and deletes it. The caller holds the segment's lock.

    Raises:
        StoreError: the parts could not be written; the journal stays and is sealed another time.
    """
    with storage_errors(f"cannot seal {segment}"), exclusive(layout):
        content = read_segment(segment)
        rows = _new_rows(layout, content.table, _part_prefix(segment))
        for number, (month, part) in enumerate(_by_month(rows)):
            target = layout.trials / f"month={month}" / f"{_part_prefix(segment)}{number:04d}.parquet"
            publish(layout, _parquet(part), target)
        quarantined = None
        if content.damage is None:
            discard(segment)
        else:
            quarantined = put_aside(layout, segment)
    duplicates = len(content.table) - len(rows)
    return SealReport(segment.name, len(rows), duplicates, content.damage, quarantined)


def recover(layout: Layout) -> tuple[SealReport, ...]:
    """Seals what writers left behind that were killed; leaves living writers alone.

    Raises:
        StoreError: the store cannot be written.
    """
    with storage_errors(f"cannot clear {layout.temporary}"), exclusive(layout):
        # Whoever writes there holds the same lock: what stands there now was never finished.
        for leftover in layout.temporary.iterdir():
            leftover.unlink()
    reports = []
    for segment in layout.segments():
        with storage_errors(f"cannot open {segment}"):
            descriptor = lock_leftover(segment)
        if descriptor is None:
            continue
        try:
            reports.append(seal_segment(layout, segment))
        finally:
            os.close(descriptor)
    return tuple(reports)


def _part_prefix(segment: Path) -> str:
    return f"part-{segment.stem.rpartition('-')[2]}-"


def _new_rows(layout: Layout, table: pa.Table, own_prefix: str) -> pa.Table:
    unique = without_duplicates(table)
    others = [part for part in layout.parts() if not part.name.startswith(own_prefix)]
    known = read_parts(others, list(ROW_KEY), pc.field("trial_id").isin(unique["trial_id"].unique()))
    if not len(known):
        return unique
    seen = set(zip(*(known[name].to_pylist() for name in ROW_KEY), strict=True))
    keys = zip(*(unique[name].to_pylist() for name in ROW_KEY), strict=True)
    return unique.filter(pa.array([key not in seen for key in keys]))


def _by_month(rows: pa.Table) -> list[tuple[str, pa.Table]]:
    ordered = rows.sort_by([(name, "ascending") for name in SORT_ORDER])
    months = pc.strftime(ordered["started_at"].cast(pa.timestamp("us")), format="%Y-%m")
    return [(month, ordered.filter(pc.equal(months, month))) for month in sorted(months.unique().to_pylist())]


def _parquet(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=3,
        use_dictionary=DICTIONARY_COLUMNS,
        column_encoding=dict.fromkeys(SPLIT_COLUMNS, "BYTE_STREAM_SPLIT"),
        write_page_index=True,
    )
    return memoryview(sink.getvalue())
