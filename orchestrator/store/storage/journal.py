"""The journal: what was acknowledged and is not sealed yet.

One segment per writer is an Arrow IPC stream of packed rows. Each record batch carries its number and a checksum,
because the format itself cannot tell a torn stream from a finished one, nor a flipped bit from data.

A row has far more columns than Arrow likes to be told of for one row: to read, check, join, write and forget them
costs more than all that they hold. Columns of one type are therefore packed into one column of lists, one list per
row, until many rows are together.
"""

import os
import uuid
import zlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from orchestrator.boundary import read_foreign_file
from orchestrator.errors import ForeignDataError, StoreError
from orchestrator.files import try_lock
from orchestrator.store.schema import TRIALS
from orchestrator.store.storage.layout import (
    SEGMENT,
    Layout,
    exclusive,
    first_line,
    move,
    storage_errors,
    sync,
    write_all,
)

_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What Arrow raises on damaged bytes."""
_SINK_BYTES = 2**18
_MOST_BYTES = 2**32
"""Of a segment: many times what a writer lets wait."""
_COALESCED = 64
"""So many batches are made one while they are read."""


def _packed() -> pa.Schema:
    alike: dict[tuple[pa.DataType, bool], list[str]] = {}
    for field in TRIALS:
        alike.setdefault((field.type, field.nullable), []).append(field.name)
    return pa.schema([pa.field(",".join(names), pa.list_(kind, len(names))) for (kind, _), names in alike.items()])


PACKED: Final = _packed()
"""Each column has the names of those that it holds; a column that every row has is apart from the others."""
_SEED = zlib.crc32("\n".join(f"{field.name}:{field.type}" for field in PACKED).encode())


class Segment:
    """A journal file that is being written and stays locked until it is closed."""

    def __init__(self, layout: Layout) -> None:
        """Starts a new segment. One is never opened again to be continued."""
        self.rows = 0
        self.size_bytes = 0
        self.is_broken = False
        self._batches = 0
        self._sink = _Sink()
        self._stream = pa.ipc.new_stream(self._sink.buffered, PACKED)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex}{SEGMENT}"
        self.path = layout.journal / name
        # Under the store's lock nobody takes the file for a leftover before this process has locked it.
        with storage_errors(f"cannot start a journal in {layout.root}"), exclusive(layout):
            self._descriptor = os.open(layout.temporary / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                try_lock(self._descriptor)
                move(layout.temporary / name, self.path)
            except OSError:
                os.close(self._descriptor)
                raise

    def append(self, batch: pa.RecordBatch) -> None:
        """Writes a batch of rows of `trials`; when this returns, it is on the disk.

        Raises:
            StoreError: nothing of the batch counts as written, and the segment takes no more.
        """
        packed = pack(batch)
        metadata = {"seq": str(self._batches), "crc32": str(_checksum(packed))}
        with storage_errors(f"cannot write {self.path}"):
            try:
                self._stream.write_batch(packed, custom_metadata=metadata)
                data = self._sink.take()
                write_all(self._descriptor, data)
                os.fdatasync(self._descriptor)
            except BaseException:
                # An interrupt tears a batch just as a full disk does, and nothing may stand behind a torn batch.
                self.is_broken = True
                os.ftruncate(self._descriptor, self.size_bytes)
                raise
        self.size_bytes += len(data)
        self._batches += 1
        self.rows += batch.num_rows

    def close(self) -> None:
        """Releases the file and its lock."""
        os.close(self._descriptor)


@dataclass(frozen=True)
class SegmentContent:
    """What could be read of a segment."""

    table: pa.Table
    damage: str | None
    """What could not be read, in words; null if every byte was."""


def read_segment(path: Path) -> SegmentContent:
    """Reads every batch that is whole and unaltered.

    Raises:
        FileNotFoundError: the segment was sealed in the meantime.
        StoreError: the file cannot be read.
    """
    try:
        data = read_foreign_file(path, _MOST_BYTES)
    except ForeignDataError as error:
        if path.is_file() and not path.is_symlink():
            raise StoreError(str(error)) from error
        return SegmentContent(TRIALS.empty_table(), str(error))
    if not data:
        # Arrow writes the header together with the first batch.
        return SegmentContent(TRIALS.empty_table(), None)
    source = pa.BufferReader(data)
    try:
        reader = pa.ipc.open_stream(source)
    except _UNREADABLE as error:
        return SegmentContent(TRIALS.empty_table(), f"the header is unreadable: {first_line(error)}")
    if not reader.schema.equals(PACKED):
        return SegmentContent(TRIALS.empty_table(), "the columns are not those of the store")
    batches, damage = _read_batches(reader)
    rest = len(data) - source.tell()
    if rest and not damage:
        damage.append(f"{rest} bytes after the last batch")
    return SegmentContent(pa.Table.from_batches(map(unpack, batches), TRIALS), "; ".join(damage) or None)


def lock_leftover(path: Path) -> int | None:
    """Opens and locks a segment whose writer is gone; null if it is alive or the segment is gone too."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with suppress(FileNotFoundError):
        if try_lock(descriptor) and os.path.samestat(path.stat(), os.fstat(descriptor)):
            return descriptor
    os.close(descriptor)
    return None


