"""Rewriting parts: compaction, by which many small parts become few large ones, and the end of a campaign's rows.

Parts of one month are merged by size, ten of one tier at least, so that a row is rewritten about twice in its life. The
merging reads immutable files and holds no lock but its own; the switch to the new generation takes milliseconds, and
readers do not notice.

Memory: one job holds the keys of its rows, one file, and a row group twice, however much is stored. Where rows are so
long that `FULL_BYTES` ends a job, all of it may be one row group.
"""

import math
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import ConfigurationError, StoreError, near_names
from orchestrator.store.schema import KEYS
from orchestrator.store.storage.generations import (
    KEEP_S,
    MANY_FILES,
    OutdatedError,
    current_number,
    expire,
    known_keys,
    merge_files,
    prepare,
    replace,
    rewritten,
)
from orchestrator.store.storage.journal import read_segment
from orchestrator.store.storage.layout import Layout, Snapshot, at_most_once, exclusive, storage_errors, sync
from orchestrator.store.storage.parts import (
    Footer,
    file_name,
    merged_groups,
    read_checked,
    read_footer,
    row_groups,
    write_trials,
)
from orchestrator.store.storage.seal import recover

FULL_ROWS: Final = 100_000
FULL_BYTES: Final = 256 * 2**20
"""Uncompressed. A merged part ends at so many rows or bytes; one of half as many is full, and never rewritten."""
SMALL_ROWS: Final = 10_000
"""Parts below belong to the first tier, others that are not full to the second."""
TIER_PARTS: Final = 10
"""So many of one tier are merged."""
MANY_PARTS: Final = 100
"""Of more parts than this, all that are not full are merged, whatever their tier."""


class CompactionBusyError(StoreError):
    """Another compaction of the same store is under way."""


@dataclass(frozen=True)
class CompactionReport:
    """What a compaction did."""

    months: tuple[str, ...]
    """In which parts were merged."""
    parts_before: int
    """Parts of `trials` that were live at the start."""
    parts_after: int
    rows: int
    """That were rewritten."""
    bytes_before: int
    """Of all live parts, on the disk."""
    bytes_after: int
    generation: int
    """The current one at the end."""
    expired: int


@dataclass(frozen=True)
class DropReport:
    """What was taken out."""

    rows: int
    """Of `trials`."""
    generation: int
    """The first one without them; the one before has them until it expires."""


@dataclass(frozen=True)
class _Part:
    name: str
    """Below the generation."""
    path: Path
    footer: Footer

    @property
    def is_full(self) -> bool:
        return self.footer.rows >= FULL_ROWS // 2 or self.footer.size_bytes >= FULL_BYTES // 2


def compact(layout: Layout, *, full: bool, keep_s: float = KEEP_S) -> CompactionReport:
    """Merges small parts, and small files of the other tables. Rows, and what readers see of them, stay the same.

    Args:
        full: whether to merge all that is not full, and not only where it is worth it.

    Raises:
        CompactionBusyError: another compaction is under way.
        StoreError: a part is damaged, or the disk is full; what was merged until then stays, and nothing is lost.
    """
    prepare(layout, math.inf)
    with _alone(layout), storage_errors(f"cannot compact {layout.root}"):
        before = layout.snapshot()
        plan = _plan(before, full)
        rows = sum(_merge_month(layout, jobs) for jobs in plan.values())
        with exclusive(layout):
            for table in KEYS:
                if len(before.files[table]) > (1 if full else MANY_FILES):
                    merge_files(layout, table)
            expired = expire(layout, keep_s)
            after, generation = layout.snapshot(), current_number(layout)
    return CompactionReport(
        months=tuple(plan),
        parts_before=len(before.files["trials"]),
        parts_after=len(after.files["trials"]),
        rows=rows,
        bytes_before=_size(before),
        bytes_after=_size(after),
        generation=generation,
        expired=expired,
    )


