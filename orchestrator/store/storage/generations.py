"""Generations: what plain readers see, and how it changes without their noticing.

A generation is a directory of immutable files. A file is added to the current one in place. To take files away, or
to put others in their place, the next generation is built of hard links beside it, and the link `current` is switched:
whoever resolved the old one goes on reading it. It is deleted a grace period later.

Whatever changes a generation holds the store's lock (`layout.exclusive`). An `OSError` or `StoreError` here leaves all
as it was.

The small tables have one row per system, environment and campaign, written once.
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import StoreError
from orchestrator.files import at_once
from orchestrator.store.schema import KEYS, SCHEMA_VERSION, SCHEMAS
from orchestrator.store.storage.layout import (
    FORMAT,
    Layout,
    Snapshot,
    exclusive,
    move,
    refuse_lost_link,
    storage_errors,
    store_id,
    sync,
    write_file,
)
from orchestrator.store.storage.parts import encode_small, file_name, read_checked, read_columns
from orchestrator.store.validation import batch_of

KEEP_S: Final = 7 * 24 * 3600.0
"""How long a generation is kept after another took its place: longer than any query."""
MANY_FILES: Final = 16
"""More files of one small table are merged."""


class OutdatedError(StoreError):
    """What was to be replaced has been replaced by someone else."""


def prepare(layout: Layout, keep_s: float = KEEP_S) -> None:
    """Makes a store, and removes what killed processes left in the middle of their work."""
    action = f"cannot create the result store {layout.root}"
    with storage_errors(action):
        for directory in (layout.journal, layout.temporary, layout.generations):
            directory.mkdir(parents=True, exist_ok=True)
    with exclusive(layout), storage_errors(action):
        refuse_lost_link(layout)
        _clear_leftovers(layout)
        if store_id(layout) is None:
            document = {"format": FORMAT, "schema_version": SCHEMA_VERSION, "store_id": str(uuid.uuid4())}
            _publish(layout, f"{json.dumps(document)}\n".encode(), layout.description)
        if not layout.current_link.is_symlink():
            _switch(layout, _build(layout, 1, {}))
        for table in SCHEMAS:
            # For people: `results/trials` leads to the current generation.
            if not (layout.root / table).is_symlink():
                _link(layout, layout.root / table, Path("current") / table)
        expire(layout, keep_s)


def publish(layout: Layout, data: bytes | memoryview, table: str, partition: str = "") -> Path:
    """Adds a file to the current generation; readers see all of it at once. The caller holds the store's lock.

    Args:
        partition: of `trials`, such as `month=2026-11`.
    """
    target = layout.current / table / partition / file_name(data)
    _publish(layout, data, target)
    return target


def replace(layout: Layout, removed: Collection[str], added: Mapping[str, Path | bytes]) -> int:
    """Makes the next generation: the current one without some files and with others. The caller holds the store's lock.

    Args:
        removed: paths below the generation, such as `trials/month=2026-11/part-….parquet`.
        added: path below the generation to its content, or to a whole, synchronised file that is moved there.

    Returns:
        The number of the new generation.

    Raises:
        OutdatedError: a file to be removed is not there any more.
    """
    snapshot = layout.snapshot()
    files = {name: path for table in SCHEMAS for name, path in snapshot.named(table).items()}
    missing = sorted(set(removed) - set(files))
    if missing:
        raise OutdatedError(f"{layout.root}: {missing[0]} was replaced meanwhile; do it again")
    kept = {name: path for name, path in files.items() if name not in set(removed)}
    number = current_number(layout) + 1
    _switch(layout, _build(layout, number, {**kept, **added}))
    for content in added.values():
        if isinstance(content, Path):
            content.unlink()
    return number


def expire(layout: Layout, keep_s: float) -> int:
    """Deletes generations that were superseded so many seconds ago; how many. The caller holds the store's lock."""
    current = current_number(layout)
    older = sorted(number for number in _numbers(layout) if number <= current)
    now = time.time()
    # A generation was superseded when its successor was made, and that directory was not touched since.
    dead = [
        number for number, successor in pairwise(older) if now - _directory(layout, successor).stat().st_mtime > keep_s
    ]
    for number in dead:
        # Out of sight first: a reader that lists it sees all of it or nothing.
        aside = layout.temporary / f"expired-{number:06d}"
        _directory(layout, number).replace(aside)
        shutil.rmtree(aside)
    return len(dead)