def put_aside(layout: Layout, path: Path) -> Path:
    """Moves a damaged segment to the quarantine, whole."""
    target = layout.quarantine / path.name
    move(path, target)
    sync(path.parent)
    return target


class _Sink:
    """A file for Arrow that keeps what is written until it is taken; its position never goes back."""

    closed = False

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._position = 0
        # Arrow writes each buffer of each column by itself: hundreds of calls for one row.
        self.buffered = pa.BufferedOutputStream(pa.PythonFile(self, "w"), _SINK_BYTES)

    def write(self, data: bytes) -> int:
        self._chunks.append(bytes(data))
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing to do: the segment writes."""

    def close(self) -> None:
        """Nothing to do: the segment owns the file."""

    def take(self) -> bytes:
        self.buffered.flush()
        taken = b"".join(self._chunks)
        self._chunks.clear()
        return taken


def _read_batches(reader: pa.RecordBatchStreamReader) -> tuple[list[pa.RecordBatch], list[str]]:
    pieces: list[pa.RecordBatch] = []
    batches: list[pa.RecordBatch] = []
    damage: list[str] = []
    number = 0
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            break
        except _UNREADABLE as error:
            damage.append(f"nothing readable after batch {number}: {first_line(error)}")
            break
        number += 1
        if not _is_intact(batch, metadata):
            damage.append(f"batch {number} is altered")
            continue
        batches.append(batch)
        if len(batches) == _COALESCED:
            # A batch costs some hundred objects, whether it has one row or thousands.
            pieces.append(pa.concat_batches(batches))
            batches.clear()
    return [*pieces, *batches], damage


def _is_intact(batch: pa.RecordBatch, metadata: pa.KeyValueMetadata | None) -> bool:
    claimed = dict(metadata or {}).get(b"crc32", b"")
    try:
        batch.validate(full=True)
        # Of what was decoded, not of the bytes: a header that is altered decodes the same bytes to something else.
        return bool(claimed == str(_checksum(batch)).encode())
    except _UNREADABLE:
        return False


def _checksum(batch: pa.RecordBatch) -> int:
    # Of the buffers alone: the header of a message may change with the version of Arrow, its body may not.
    return zlib.crc32(pa.ipc.read_message(batch.serialize()).body, _SEED)


def pack(trials: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `trials` in the schema `PACKED`."""
    columns = []
    for field in PACKED:
        names = field.name.split(",")
        values = pa.concat_arrays([trials.column(name) for name in names])
        columns.append(pa.FixedSizeListArray.from_arrays(_transposed(values, trials.num_rows), len(names)))
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)


def unpack(packed: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of `trials` that were packed."""
    rows = packed.num_rows
    columns = {}
    for field, column in zip(PACKED, packed.columns, strict=True):
        names = field.name.split(",")
        # `flatten` looks for lists that are null, which costs more than all else; there are none.
        values = _transposed(column.values.slice(column.offset * len(names), rows * len(names)), len(names))
        for place, name in enumerate(names):
            columns[name] = values.slice(place * rows, rows)
    return pa.RecordBatch.from_arrays([columns[name] for name in TRIALS.names], schema=TRIALS)


def _transposed(values: pa.Array, width: int) -> pa.Array:
    """A table that was written line by line, `width` values each, written column by column."""
    if width in (0, 1, len(values)):
        return values
    return values.take(pa.array(np.arange(len(values)).reshape(-1, width).T.ravel()))
