"""A store that was pushed to an object store: immutable objects, and one small object that lists them.

    PREFIX/latest.json                                  what there is; replaced by one PUT
    PREFIX/parts/trials/month=2026-11/part-….parquet    as in the store that was pushed; never changed
    PREFIX/parts/{systems,environments,campaigns}/part-….parquet

Object stores have no links and no renames, but a PUT of one object is atomic everywhere, so that readers see all of a
push or nothing of it. Any file system of Arrow will do: S3 and what is compatible with it, Google Cloud Storage, a
directory. Credentials come from the environment alone. A wrong URL and a service that refuses are the user's
(`ConfigurationError`), a service that does not answer and damage are not (`StoreError`).
"""

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
from pydantic import Field

from orchestrator.boundary import adapter_of, load_json, validated
from orchestrator.errors import ConfigurationError, ForeignDataError, StoreError
from orchestrator.store.schema import SCHEMAS
from orchestrator.store.storage.layout import Snapshot, first_line, is_url

REMOTE_FORMAT: Final = 1
LATEST: Final = "latest.json"
OBJECTS: Final = "parts"
"""Directory of the objects below the prefix: all that stands in it and is not listed is old or unfinished."""

_QUESTIONS_AT_ONCE: Final = 16
_MAX_BYTES: Final = 64 * 2**20
_KEY: Final = (
    rf"^{OBJECTS}/(trials/month=[0-9]{{4}}-[0-9]{{2}}|systems|environments|campaigns)/part-[0-9a-f]{{64}}\.parquet$"
)
"""A key names nothing above or beside the objects of a store."""
_REFUSED: Final = re.compile(
    r"ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|EXPIRED_TOKEN|UNRECOGNIZED_CLIENT"
    r"|MISSING_AUTHENTICATION_TOKEN|INVALID_SIGNATURE|HTTP status 40[013]"
)


