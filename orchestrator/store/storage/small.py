"""The small tables: one row per system, environment and campaign, written once."""

import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.store.schema.validation import batch_of
from orchestrator.store.storage.files import Layout, exclusive, storage_errors
from orchestrator.store.storage.generations import publish, replace
from orchestrator.store.storage.parts import encode_small
from orchestrator.store.storage.snapshot import SCHEMAS, Snapshot

KEYS: Final[Mapping[str, str]] = {
    "systems": "system_id",
    "environments": "environment_id",
    "campaigns": "campaign_id",
}
MANY_FILES: Final = 16
"""More files of one small table are merged."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def put_row(layout: Layout, table: str, row: Mapping[str, object]) -> bool:
    """Writes a row once; false if there is one with its key.

    Raises:
        StoreError: the row does not fit the schema, or the disk refuses.
    """
    key = KEYS[table]
    batch = batch_of([row], SCHEMAS[table])
    name = str(row[key])
    if not _SAFE_NAME.fullmatch(name):
        raise StoreError(f"{key} {name!r} cannot be the name of a file")
    data = encode_small(pa.Table.from_batches([batch]))
    with storage_errors(f"cannot write {name} to {layout.root / table}"), exclusive(layout):
        if _file_with(layout.snapshot(), table, name) is not None:
            return False
        publish(layout, data, table, f"{name}.parquet")
    return True


def finish_row(layout: Layout, table: str, name: str, columns: Mapping[str, object]) -> bool:
    """Changes columns of a row; false if they have these values already.

    Raises:
        StoreError: there is no such row, a column does not fit, or the disk refuses.
    """
    key = KEYS[table]
    with storage_errors(f"cannot write {name} to {layout.root / table}"), exclusive(layout):
        snapshot = layout.snapshot()
        file = _file_with(snapshot, table, name)
        if file is None:
            raise StoreError(f"{layout.root / table} has no row with {key} {name}; put it there first")
        before = read_file(file, table)
        changed = [{**row, **columns} if row[key] == name else row for row in before.to_pylist()]
        after = pa.Table.from_batches([batch_of(changed, SCHEMAS[table])])
        if after.equals(before):
            return False
        old = f"{table}/{file.relative_to(Path(snapshot.directory) / table)}"
        # A name of its own: who keeps copies by name must see that it is another file.
        replace(layout, [old], {f"{table}/{name}-{uuid.uuid4().hex[:8]}.parquet": bytes(encode_small(after))})
    return True


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


def _file_with(snapshot: Snapshot, table: str, name: str) -> Path | None:
    """The file that has the row of this key."""
    files = [Path(path) for path in snapshot.files[table]]
    # Most files have one row and its name.
    for path in sorted(files, key=lambda path: not path.name.startswith(name)):
        try:
            keys = pq.ParquetFile(path).read(columns=[KEYS[table]])[KEYS[table]]
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"cannot read {path}: {error}") from error
        if name in keys.to_pylist():
            return path
    return None
