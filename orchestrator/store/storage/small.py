"""The small tables: one row per system, environment and campaign, written once."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.store.schema import KEYS, SCHEMAS
from orchestrator.store.storage.files import Layout, exclusive, storage_errors
from orchestrator.store.storage.generations import publish, replace
from orchestrator.store.storage.parts import encode_small
from orchestrator.store.storage.snapshot import Snapshot
from orchestrator.store.validation import batch_of

MANY_FILES: Final = 16
"""More files of one small table are merged."""


def put_rows(layout: Layout, table: str, rows: Sequence[Mapping[str, object]]) -> int:
    """Writes those rows, no two with one key, of which there is none with their key; how many these were.

    Raises:
        StoreError: a row does not fit the store, or the disk refuses; nothing was written.
    """
    key = KEYS[table]
    given = pa.Table.from_batches([batch_of(rows, table)])
    with storage_errors(f"cannot write to {layout.root / table}"), exclusive(layout):
        snapshot = layout.snapshot()
        known = known_keys(snapshot, table)
        new = given.filter(pc.invert(pc.is_in(given[key], pa.array(known, pa.string()))))
        if len(new):
            name = new[key][0].as_py() if len(new) == 1 else f"added-{uuid.uuid4().hex}"
            publish(layout, encode_small(new), table, f"{name}.parquet")
    return len(new)


def change_rows(layout: Layout, table: str, changes: Mapping[str, Mapping[str, object]]) -> bool:
    """Changes columns of rows in one new generation; false if they have these values already.

    Args:
        layout: where the store is.
        table: `systems`, `environments` or `campaigns`.
        changes: by the key of a row the columns that change.

    Raises:
        StoreError: there is no such row, a column does not fit, or the disk refuses.
    """
    with storage_errors(f"cannot write {', '.join(sorted(changes)[:3])} to {layout.root / table}"), exclusive(layout):
        removed, added = rewritten(layout.snapshot(), table, changes)
        if added:
            replace(layout, removed, added)
    return bool(added)


def rewritten(
    snapshot: Snapshot, table: str, changes: Mapping[str, Mapping[str, object] | None]
) -> tuple[list[str], dict[str, Path | bytes]]:
    """The files that change with some rows, for `generations.replace`: those to remove, and those to add.

    Args:
        snapshot: of a local store.
        table: as for `change_rows`.
        changes: by the key of a row the columns that change; null if the row is to go.

    Raises:
        StoreError: there is no such row, a column does not fit, or a file cannot be read.
    """
    key, missing = KEYS[table], set(changes)
    removed: list[str] = []
    added: dict[str, Path | bytes] = {}
    for name, path in zip(snapshot.names(table), snapshot.files[table], strict=True):
        touched = missing.intersection(_keys(path, table)) if missing else set()
        if not touched:
            continue
        missing -= touched
        before = read_file(Path(path), table)
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
    """The keys of a small table.

    Raises:
        StoreError: a file cannot be read.
    """
    return [key for path in snapshot.files[table] for key in _keys(path, table)]


def merge_files(layout: Layout, table: str) -> int:
    """Makes one file of many; how many there were. The caller holds the store's lock.

    Raises:
        StoreError: a file cannot be read.
        OSError: the disk refuses.
    """
    snapshot = layout.snapshot()
    files = [Path(path) for path in snapshot.files[table]]
    if len(files) <= 1:
        return 0
    rows = pa.concat_tables([read_file(file, table) for file in files]).sort_by(KEYS[table])
    merged = {f"{table}/merged-{uuid.uuid4().hex}.parquet": bytes(encode_small(rows))}
    replace(layout, snapshot.names(table), merged)
    return len(files)


def read_file(path: Path, table: str) -> pa.Table:
    """The rows of a file.

    Raises:
        StoreError: the file cannot be read, is damaged, or has other columns.
    """
    try:
        return pq.ParquetFile(path, page_checksum_verification=True).read().cast(SCHEMAS[table])
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StoreError(f"cannot read {path}: {error}; `taxmeter results verify` tells more") from error


def _keys(path: str, table: str) -> list[str]:
    """The keys of the rows of a file.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        keys: list[str] = pq.ParquetFile(path).read(columns=[KEYS[table]])[KEYS[table]].to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    return keys
