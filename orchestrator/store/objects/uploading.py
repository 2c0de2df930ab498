"""Files that go up into an object store."""

import hashlib
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa

from orchestrator.errors import StoreError
from orchestrator.store.objects.location import Location
from orchestrator.store.objects.remote import StoredObject
from orchestrator.store.storage.checking import require_whole
from orchestrator.store.storage.files import storage_errors

_UPLOADS_AT_ONCE: Final = 4


@dataclass(frozen=True)
class File:
    """A sealed file of a store, and the key of its object."""

    table: str
    path: Path
    key: str


Progress = Callable[[str, int], None]
"""Called with the key and the bytes of each file that went up, from several threads."""


def upload(location: Location, files: Sequence[File], progress: Progress | None) -> list[StoredObject]:
    """Uploads files, a few at once.

    Raises:
        ConfigurationError: the service refuses.
        StoreError: it does not answer, or a file is damaged; what is up stays.
    """

    def one(file: File) -> StoredObject:
        uploaded = _upload(location, file)
        if progress is not None:
            progress(file.key, uploaded.bytes)
        return uploaded

    with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as pool:
        running = [pool.submit(one, file) for file in files]
        try:
            return [future.result() for future in running]
        except BaseException:
            # The others would each wait for a service that is gone.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def put(location: Location, key: str, content: pa.Buffer) -> None:
    """Makes an object appear whole.

    Raises:
        ConfigurationError: the service refuses.
        StoreError: it does not answer.
    """
    target = location.path(key)
    with location.errors(f"upload {key}"):
        if not location.is_a_directory:
            with location.filesystem.open_output_stream(target) as stream:
                stream.write(content)
            return
        location.filesystem.create_dir(str(PurePosixPath(target).parent), recursive=True)
        temporary = location.path(f".{uuid.uuid4().hex}.tmp")
        with location.filesystem.open_output_stream(temporary) as stream:
            stream.write(content)
        location.filesystem.move(temporary, target)


def described(file: File, content: pa.Buffer) -> StoredObject:
    """What the list says of a file.

    Raises:
        StoreError: it is damaged.
    """
    rows = require_whole(pa.BufferReader(content), file.path)
    return StoredObject(file.key, len(content), rows, hashlib.sha256(content).hexdigest())


def content_of(path: Path) -> pa.Buffer:
    """A file's content, mapped and not copied.

    Raises:
        StoreError: it cannot be read.
    """
    with storage_errors(f"cannot read {path}"), pa.memory_map(str(path)) as source:
        return source.read_buffer()


def _upload(location: Location, file: File) -> StoredObject:
    content = content_of(file.path)
    stored = described(file, content)
    put(location, file.key, content)
    with location.errors(f"look at {file.key}"):
        size = location.filesystem.get_file_info(location.path(file.key)).size
    if size != len(content):
        raise StoreError(
            f"{location.url}: {file.key} has {size} bytes after its upload, expected {len(content)}; push again"
        )
    return stored
