"""A store that was pushed to an object store: immutable objects, and one small object that lists them.

    PREFIX/latest.json                                  what there is; replaced by one PUT
    PREFIX/parts/trials/month=2026-11/part-….parquet    as in the store that was pushed; never changed
    PREFIX/parts/{systems,environments,campaigns}/….parquet

Object stores have no links and no renames, but a PUT of one object is atomic everywhere, so that readers see all of a
push or nothing of it. Any file system of Arrow will do: S3 and what is compatible with it, Google Cloud Storage, a
directory. Credentials come from the environment alone.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Final, Self

import pyarrow.fs as pafs

from orchestrator.errors import ConfigurationError, StoreError
from orchestrator.store.objects.location import Location
from orchestrator.store.storage.snapshot import SCHEMAS, Snapshot

REMOTE_FORMAT: Final = 1
LATEST: Final = "latest.json"
QUESTIONS_AT_ONCE: Final = 16
OBJECTS: Final = "parts"
"""Directory of the objects below the prefix: all that stands in it and is not listed is old or unfinished."""


@dataclass(frozen=True)
class StoredObject:
    """One immutable object of a pushed store."""

    key: str
    """Below the prefix."""
    bytes: int
    rows: int
    sha256: str
    """Of its content."""


@dataclass(frozen=True)
class Latest:
    """What `latest.json` says."""

    store_id: str
    schema_version: int
    generation: int
    """Of the store when it was pushed."""
    tables: Mapping[str, tuple[StoredObject, ...]]
    superseded: Mapping[str, str] = field(default_factory=dict)
    """Keys that an earlier push listed and this one does not, with the time (UTC, ISO 8601) since when that is so."""

    def objects(self) -> Iterator[StoredObject]:
        """The objects of all tables."""
        for objects in self.tables.values():
            yield from objects

    def encode(self) -> bytes:
        """The text of `latest.json`."""
        return (json.dumps({"format": REMOTE_FORMAT, **asdict(self)}, indent=1) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, place: str) -> Self:
        """Reads the text of `latest.json`.

        Raises:
            StoreError: it is damaged, or another version of taxmeter wrote it.
        """
        try:
            document = json.loads(data)
            written = int(document["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(place, error) from error
        if written != REMOTE_FORMAT:
            knows = f"this taxmeter knows {REMOTE_FORMAT}"
            raise StoreError(f"{place}: format {written}, and {knows}: use the taxmeter that wrote it")
        try:
            return cls(
                str(document["store_id"]),
                int(document["schema_version"]),
                int(document["generation"]),
                {
                    str(table): tuple(StoredObject(**one) for one in objects)
                    for table, objects in document["tables"].items()
                },
                dict(document["superseded"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(place, error) from error


def read_latest(location: Location) -> Latest | None:
    """What was pushed last; null if nothing was.

    Raises:
        ConfigurationError: the service refuses.
        StoreError: it does not answer, or the list is damaged or of another version of taxmeter.
    """
    data = location.read(LATEST)
    return None if data is None else Latest.decode(data, f"{location.url}: {LATEST}")


def snapshot_at(url: str) -> Snapshot:
    """The store that was pushed to a URL. The size of every object is compared with the list.

    Raises:
        ConfigurationError: there is no bucket or no store, or the service refuses.
        StoreError: the service does not answer, or an object is missing or not as it was pushed.
    """
    location = Location.of(url)
    latest = require_latest(location)
    damages = differing_sizes(location, list(latest.objects()))
    if damages:
        raise StoreError(f"{location.url}: {damages[0]}; push the store again, or restore the object")
    files = {table: tuple(sorted(location.path(one.key) for one in latest.tables.get(table, ()))) for table in SCHEMAS}
    return Snapshot(location.path(OBJECTS), location.filesystem, files)


def require_latest(location: Location) -> Latest:
    """What was pushed last.

    Raises:
        ConfigurationError: there is no bucket or no store, or the service refuses.
        StoreError: the service does not answer, or the list is damaged.
    """
    latest = read_latest(location)
    if latest is None:
        location.require_bucket()
        raise ConfigurationError(
            f"{location.url}: no store was pushed there; `taxmeter results push {location.url}` does"
        )
    return latest


def differing_sizes(location: Location, objects: Sequence[StoredObject]) -> list[str]:
    """What is missing or has another size than the list says, one sentence each.

    Raises:
        ConfigurationError: the service refuses.
        StoreError: it does not answer.
    """
    paths = [location.path(one.key) for one in objects]
    # One request each, and Arrow would send one after the other.
    with location.errors("look at the objects"), ThreadPoolExecutor(QUESTIONS_AT_ONCE) as pool:
        found = list(pool.map(location.filesystem.get_file_info, paths))
    damages = []
    for one, info in zip(objects, found, strict=True):
        if info.type == pafs.FileType.NotFound:
            damages.append(f"{one.key} is missing")
        elif info.size != one.bytes:
            damages.append(f"{one.key} has {info.size} bytes, expected {one.bytes}")
    return damages


def differing_contents(url: str) -> list[str]:
    """Reads every object whole and compares it with its checksum; one sentence for each that differs or is missing.

    Raises:
        ConfigurationError: there is no bucket or no store, or the service refuses.
        StoreError: the service does not answer.
    """
    location = Location.of(url)
    objects = list(require_latest(location).objects())
    damages = []
    for one in objects:
        data = location.read(one.key)
        if data is None:
            damages.append(f"{one.key} is missing")
        elif hashlib.sha256(data).hexdigest() != one.sha256:
            what = "its checksum is not that of what was pushed; delete it and push the store again"
            damages.append(f"{one.key} is altered: {what}")
    return damages


def _damaged(place: str, error: Exception) -> StoreError:
    return StoreError(
        f"{place} is damaged ({error}): delete that object and push the store again; its parts stay as they are"
    )
