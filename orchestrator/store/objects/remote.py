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
from datetime import datetime
from typing import Annotated, Final

import pyarrow.fs as pafs
from pydantic import Field, TypeAdapter

from orchestrator.boundary import load_json
from orchestrator.errors import ConfigurationError, ForeignDataError, StoreError
from orchestrator.store.objects.location import Location
from orchestrator.store.schema import SCHEMAS
from orchestrator.store.storage.snapshot import Snapshot

REMOTE_FORMAT: Final = 1
LATEST: Final = "latest.json"
QUESTIONS_AT_ONCE: Final = 16
OBJECTS: Final = "parts"
"""Directory of the objects below the prefix: all that stands in it and is not listed is old or unfinished."""

_MAX_BYTES: Final = 64 * 2**20
_KEY: Final = (
    rf"^{OBJECTS}/(trials/month=[0-9]{{4}}-[0-9]{{2}}/part-[A-Za-z0-9-]+"
    r"|(systems|environments|campaigns)/[A-Za-z0-9][A-Za-z0-9._+-]*)\.parquet$"
)
"""A key names nothing above or beside the objects of a store."""


@dataclass(frozen=True)
class StoredObject:
    """One immutable object of a pushed store."""

    key: Annotated[str, Field(pattern=_KEY)]
    """Below the prefix."""
    bytes: Annotated[int, Field(ge=0)]
    rows: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Of its content."""


@dataclass(frozen=True)
class Latest:
    """What `latest.json` says."""

    store_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    schema_version: int
    generation: Annotated[int, Field(ge=0)]
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
    def decode(cls, data: bytes, place: str) -> "Latest":
        """Reads the text of `latest.json`: whoever may write there must not lead a reader to other objects.

        Raises:
            StoreError: it is damaged, lists what is no object of a store, or another version of taxmeter wrote it.
        """
        try:
            document = load_json(data, place)
            written = document.get("format") if isinstance(document, dict) else None
            if isinstance(written, int) and written != REMOTE_FORMAT:
                knows = f"this taxmeter knows {REMOTE_FORMAT}"
                raise StoreError(f"{place}: format {written}, and {knows}: use the taxmeter that wrote it")
            latest = _LATEST.validate_json(data, strict=True)
            for since in latest.superseded.values():
                datetime.fromisoformat(since)
            _require(written is not None, "it has no format")
            for table, objects in latest.tables.items():
                for stored in objects:
                    _require(stored.key.startswith(f"{OBJECTS}/{table}/"), f"{stored.key} is no object of {table}")
        except (ValueError, ForeignDataError) as error:
            problem = " ".join(str(error).split())
            raise StoreError(
                f"{place} is damaged ({problem}): delete that object and push the store again; its parts stay as they "
                "are"
            ) from error
        return latest


_LATEST: Final = TypeAdapter(Latest)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def read_latest(location: Location) -> Latest | None:
    """What was pushed last; null if nothing was.

    Raises:
        ConfigurationError: the service refuses.
        StoreError: it does not answer, or the list is damaged or of another version of taxmeter.
    """
    data = location.read(LATEST, _MAX_BYTES)
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
