"""Reading the store: sealed parts and what is still in the journal, each row once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import StoreError
from orchestrator.store.schema import TRIALS
from orchestrator.store.storage.files import Layout, storage_errors
from orchestrator.store.storage.journal import read_segment
from orchestrator.store.storage.known import read_keys, without_duplicates, without_keys
from orchestrator.store.storage.snapshot import Snapshot

_TRIES: Final = 5
"""How often the store may expire a generation while it is read: with any sensible grace period, never."""


@dataclass(frozen=True)
class View:
    """All rows of the store at one moment."""

    snapshot: Snapshot
    unsealed: pa.Table
    """Rows of `trials` that no plain reader sees yet; none of them is in the snapshot, and none is twice here."""


def current_view(layout: Layout) -> View:
    """What is in the store now. Sealed parts are unique among themselves; only the journal is compared with them.

    Raises:
        StoreError: a file cannot be read.
    """
    # The journal first: a segment that is sealed meanwhile is then met twice, never missed.
    rows = without_duplicates(_read_journal(layout))
    snapshot = layout.snapshot()
    if not len(rows) or not snapshot.files["trials"]:
        return View(snapshot, rows)
    # A trial's identity has its campaign in it: equal rows are of one campaign.
    campaigns, names = (pc.unique(rows[column]) for column in ("campaign_id", "trial_id"))
    same = pc.field("campaign_id").isin(campaigns) & pc.field("trial_id").isin(names)
    return View(snapshot, without_keys(rows, read_keys(snapshot.files["trials"], same)))


def read_trials(
    layout: Layout,
    columns: Sequence[str] | None = None,
    campaign_id: str | None = None,
    condition: pc.Expression | None = None,
) -> pa.Table:
    """All trials, with those that no plain reader sees yet.

    Args:
        layout: where the store is.
        columns: names of columns; all of them if null.
        campaign_id: only the trials of this campaign; all trials if null.
        condition: only the trials for which it is true; all if null.

    Raises:
        StoreError: a column is unknown, or a file cannot be read.
    """
    wanted = list(TRIALS.names if columns is None else columns)
    unknown = sorted(set(wanted) - set(TRIALS.names))
    if unknown:
        raise StoreError(f"the store has no column {', '.join(unknown)}")
    if campaign_id is not None:
        of_campaign = pc.field("campaign_id") == campaign_id
        condition = of_campaign if condition is None else of_campaign & condition
    return _steadily(layout, lambda: _select(current_view(layout), wanted, condition))


def read_dimension(layout: Layout, table: str) -> pa.Table:
    """One of the small tables, whole.

    Raises:
        StoreError: a file cannot be read.
    """
    return _steadily(layout, lambda: read_small(layout.snapshot(), table))


def _steadily(layout: Layout, read: Callable[[], pa.Table]) -> pa.Table:
    """Reads again if the generation that was read has been expired meanwhile."""
    for _ in range(_TRIES):
        before = layout.current
        try:
            return read()
        except StoreError:
            if layout.current == before:
                raise
    raise StoreError(f"{layout.root}: generations are expired faster than they can be read; keep them longer")


def read_small(snapshot: Snapshot, table: str) -> pa.Table:
    """One of the small tables of a snapshot, whole.

    Raises:
        StoreError: a file cannot be read.
    """
    try:
        return snapshot.dataset(table).to_table()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"cannot read {snapshot.directory}/{table}: {error}") from error


def _select(view: View, columns: list[str], condition: pc.Expression | None) -> pa.Table:
    schema = pa.schema([TRIALS.field(name) for name in columns], metadata=TRIALS.metadata)
    try:
        sealed = view.snapshot.dataset("trials").to_table(columns=columns, filter=condition).cast(schema)
        if not len(view.unsealed):
            return sealed
        rows = view.unsealed if condition is None else view.unsealed.filter(condition)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"cannot read {view.snapshot.directory}/trials: {error}") from error
    return pa.concat_tables([sealed, rows.select(columns).cast(schema)])


def _read_journal(layout: Layout) -> pa.Table:
    tables = [TRIALS.empty_table()]
    for segment in layout.segments():
        with storage_errors(f"cannot read {segment}"):
            try:
                tables.append(read_segment(segment).table)
            except FileNotFoundError:
                continue
    return pa.concat_tables(tables)
