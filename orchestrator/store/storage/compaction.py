"""Compaction: many small parts become few large ones, and readers do not notice.

Parts of one month are merged by size, ten of one tier at least, so that a row is rewritten about twice in its life. The
merging reads immutable files and holds no lock but its own; the switch to the new generation takes milliseconds.

Memory: one job holds less than 1.5 times `FULL_ROWS` rows and 1.5 times `FULL_BYTES`, and a sorted copy of one row
group: below 1 GiB, however much is stored.
"""

import math
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import StoreError
from orchestrator.files import at_once
from orchestrator.store.schema import KEYS
from orchestrator.store.storage.files import Layout, exclusive, storage_errors, sync_file
from orchestrator.store.storage.generations import KEEP_S, current_number, expire, prepare, replace
from orchestrator.store.storage.parts import Footer, part_name, read_footer, read_trials_checked, write_trials
from orchestrator.store.storage.small import MANY_FILES, merge_files
from orchestrator.store.storage.snapshot import Snapshot

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
    """Old generations that were deleted."""


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
        layout: where the store is.
        full: whether to merge all that is not full, and not only where it is worth it.
        keep_s: how long generations are kept after others took their place.

    Raises:
        CompactionBusyError: another compaction is under way.
        StoreError: a part is damaged, or the disk is full; what was merged until then stays, and nothing is lost.
    """
    prepare(layout, math.inf)
    with alone(layout), storage_errors(f"cannot compact {layout.root}"):
        before = layout.snapshot()
        rows = 0
        plan = _plan(before, full)
        for jobs in plan.values():
            rows += _merge_month(layout, jobs)
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


@contextmanager
def alone(layout: Layout) -> Iterator[None]:
    """Holds the lock of compactions, with an empty directory to work in.

    Raises:
        CompactionBusyError: another process has it.
    """
    with storage_errors(f"cannot compact {layout.root}"), at_once(layout.compaction_lock) as is_mine:
        if not is_mine:
            raise CompactionBusyError(f"{layout.root}: another compaction is under way; wait for its end")
        try:
            shutil.rmtree(layout.merging, ignore_errors=True)
            layout.merging.mkdir()
            yield
        finally:
            shutil.rmtree(layout.merging, ignore_errors=True)


def _plan(snapshot: Snapshot, full: bool) -> dict[str, list[list[_Part]]]:
    """Which parts become one, by month."""
    by_month: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for name, path in zip(snapshot.names("trials"), snapshot.parts(), strict=True):
        by_month[path.parent.name.partition("=")[2]].append((name, path))
    everything = full or len(snapshot.files["trials"]) > MANY_PARTS
    least = 2 if everything else TIER_PARTS
    plan = {}
    for month, named in sorted(by_month.items()):
        if len(named) < least:
            continue
        parts = [_Part(name, path, read_footer(path)) for name, path in named]
        jobs = [job for group in _groups(parts, everything) for job in _jobs(group)]
        if jobs:
            plan[month] = jobs
    return plan


def _groups(parts: Sequence[_Part], everything: bool) -> list[list[_Part]]:
    rest = [part for part in parts if not part.is_full]
    if everything:
        return [rest]
    tiers = ([part for part in rest if (part.footer.rows < SMALL_ROWS) == small] for small in (True, False))
    return [tier for tier in tiers if len(tier) >= TIER_PARTS]


def _jobs(group: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Parts that become one, oldest first, so that what was measured together stays together."""
    job: list[_Part] = []
    for part in sorted(group, key=lambda part: (part.path.stat().st_mtime_ns, part.name)):
        job.append(part)
        rows, size = sum(one.footer.rows for one in job), sum(one.footer.size_bytes for one in job)
        if rows >= FULL_ROWS or size >= FULL_BYTES:
            yield job
            job = []
    if len(job) > 1:
        yield job


def _merge_month(layout: Layout, jobs: Sequence[Sequence[_Part]]) -> int:
    added: dict[str, Path] = {}
    rows = 0
    for job in jobs:
        name = part_name(uuid.uuid4().hex)
        rows += _merge(job, layout.merging / name)
        added[f"{job[0].name.rpartition('/')[0]}/{name}"] = layout.merging / name
    with exclusive(layout):
        replace(layout, [part.name for job in jobs for part in job], added)
    return rows


def _merge(job: Sequence[_Part], target: Path) -> int:
    rows = read_trials_checked([part.path for part in job])
    expected = sum(part.footer.rows for part in job)
    write_trials(target, rows)
    sync_file(target)
    written = read_footer(target).rows
    if not len(rows) == expected == written:
        counts = f"{expected} rows became {written}"
        raise StoreError(f"cannot compact {job[0].path.parent}: {counts}; `taxmeter results verify` tells more")
    return written


def _size(snapshot: Snapshot) -> int:
    return sum(Path(path).stat().st_size for path in snapshot.files["trials"])
