"""From journal to Parquet: sorted, immutable parts that plain readers see all at once.

The parts are named after the segment, and rows that are sealed already are left out. A crash between the rename of a
part and the deletion of the journal is therefore repaired by doing the same again, even if the part was compacted.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.store.schema import SORT_ORDER
from orchestrator.store.storage.files import Layout, exclusive, storage_errors
from orchestrator.store.storage.generations import publish
from orchestrator.store.storage.journal import SegmentContent, discard, lock_leftover, put_aside, read_segment
from orchestrator.store.storage.known import SealedKeys
from orchestrator.store.storage.parts import encode_trials, part_name


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


def seal_segment(
    layout: Layout, segment: Path, known: SealedKeys, *, content: SegmentContent | None = None
) -> SealReport:
    """Makes parts of a segment and deletes it. The caller holds the segment's lock.

    Args:
        layout: where the store is.
        segment: the journal.
        known: which rows are sealed.
        content: of the segment; it is read if null.

    Raises:
        StoreError: the parts could not be written; the journal stays and is sealed another time.
    """
    with storage_errors(f"cannot seal {segment}"):
        content = content or read_segment(segment)
        before = layout.snapshot()
        rows = known.new_rows(content.table, before)
        parts = list(_encoded(rows))
        with exclusive(layout):
            # What others sealed since then is compared here, where nobody can seal.
            new = known.new_rows(rows, layout.snapshot(), besides=before.names("trials"))
            if len(new) < len(rows):
                rows, parts = new, list(_encoded(new))
            for month, data in parts:
                publish(layout, data, "trials", _part_name(layout, segment, month))
            quarantined = None
            if content.damage is None:
                discard(segment)
            else:
                quarantined = put_aside(layout, segment)
    duplicates = len(content.table) - len(rows)
    return SealReport(segment.name, len(rows), duplicates, content.damage, quarantined)


def recover(layout: Layout, known: SealedKeys | None = None) -> tuple[SealReport, ...]:
    """Seals what writers left behind that were killed; leaves living writers alone.

    Raises:
        StoreError: the store cannot be written.
    """
    keys = known or SealedKeys()
    reports = []
    for segment in layout.segments():
        with storage_errors(f"cannot open {segment}"):
            descriptor = lock_leftover(segment)
        if descriptor is None:
            continue
        try:
            with storage_errors(f"cannot read {segment}"):
                content = read_segment(segment)
            reports.append(seal_segment(layout, segment, keys, content=content))
        finally:
            os.close(descriptor)
    return tuple(reports)


def _part_name(layout: Layout, segment: Path, month: str) -> str:
    """Of a segment that was sealed before and has new rows all the same, the part has a name that is free."""
    stem = segment.stem.rpartition("-")[2]
    name, number = f"month={month}/{part_name(stem)}", 1
    while (layout.trials / name).exists():
        name, number = f"month={month}/{part_name(f'{stem}-{number}')}", number + 1
    return name


def _encoded(rows: pa.Table) -> Iterator[tuple[str, memoryview]]:
    if not len(rows):
        return
    ordered = rows.sort_by([(name, "ascending") for name in SORT_ORDER])
    months = pc.strftime(ordered["started_at"].cast(pa.timestamp("us")), format="%Y-%m")
    for month in sorted(pc.unique(months).to_pylist()):
        yield month, encode_trials(ordered.filter(pc.equal(months, month)))