@dataclass(frozen=True)
class Location:
    """A prefix of an object store, or a directory."""

    url: str
    """As it was given; it holds no credentials."""
    filesystem: pafs.FileSystem
    prefix: str
    """For `filesystem`; the first component is the bucket."""

    @classmethod
    def of(cls, url: str) -> Self:
        """Understands a URL; asks no server.

        Args:
            url: as Arrow understands it: `s3://BUCKET/PREFIX?endpoint_override=HOST:PORT&scheme=http&region=NAME`,
                `gs://BUCKET/PREFIX`, `file:///DIRECTORY`.
        """
        try:
            parts = urlsplit(url)
            has_credentials = "@" in parts.netloc
        except ValueError:
            raise ConfigurationError(
                "a URL of an object store that cannot be understood; see results/README.md"
            ) from None
        if has_credentials:
            # Whoever types one sees it again in the shell's history, in lists of processes and in logs.
            raise ConfigurationError(
                f"{parts.scheme}://…@{parts.netloc.rpartition('@')[2]}: take the credentials out of the URL and set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if not is_url(url):
            raise ConfigurationError(
                f"{url} is no URL; write {Path(url).absolute().as_uri()} for a directory, or s3://BUCKET/PREFIX"
            )
        asked = url
        if parts.scheme == "s3" and "allow_delayed_open=" not in url:
            # Small objects then go up in one PUT, whose checksum the service gives; else each is a multipart upload.
            asked += f"{'&' if '?' in url else '?'}allow_delayed_open=true"
        try:
            filesystem, path = pafs.FileSystem.from_uri(asked)
        except (pa.ArrowException, OSError) as error:
            raise ConfigurationError(
                f"{url}: {first_line(error)}; expected s3://BUCKET/PREFIX?endpoint_override=HOST:PORT&region=NAME, "
                "gs://BUCKET/PREFIX or file:///DIRECTORY"
            ) from error
        if not path.strip("/"):
            raise ConfigurationError(f"{url} names no bucket; expected {parts.scheme}://BUCKET/PREFIX")
        return cls(url, filesystem, path.rstrip("/"))

    def path(self, key: str) -> str:
        """The path of a key, for `filesystem`."""
        return f"{self.prefix}/{key}"

    def read(self, key: str, most: int | None = None) -> bytes | None:
        """The content of an object, or the first bytes of it; null if there is none."""
        with self.errors(f"read {key}"):
            try:
                with self.filesystem.open_input_stream(self.path(key)) as stream:
                    return bytes(stream.read(most))
            except FileNotFoundError:
                return None

    @contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """Turns an error of the service into one line for the user."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            text = first_line(error)
            if "NO_SUCH_BUCKET" in text:
                raise self._no_bucket() from error
            if refused := _REFUSED.search(text):
                # Without the service's own words: some repeat what they were sent.
                raise ConfigurationError(
                    f"{self.url}: the service refused to {action} ({refused[0]}): set AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to a key that may do that"
                ) from None
            raise StoreError(
                f"{self.url}: cannot {action}: {text}; mend that and run the same command again"
            ) from error

    def require_bucket(self) -> None:
        """Tells a bucket without a store from no bucket."""
        if isinstance(self.filesystem, pafs.LocalFileSystem):
            return
        with self.errors("look for the bucket"):
            info = self.filesystem.get_file_info(self.prefix.partition("/")[0])
        if info.type == pafs.FileType.NotFound:
            raise self._no_bucket()

    def _no_bucket(self) -> ConfigurationError:
        bucket = self.prefix.partition("/")[0]
        return ConfigurationError(f"{self.url}: there is no bucket {bucket}: create it, or mend the URL")


@dataclass(frozen=True)
class StoredObject:
    """One immutable object of a pushed store."""

    key: Annotated[str, Field(pattern=_KEY)]
    """Below the prefix; its name has the SHA-256 of its content."""
    bytes: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Latest:
    """What `latest.json` says."""

    format: int
    store_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    schema_version: int
    generation: Annotated[int, Field(ge=0)]
    """Of the store when it was pushed."""
    tables: Mapping[str, tuple[StoredObject, ...]]
    superseded: Mapping[str, datetime] = field(default_factory=dict)
    """Keys that an earlier push listed and this one does not, with the time since when that is so."""

    def __post_init__(self) -> None:
        for table, objects in self.tables.items():
            for stored in objects:
                if not stored.key.startswith(f"{OBJECTS}/{table}/"):
                    raise ValueError(f"{stored.key} is no object of {table}")

    def objects(self) -> list[StoredObject]:
        """The objects of all tables."""
        return [stored for objects in self.tables.values() for stored in objects]

    def encode(self) -> bytes:
        return adapter_of(Latest).dump_json(self, indent=1) + b"\n"

    @classmethod
    def decode(cls, data: bytes, place: str) -> "Latest":
        """Reads the text of `latest.json`: whoever may write there must not lead a reader to other objects."""
        try:
            document = load_json(data, place)
            written = document.get("format") if isinstance(document, dict) else None
            if isinstance(written, int) and written != REMOTE_FORMAT:
                knows = f"this taxmeter knows {REMOTE_FORMAT}"
                raise StoreError(f"{place}: format {written}, and {knows}: use the taxmeter that wrote it")
            return validated(Latest, data, LATEST)
        except ForeignDataError as error:
            raise StoreError(
                f"{place} is damaged ({error}): delete that object and push the store again; its parts stay as they are"
            ) from error


def read_latest(location: Location) -> Latest | None:
    """What was pushed last; null if nothing was."""
    data = location.read(LATEST, _MAX_BYTES)
    return None if data is None else Latest.decode(data, f"{location.url}: {LATEST}")


def snapshot_at(url: str) -> Snapshot:
    """The store that was pushed to a URL. The size of every object is compared with the list."""
    location = Location.of(url)
    latest = _require_latest(location)
    objects = latest.objects()
    # One request each, and Arrow would send one after the other.
    with location.errors("look at the objects"), ThreadPoolExecutor(_QUESTIONS_AT_ONCE) as pool:
        found = list(pool.map(location.filesystem.get_file_info, [location.path(stored.key) for stored in objects]))
    for stored, info in zip(objects, found, strict=True):
        is_there = info.type != pafs.FileType.NotFound
        if not is_there or info.size != stored.bytes:
            what = f"has {info.size} bytes, expected {stored.bytes}" if is_there else "is missing"
            raise StoreError(f"{url}: {stored.key} {what}; push the store again, or restore the object")
    files = {
        table: tuple(sorted(location.path(stored.key) for stored in latest.tables.get(table, ()))) for table in SCHEMAS
    }
    return Snapshot(location.path(OBJECTS), location.filesystem, files)


def _require_latest(location: Location) -> Latest:
    latest = read_latest(location)
    if latest is None:
        location.require_bucket()
        raise ConfigurationError(
            f"{location.url}: no store was pushed there; `taxmeter results push {location.url}` does"
        )
    return latest