def drop(layout: Layout, campaign_id: str) -> DropReport:
    """Takes the rows of a campaign out. Systems and environments stay, for others may have run there too.

    Raises:
        ConfigurationError: there is no such campaign.
        StoreError: it is being written, a part is damaged, or the disk refuses; all is as it was.
    """
    prepare(layout, math.inf)
    recover(layout)
    with _alone(layout), storage_errors(f"cannot drop {campaign_id} from {layout.root}"):
        before = layout.snapshot().named("trials")
        rows = 0
        removed: list[str] = []
        added: dict[str, Path | bytes] = {}
        for name, path in before.items():
            if not read_footer(path).may_hold([campaign_id]):
                continue
            part = read_checked([path], "trials")
            kept = part.filter(pc.not_equal(part["campaign_id"], campaign_id))
            if len(kept) < len(part):
                rows += len(part) - len(kept)
                removed.append(name)
                added |= _rewritten(layout, name, row_groups(kept)) if len(kept) else {}
        with exclusive(layout):
            now = layout.snapshot()
            fresh = (path for name, path in now.named("trials").items() if name not in before)
            if any(read_footer(path).may_hold([campaign_id]) for path in fresh):
                raise OutdatedError(f"{layout.root}: rows were sealed meanwhile; do it again")
            for segment in layout.segments():
                if campaign_id in read_segment(segment).table["campaign_id"].to_pylist():
                    raise StoreError(f"campaign {campaign_id} is being written; stop its sweep first")
            known = known_keys(now, "campaigns")
            if campaign_id in known:
                gone, changed = rewritten(now, "campaigns", {campaign_id: None})
                removed, added = [*removed, *gone], added | changed
            elif not rows:
                hint = near_names(campaign_id, known)
                raise ConfigurationError(
                    f"{layout.root}: no {KEYS['campaigns']} {campaign_id}{hint}; `taxmeter results ls` lists them"
                )
            return DropReport(rows, replace(layout, removed, added))


@contextmanager
def _alone(layout: Layout) -> Iterator[None]:
    """Holds the lock of compactions, with an empty directory to work in."""
    busy = CompactionBusyError(f"{layout.root}: another compaction is under way; wait for its end")
    with at_most_once(layout.compaction_lock, busy), storage_errors(f"cannot compact {layout.root}"):
        try:
            shutil.rmtree(layout.merging, ignore_errors=True)
            layout.merging.mkdir()
            yield
        finally:
            shutil.rmtree(layout.merging, ignore_errors=True)


def _plan(snapshot: Snapshot, full: bool) -> dict[str, list[list[_Part]]]:
    """Which parts become one, by month."""
    by_month: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for name, path in snapshot.named("trials").items():
        by_month[path.parent.name.partition("=")[2]].append((name, path))
    everything = full or len(snapshot.files["trials"]) > MANY_PARTS
    least = 2 if everything else TIER_PARTS
    plan = {}
    for month, named in sorted(by_month.items()):
        if len(named) < least:
            continue
        rest = [part for part in (_Part(name, path, read_footer(path)) for name, path in named) if not part.is_full]
        tiers = [[part for part in rest if (part.footer.rows < SMALL_ROWS) == small] for small in (True, False)]
        groups = [rest] if everything else [tier for tier in tiers if len(tier) >= TIER_PARTS]
        if jobs := [job for group in groups for job in _jobs(group)]:
            plan[month] = jobs
    return plan


def _jobs(group: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Parts that become one, oldest first, so that what was measured together stays together."""
    job: list[_Part] = []
    rows = size = 0
    for part in sorted(group, key=lambda part: (part.path.stat().st_mtime_ns, part.name)):
        job.append(part)
        rows, size = rows + part.footer.rows, size + part.footer.size_bytes
        if rows >= FULL_ROWS or size >= FULL_BYTES:
            yield job
            job, rows, size = [], 0, 0
    if len(job) > 1:
        yield job


def _merge_month(layout: Layout, jobs: Sequence[Sequence[_Part]]) -> int:
    """Puts one part in the place of the parts of each job; how many rows they have."""
    added: dict[str, Path | bytes] = {}
    for job in jobs:
        aside = layout.merging / uuid.uuid4().hex
        merged = _rewritten(layout, job[0].name, merged_groups((part.path for part in job), aside))
        aside.unlink()
        written = sum(read_footer(path).rows for path in merged.values())
        expected = sum(part.footer.rows for part in job)
        if written != expected:
            counts = f"{expected} rows became {written}"
            raise StoreError(f"cannot compact {job[0].path.parent}: {counts}; `taxmeter results verify` tells more")
        added |= merged
    with exclusive(layout):
        replace(layout, [part.name for job in jobs for part in job], added)
    return sum(part.footer.rows for job in jobs for part in job)


def _rewritten(layout: Layout, name: str, groups: Iterable[pa.Table]) -> dict[str, Path]:
    """A new part of row groups, in the month of the part `name`; for `generations.replace`."""
    fresh = layout.merging / uuid.uuid4().hex
    write_trials(fresh, groups)
    sync(fresh)
    with pa.memory_map(str(fresh)) as content:
        return {f"{name.rpartition('/')[0]}/{file_name(content.read_buffer())}": fresh}


def _size(snapshot: Snapshot) -> int:
    return sum(path.stat().st_size for path in snapshot.parts())
