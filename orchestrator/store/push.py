"""Pushing the sealed files of a store to an object store. Doing it again does what is left to do.

Objects first, the list last: a push that is killed in between has changed nothing for readers. Objects that the list no
longer names stay for a while, for readers that took the list before, and go when a later push is told to prune.
"""

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from orchestrator.errors import ConfigurationError, StoreError
from orchestrator.store.schema import SCHEMA_VERSION, SCHEMAS
from orchestrator.store.storage.generations import KEEP_S
from orchestrator.store.storage.layout import Layout, Snapshot, at_most_once, storage_errors, store_id
from orchestrator.store.storage.objects import (
    LATEST,
    OBJECTS,
    REMOTE_FORMAT,
    Latest,
    Location,
    StoredObject,
    read_latest,
)
from orchestrator.store.storage.parts import read_whole

_UPLOADS_AT_ONCE: Final = 4

Progress = Callable[[str, int], None]
"""Called with the key and the bytes of each file that went up, from several threads."""


@dataclass(frozen=True)
class PushReport:
    """What a push did."""

    uploaded: int
    uploaded_bytes: int
    present: int
    """Files that were there already, whole."""
    replaced: tuple[str, ...]
    """Keys of `uploaded` at which something else had stood."""
    generation: int
    published: bool
    """Whether readers see something new."""
    pruned: int
    superseded: int
    """Objects that are kept for readers of earlier lists."""


def push(
    layout: Layout,
    url: str,
    *,
    prune: bool = False,
    prune_after_s: float = KEEP_S,
    progress: Progress = lambda _key, _size: None,
) -> PushReport:
    """Makes what is sealed readable at `url`; rows that are still in the journal are not.

    Args:
        prune: delete objects that no list has named for `prune_after_s`.
        prune_after_s: seconds for which readers of an earlier list may go on.

    Raises:
        ConfigurationError: the URL is wrong, the service refuses, or the prefix belongs to another or a newer store.
        StoreError: the service does not answer, or another push of this store is running. What went up stays, and the
            same command goes on from there.
    """
    location = Location.of(url)
    # Before the lock: no file is left in a directory that is no store.
    _identity(layout, layout.snapshot())
    with at_most_once(layout.push_lock, StoreError(f"{layout.root} is being pushed by another process; wait for it")):
        return _push(layout, location, timedelta(seconds=prune_after_s) if prune else None, progress)


def _push(layout: Layout, location: Location, prune_after: timedelta | None, progress: Progress) -> PushReport:
    snapshot = layout.snapshot()
    identity, generation = _identity(layout, snapshot)
    previous = read_latest(location)
    _require_same_store(location, previous, identity, generation)
    there = _listing(location)
    files = {f"{OBJECTS}/{name}": path for table in SCHEMAS for name, path in snapshot.named(table).items()}
    with storage_errors(f"cannot read {snapshot.directory}"):
        objects = {key: StoredObject(key, path.stat().st_size) for key, path in files.items()}
    missing = [key for key, stored in objects.items() if key not in there or there[key].size != stored.bytes]
    _upload(location, {key: files[key] for key in missing}, progress)
    now = datetime.now(UTC)
    earlier: dict[str, datetime] = {}
    if previous is not None:
        earlier = {stored.key: now for stored in previous.objects()} | dict(previous.superseded)
    superseded = {key: since for key, since in earlier.items() if key in there and key not in objects}
    # What was uploaded and never listed is as old as it is.
    ages = {key: now - superseded.get(key, info.mtime or now) for key, info in there.items() if key not in objects}
    doomed = sorted(key for key, age in ages.items() if prune_after is not None and age >= prune_after)
    kept = {key: since for key, since in superseded.items() if key not in doomed}
    tables = {table: tuple(objects[key] for key in files if key.startswith(f"{OBJECTS}/{table}/")) for table in SCHEMAS}
    latest = Latest(REMOTE_FORMAT, identity, SCHEMA_VERSION, generation, tables, kept)
    if latest != previous:
        # Not a lock: it narrows the window in which two copies of one store could overwrite each other's list.
        if read_latest(location) != previous:
            raise StoreError(f"{location.url}: another copy of this store was pushed meanwhile; push again")
        _put(location, LATEST, pa.py_buffer(latest.encode()))
    for key in doomed:
        with location.errors(f"delete {key}"):
            location.filesystem.delete_file(location.path(key))
    return PushReport(
        len(missing),
        sum(objects[key].bytes for key in missing),
        len(objects) - len(missing),
        tuple(sorted(key for key in missing if key in there)),
        generation,
        latest != previous,
        len(doomed),
        len(kept),
    )


def _identity(layout: Layout, snapshot: Snapshot) -> tuple[str, int]:
    """The identity of a store and the number of its current generation."""
    if not layout.root.is_dir():
        raise ConfigurationError("no such store; name one with --results", file=layout.root)
    identity, generation = store_id(layout), PurePosixPath(snapshot.directory).name
    if identity is None or not generation.isdecimal():
        raise ConfigurationError(
            "is no whole store: STORE.json or the link `current` is missing; `taxmeter results compact` makes it whole",
            file=layout.root,
        )
    return identity, int(generation)


def _require_same_store(location: Location, previous: Latest | None, identity: str, generation: int) -> None:
    if previous is None:
        location.require_bucket()
    elif previous.store_id != identity:
        raise ConfigurationError(
            f"{location.url} belongs to store {previous.store_id}, and this one is {identity}: push to another prefix, "
            "or `taxmeter results merge` one into the other first"
        )
    elif previous.generation > generation:
        raise ConfigurationError(
            f"{location.url} has generation {previous.generation} of this store, and this copy has {generation} only: "
            "push from the newer copy, or push this one to another prefix"
        )


def _listing(location: Location) -> Mapping[str, pafs.FileInfo]:
    """Key to what the service says of it."""
    selector = pafs.FileSelector(location.path(OBJECTS), recursive=True, allow_not_found=True)
    with location.errors("list the objects"):
        found = location.filesystem.get_file_info(selector)
    return {info.path[len(location.prefix) + 1 :]: info for info in found if info.type == pafs.FileType.File}


def _upload(location: Location, files: Mapping[str, Path], progress: Progress) -> None:
    """Uploads files, a few at once; what is up stays when one fails. One that is damaged does not go up."""

    def upload(key: str, path: Path) -> None:
        content = read_whole(pafs.LocalFileSystem(), str(path))
        _put(location, key, content)
        with location.errors(f"look at {key}"):
            size = location.filesystem.get_file_info(location.path(key)).size
        if size != len(content):
            raise StoreError(
                f"{location.url}: {key} has {size} bytes after its upload, expected {len(content)}; push again"
            )
        progress(key, len(content))

    with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as pool:
        running = [pool.submit(upload, key, path) for key, path in files.items()]
        try:
            for future in running:
                future.result()
        except BaseException:
            # The others would each wait for a service that is gone.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _put(location: Location, key: str, content: pa.Buffer) -> None:
    """Makes an object appear whole."""
    filesystem, target = location.filesystem, location.path(key)
    is_directory = isinstance(filesystem, pafs.LocalFileSystem)
    written = location.path(f".{uuid.uuid4().hex}.tmp") if is_directory else target
    with location.errors(f"upload {key}"):
        if is_directory:
            filesystem.create_dir(str(PurePosixPath(target).parent), recursive=True)
        with filesystem.open_output_stream(written) as stream:
            stream.write(content)
        if is_directory:
            filesystem.move(written, target)
