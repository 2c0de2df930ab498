"""The small tables: one row per system, environment and campaign, written once."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import StoreError
from orchestrator.store.schema import KEYS
from orchestrator.store.storage.generations import publish, replace
from orchestrator.store.storage.layout import Layout, Snapshot, exclusive, storage_errors
from orchestrator.store.storage.parts import encode_small, read_checked, read_columns
from orchestrator.store.validation import batch_of

MANY_FILES: Final = 16
"""More files of one small table are merged."""


def put_rows(layout: Layout, table: str, rows: Sequence[Mapping[str, object]]) -> int:
    """Writes those rows, no two with one key, of which there is none with their key, or nothing; how many."""
    key = KEYS[table]
    given = pa.Table.from_batches([batch_of(rows, table)])
    with storage_errors(f"cannot write to {layout.root / table}"), exclusive(layout):
        known = known_keys(layout.snapshot(), table)
        new = given.filter(pc.invert(pc.is_in(given[key], pa.array(known, pa.string()))))
        if len(new):
            name = new[key][0].as_py() if len(new) == 1 else f"added-{uuid.uuid4().hex}"
            publish(layout, encode_small(new), table, f"{name}.parquet")
    return len(new)


def change_rows(layout: Layout, table: str, changes: Mapping[str, Mapping[str, object]]) -> None:
    """Changes columns of rows in one new generation, by the key of a row; none if they have these values already."""
    with storage_errors(f"cannot write {', '.join(sorted(changes)[:3])} to {layout.root / table}"), exclusive(layout):
        removed, added = rewritten(layout.snapshot(), table, changes)
        if added:
            replace(layout, removed, added)


def rewritten(
    snapshot: Snapshot, table: str, changes: Mapping[str, Mapping[str, object] | None]
) -> tuple[list[str], dict[str, Path | bytes]]:
    """The files that change with some rows, for `generations.replace`: those to remove, and those to add.

    Args:
        snapshot: of a local store.
        table: as for `change_rows`.
        changes: by the key of a row the columns that change; null if the row is to go.
    """
    key, missing = KEYS[table], set(changes)
    removed: list[str] = []
    added: dict[str, Path | bytes] = {}
    for name, path in snapshot.named(table).items():
        touched = missing.intersection(read_columns([path], table, [key])[key].to_pylist()) if missing else set()
        if not touched:
            continue
        missing -= touched
        before = read_checked([path], table)
        is_touched = pc.is_in(before[key], pa.array(sorted(touched), pa.string()))
        old = before.filter(is_touched)
        rows = [{**row, **columns} for row in old.to_pylist() if (columns := changes[row[key]]) is not None]
        new = pa.Table.from_batches([batch_of(rows, table)])
        if new.equals(old):
            continue
        removed.append(name)
        after = pa.concat_tables([before.filter(pc.invert(is_touched)), new])
        if len(after):
            # A name of its own: who keeps copies by name must see that it is another file.
            stem = min(touched) if len(after) == 1 else "changed"
            added[f"{table}/{stem}-{uuid.uuid4().hex}.parquet"] = bytes(encode_small(after))
    if missing:
        raise StoreError(f"`{table}` has no row with {key} {', '.join(sorted(missing))}; put it there first")
    return removed, added


def known_keys(snapshot: Snapshot, table: str) -> list[str]:
    """The keys of a small table."""
    files = snapshot.named(table).values()
    keys: list[str] = read_columns(files, table, [KEYS[table]])[KEYS[table]].to_pylist() if files else []
    return keys


def merge_files(layout: Layout, table: str) -> None:
    """Makes one file of many. The caller holds the store's lock."""
    files = layout.snapshot().named(table)
    rows = read_checked(files.values(), table).sort_by(KEYS[table])
    replace(layout, files, {f"{table}/merged-{uuid.uuid4().hex}.parquet": bytes(encode_small(rows))})