def put_rows(layout: Layout, table: str, rows: Sequence[Mapping[str, object]]) -> int:
    """Writes those rows, no two with one key, of which there is none with their key, or nothing; how many."""
    key = KEYS[table]
    given = pa.Table.from_batches([batch_of(rows, table)])
    with storage_errors(f"cannot write to {layout.root / table}"), exclusive(layout):
        known = known_keys(layout.snapshot(), table)
        new = given.filter(pc.invert(pc.is_in(given[key], pa.array(known, pa.string()))))
        if len(new):
            publish(layout, encode_small(new), table)
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
        changes: by the key of a row the columns that change; null if the row is to go.
    """
    key, missing = KEYS[table], set(changes)
    changed = {name for columns in changes.values() for name in columns or ()}
    # A plan may have a hundred megabytes: what stays is neither decoded nor judged again
    stays = [field.name for field in SCHEMAS[table] if field.nullable and field.name not in changed]
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
        short = old.drop_columns(stays).to_pylist()
        rows = [{**row, **columns} for row in short if (columns := changes[row[key]]) is not None]
        new = pa.Table.from_batches([batch_of(rows, table)])
        kept = old.filter(pc.is_in(old[key], new[key]))
        for column in stays:
            new = new.set_column(new.column_names.index(column), SCHEMAS[table].field(column), kept[column])
        if new.equals(old):
            continue
        removed.append(name)
        after = pa.concat_tables([before.filter(pc.invert(is_touched)), new])
        if len(after):
            added |= _small_file(table, after)
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
    replace(layout, files, _small_file(table, rows))


def current_number(layout: Layout) -> int:
    """The number of the current generation; 0 if there is none yet. The link leads nowhere else (`StoreError`)."""
    if not layout.current_link.is_symlink():
        return 0
    target = layout.current
    if not target.name.isdigit() or target.parent != Path(os.path.realpath(layout.generations)):
        raise StoreError(f"{layout.current_link} leads to {target}; expected {layout.generations}/<number>: restore it")
    return int(target.name)


def _small_file(table: str, rows: pa.Table) -> dict[str, Path | bytes]:
    content = bytes(encode_small(rows))
    return {f"{table}/{file_name(content)}": content}


def _publish(layout: Layout, data: bytes | memoryview, target: Path) -> None:
    temporary = layout.temporary / target.name
    try:
        write_file(temporary, data)
        move(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _build(layout: Layout, number: int, files: Mapping[str, Path | bytes]) -> Path:
    """Builds a generation out of sight. Files are linked, contents written."""
    place = layout.temporary / f"generation-{number:06d}"
    # Nobody else holds the lock: who began this generation was killed, or met a full disk.
    for leftover in (place, _directory(layout, number)):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        directories = sorted({place, *(place / table for table in SCHEMAS), *((place / name).parent for name in files)})
        for directory in directories:
            directory.mkdir()
        for name, content in files.items():
            if isinstance(content, Path):
                os.link(content, place / name)
            else:
                write_file(place / name, content)
        for directory in directories:
            sync(directory)
        move(place, _directory(layout, number))
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return _directory(layout, number)


def _switch(layout: Layout, generation: Path) -> None:
    """Makes a generation the current one."""
    _link(layout, layout.current_link, generation.relative_to(layout.root))


def _link(layout: Layout, link: Path, target: Path) -> None:
    temporary = layout.temporary / link.name
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    move(temporary, link)


def _clear_leftovers(layout: Layout) -> None:
    """Removes what was never finished. Under the store's lock nobody is in the middle of anything but a compaction."""
    for leftover in layout.temporary.iterdir():
        if leftover == layout.merging:
            with at_once(layout.compaction_lock) as is_mine:
                if is_mine:
                    # A compaction that ended just now has removed it itself.
                    shutil.rmtree(leftover, ignore_errors=True)
        elif leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
    current = current_number(layout)
    for number in _numbers(layout):
        if number > current:
            shutil.rmtree(_directory(layout, number))


def _numbers(layout: Layout) -> list[int]:
    return [int(path.name) for path in layout.generations.iterdir() if path.name.isdigit()]


def _directory(layout: Layout, number: int) -> Path:
    return layout.generations / f"{number:06d}"
