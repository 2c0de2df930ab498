"""From journal to Parquet: sorted, immutable parts that plain readers see all at once.

Rows that are sealed already, in whatever part, are left out. A crash between the rename of a part and the deletion of
the journal is therefore repaired by doing the same again, even if the part was compacted.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.store.schema import ROW_KEY
from orchestrator.store.storage.generations import publish
from orchestrator.store.storage.journal import lock_leftover, put_aside, read_segment
from orchestrator.store.storage.layout import Layout, exclusive, remove, storage_errors
from orchestrator.store.storage.parts import encode_trials, read_columns


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
    with storage_errors(f"cannot seal {segment}"):
        content = read_segment(segment)
        before = layout.snapshot().named("trials")
        rows = new_rows(content.table, before.values())
        parts = list(_encoded(rows))
        with exclusive(layout):
            # What others sealed since then is compared here, where nobody can seal.
            now = layout.snapshot().named("trials")
            new = new_rows(rows, [now[name] for name in now.keys() - before.keys()])
            if len(new) < len(rows):
                rows, parts = new, list(_encoded(new))
            for month, data in parts:
                publish(layout, data, "trials", f"month={month}")
            quarantined = put_aside(layout, segment) if content.damage is not None else None
            if quarantined is None:
                remove(segment)
    duplicates = len(content.table) - len(rows)
    return SealReport(segment.name, len(rows), duplicates, content.damage, quarantined)


def recover(layout: Layout) -> tuple[SealReport, ...]:
    """Seals what writers left behind that were killed; leaves living writers alone."""
    reports = []
    for segment in layout.segments():
        with storage_errors(f"cannot open {segment}"):
            descriptor = lock_leftover(segment)
        if descriptor is not None:
            try:
                reports.append(seal_segment(layout, segment))
            finally:
                os.close(descriptor)
    return tuple(reports)


def new_rows(rows: pa.Table, parts: Collection[Path]) -> pa.Table:
    """Those of some rows of `trials` that are in none of some parts, in order, the first of each key."""
    unique = without_duplicates(rows)
    if not len(unique) or not parts:
        return unique
    # A trial's identity has its campaign in it: equal rows are of one campaign, and statistics leave out other parts.
    campaigns, names = (pc.unique(unique[column]) for column in ("campaign_id", "trial_id"))
    same = pc.field("campaign_id").isin(campaigns) & pc.field("trial_id").isin(names)
    sealed = set(row_keys(read_columns(parts, "trials", ROW_KEY, same)))
    return unique.filter(pa.array([key not in sealed for key in row_keys(unique)], pa.bool_())) if sealed else unique


def without_duplicates(rows: pa.Table) -> pa.Table:
    """The first row of each key, in order."""
    numbered = rows.select(list(ROW_KEY)).append_column("row", pa.array(range(len(rows)), pa.int64()))
    first = numbered.group_by(list(ROW_KEY)).aggregate([("row", "min")])["row_min"]
    return rows if len(first) == len(rows) else rows.take(first.sort())


def row_keys(rows: pa.Table) -> Iterable[tuple[str, int]]:
    """The keys of rows of `trials`."""
    return zip(*(rows[name].to_pylist() for name in ROW_KEY), strict=True)


def _encoded(rows: pa.Table) -> Iterator[tuple[str, memoryview]]:
    """The rows of each month as a part."""
    months = pc.strftime(rows["started_at"].cast(pa.timestamp("us")), format="%Y-%m")
    named = sorted(pc.unique(months).to_pylist())
    for month in named:
        yield month, encode_trials(rows.filter(pc.equal(months, month)) if len(named) > 1 else rows)
