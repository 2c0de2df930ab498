"""Columns of rows that are in no store: the medians of turns, and the tax."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from orchestrator.analysis import tax, turns


def stored(columns: Collection[str]) -> list[str]:
    """The columns of `trials` that must be read to have some columns of rows."""
    more: list[str] = []
    if not {turns.WALL, turns.CPU}.isdisjoint(columns):
        more += turns.SOURCES
    if needs_tax(columns):
        more += tax.SOURCES
    made = {turns.WALL, turns.CPU, *tax.DERIVED.names} - {*tax.SOURCES}
    return [name for name in dict.fromkeys([*columns, *more]) if name not in made]


def needs_tax(columns: Collection[str]) -> bool:
    """Whether some columns of rows follow from floors, which are those of whole campaigns."""
    return not {*tax.DERIVED.names}.isdisjoint(columns)


def complete(trials: pa.Table, columns: Sequence[str], campaigns: pa.Table | None = None) -> pa.Table:
    """Trials with the columns of rows.

    Args:
        trials: with `stored(columns)`.
        columns: of rows, in their order.
        campaigns: all trials of their campaigns, with `tax.SOURCES`; null if `trials` is that.

    Raises:
        StoreError: a trial has another number of samples than its turns.
    """
    if not {turns.WALL, turns.CPU}.isdisjoint(columns):
        trials = turns.with_turns(trials)
    if needs_tax(columns):
        found = tax.derived(trials, campaigns)
        trials = trials.drop_columns([name for name in found.column_names if name in trials.column_names])
        for name in found.column_names:
            trials = trials.append_column(name, found[name])
    return trials.select(columns)
