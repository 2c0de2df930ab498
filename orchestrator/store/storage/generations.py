"""Generations: what plain readers see, and how it changes without their noticing.

A generation is a directory of immutable files. A file is added to the current one in place. To take files away, or
to put others in their place, the next generation is built of hard links beside it, and the link `current` is switched:
whoever resolved the old one goes on reading it. It is deleted a grace period later.

Whatever changes a generation holds the store's lock (`layout.exclusive`). An `OSError` or `StoreError` here leaves all
as it was.
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from orchestrator.errors import StoreError
from orchestrator.files import at_once
from orchestrator.store.schema import SCHEMA_VERSION, SCHEMAS
from orchestrator.store.storage.layout import (
    FORMAT,
    Layout,
    exclusive,
    move,
    refuse_lost_link,
    storage_errors,
    store_id,
    sync,
    write_file,
)

KEEP_S: Final = 7 * 24 * 3600.0
"""How long a generation is kept after another took its place: longer than any query."""


class OutdatedError(StoreError):
    """What was to be replaced has been replaced by someone else."""


def prepare(layout: Layout, keep_s: float = KEEP_S) -> None:
    """Makes a store, and removes what killed processes left in the middle of their work.

    Raises:
        StoreError: the store cannot be written, or another version of taxmeter wrote it.
    """
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


def publish(layout: Layout, data: bytes | memoryview, table: str, relative_name: str) -> Path:
    """Adds a file to the current generation; readers see all of it at once. The caller holds the store's lock.

    Args:
        layout: where the store is.
        data: the whole file.
        table: `trials`, `systems`, `environments` or `campaigns`.
        relative_name: below the directory of the table, such as `month=2026-11/part-….parquet`; not there yet.
    """
    target = layout.current / table / relative_name
    if target.exists():
        raise FileExistsError(17, "a file of this name exists and files of a generation never change", str(target))
    _publish(layout, data, target)
    return target


def replace(layout: Layout, removed: Collection[str], added: Mapping[str, Path | bytes]) -> int:
    """Makes the next generation: the current one without some files and with others. The caller holds the store's lock.

    Args:
        layout: where the store is.
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
    clashing = sorted(set(kept) & set(added))
    if clashing:
        raise FileExistsError(17, "a file of this name exists and files of a generation never change", clashing[0])
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


def current_number(layout: Layout) -> int:
    """The number of the current generation; 0 if there is none yet. The link leads nowhere else (`StoreError`)."""
    if not layout.current_link.is_symlink():
        return 0
    target = layout.current
    if not target.name.isdigit() or target.parent != Path(os.path.realpath(layout.generations)):
        raise StoreError(f"{layout.current_link} leads to {target}; expected {layout.generations}/<number>: restore it")
    return int(target.name)


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
