"""Pushing the sealed files of a store to an object store. Doing it again does what is left to do.

Objects first, the list last: a push that is killed in between has changed nothing for readers. Objects that the list no
longer names stay for a while, for readers that took the list before, and go when a later push is told to prune.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.fs as pafs

from orchestrator.errors import ConfigurationError, StoreError
from orchestrator.files import at_once
from orchestrator.store.objects.location import Location
from orchestrator.store.objects.remote import LATEST, OBJECTS, Latest, StoredObject, read_latest
from orchestrator.store.objects.uploading import File, Progress, content_of, described, put, upload
from orchestrator.store.schema import SCHEMA_VERSION, SCHEMAS
from orchestrator.store.storage.files import Layout, storage_errors
from orchestrator.store.storage.generations import KEEP_S
from orchestrator.store.storage.snapshot import Snapshot, store_id


@dataclass(frozen=True)
class PushReport:
    """What a push did."""

    uploaded: int
    """Files."""
    uploaded_bytes: int
    present: int
    """Files that were there already, whole."""
    replaced: tuple[str, ...]
    """Keys of `uploaded` at which something else had stood."""
    generation: int
    published: bool
    """Whether readers see something new."""
    pruned: int
    """Objects that were deleted."""
    superseded: int
    """Objects that are kept for readers of earlier lists."""


def push(
    layout: Layout,
    url: str,
    *,
    prune: bool = False,
    prune_after_s: float = KEEP_S,
    progress: Progress | None = None,
) -> PushReport:
    """Makes what is sealed readable at `url`; rows that are still in the journal are not.

    Args:
        layout: the store.
        url: see `location.Location.of`.
        prune: delete objects that no list has named for `prune_after_s`.
        prune_after_s: seconds for which readers of an earlier list may go on.
        progress: is told of each upload.

    Raises:
        ConfigurationError: the URL is wrong, the service refuses, or the prefix belongs to another or a newer store.
        StoreError: the service does not answer, or another push of this store is running. What went up stays, and the
            same command goes on from there.
    """
    location = Location.of(url)
    with _one_push(layout):
        snapshot = layout.snapshot()
        identity, generation = _identity(layout, snapshot)
        previous = read_latest(location)
        _require_same_store(location, previous, identity, generation)
        there = _listing(location)
        known = {one.key: one for one in previous.objects()} if previous is not None else {}
        files = _files(snapshot)
        states = {file.key: _present(file, there.get(file.key), known.get(file.key)) for file in files}
        missing = [file for file in files if states[file.key] is None]
        uploaded = upload(location, missing, progress)
        objects = {key: one for key, one in states.items() if one is not None} | {one.key: one for one in uploaded}
        now = datetime.now(UTC)
        superseded = _superseded(previous, there, objects, now)
        doomed = _doomed(there, objects, superseded, now - timedelta(seconds=prune_after_s)) if prune else []
        tables = {table: tuple(objects[file.key] for file in files if file.table == table) for table in SCHEMAS}
        kept = {key: since for key, since in superseded.items() if key not in doomed}
        latest = Latest(identity, SCHEMA_VERSION, generation, tables, kept)
        published = latest != previous
        if published:
            _publish(location, previous, latest)
        _delete(location, doomed)
    return PushReport(
        len(uploaded),
        sum(one.bytes for one in uploaded),
        len(files) - len(uploaded),
        tuple(sorted(one.key for one in uploaded if one.key in there)),
        generation,
        published,
        len(doomed),
        len(kept),
    )


@contextmanager
def _one_push(layout: Layout) -> Iterator[None]:
    if not layout.root.is_dir():
        raise ConfigurationError("no such store; name one with --results", file=layout.root)
    # Before the lock: no file is left in a directory that is no store.
    _identity(layout, layout.snapshot())
    with ExitStack() as held:
        with storage_errors(f"cannot lock the result store {layout.root}"):
            is_mine = held.enter_context(at_once(layout.root / "lock.push"))
        if not is_mine:
            raise StoreError(f"{layout.root} is being pushed by another process; wait for it and push again")
        yield


def _identity(layout: Layout, snapshot: Snapshot) -> tuple[str, int]:
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
        return
    if previous.store_id != identity:
        raise ConfigurationError(
            f"{location.url} belongs to store {previous.store_id}, and this one is {identity}: push to another prefix, "
            "or `taxmeter results merge` one into the other first"
        )
    if previous.generation > generation:
        raise ConfigurationError(
            f"{location.url} has generation {previous.generation} of this store, and this copy has {generation} only: "
            "push from the newer copy, or push this one to another prefix"
        )


def _files(snapshot: Snapshot) -> list[File]:
    return [
        File(table, Path(path), f"{OBJECTS}/{name}")
        for table in SCHEMAS
        for path, name in zip(snapshot.files[table], snapshot.names(table), strict=True)
    ]


def _listing(location: Location) -> Mapping[str, pafs.FileInfo]:
    """Key to what the service says of it."""
    selector = pafs.FileSelector(location.path(OBJECTS), recursive=True, allow_not_found=True)
    with location.errors("list the objects"):
        found = location.filesystem.get_file_info(selector)
    return {info.path[len(location.prefix) + 1 :]: info for info in found if info.type == pafs.FileType.File}


def _present(file: File, info: pafs.FileInfo | None, recorded: StoredObject | None) -> StoredObject | None:
    """The object of a file if it is there whole; files never change, so that their size tells."""
    with storage_errors(f"cannot read {file.path}"):
        if info is None or info.size != file.path.stat().st_size:
            return None
    # A push that was killed has listed nothing.
    return recorded or described(file, content_of(file.path))


def _publish(location: Location, previous: Latest | None, latest: Latest) -> None:
    # Not a lock: it narrows the window in which two copies of one store could overwrite each other's list.
    if read_latest(location) != previous:
        raise StoreError(f"{location.url}: another copy of this store was pushed meanwhile; push again")
    put(location, LATEST, pa.py_buffer(latest.encode()))


def _superseded(
    previous: Latest | None,
    there: Mapping[str, pafs.FileInfo],
    objects: Mapping[str, StoredObject],
    now: datetime,
) -> dict[str, str]:
    if previous is None:
        return {}
    fresh = {one.key: now.isoformat() for one in previous.objects()}
    known = fresh | dict(previous.superseded)
    return {key: since for key, since in known.items() if key in there and key not in objects}


def _doomed(
    there: Mapping[str, pafs.FileInfo],
    objects: Mapping[str, StoredObject],
    superseded: Mapping[str, str],
    before: datetime,
) -> list[str]:
    """Keys to delete: superseded before then, or uploaded before then and never listed."""

    def is_old(key: str) -> bool:
        since = datetime.fromisoformat(superseded[key]) if key in superseded else there[key].mtime
        return bool(since is not None and since <= before)

    return sorted(key for key in there if key not in objects and is_old(key))


def _delete(location: Location, keys: list[str]) -> None:
    for key in keys:
        with location.errors(f"delete {key}"):
            location.filesystem.delete_file(location.path(key))
