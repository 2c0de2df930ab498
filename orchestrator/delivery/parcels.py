"""A parcel: the rows that are delivered, stored and answered together, and their form between two machines.

A parcel is a few Arrow messages without their schemas, on which both sides agree beforehand: a row has more
columns than values of any length, and its schema is longer than itself. Trials are packed (`store.storage.packing`).
"""

import functools
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa

from orchestrator.errors import StoreError
from orchestrator.store import ENVIRONMENTS, SYSTEMS, TRIALS, Row
from orchestrator.store.schema.validation import batch_of
from orchestrator.store.storage.packing import PACKED, missing, pack, unpack, values_of

MAX_PARCEL_BYTES: Final = 64 * 2**20
"""A record of a runner is shorter: it may not write more than that as text."""

_SECTION = struct.Struct(">HxxxxxxQ")
"""Number of the table and length of its message, padded so that the message begins where Arrow wants it."""

_TABLES: Final = (SYSTEMS, ENVIRONMENTS, TRIALS)
"""In the order in which they are stored: nothing may refer to a row that is not there yet."""

_MESSAGES: Final = (SYSTEMS, ENVIRONMENTS, PACKED)
_EMPTY: Final = tuple(pa.RecordBatch.from_pylist([], schema) for schema in _MESSAGES)
_ALIGNMENT = 8
_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, MemoryError)
_KEY: Final = ("campaign_id", "trial_id", "attempt")
_TIMES: Final = tuple(field.name for field in TRIALS if pa.types.is_timestamp(field.type))


class ParcelError(StoreError):
    """What was to be stored is no parcel of the current schema; sending it again is of no use."""


class Outcome(Enum):
    """What became of a parcel."""

    STORED = 1
    DUPLICATE = 2
    """All its rows were stored before."""
    REFUSED = 3
    """It can never be stored."""
    LATER = 4
    """It cannot be stored now; its owner keeps it and sends it again."""


@dataclass(frozen=True)
class Answer:
    """What a parcel's owner is told."""

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Rows:
    """Rows that belong together, before they are a parcel."""

    trials: Sequence[Row] = ()
    systems: Sequence[Row] = ()
    environments: Sequence[Row] = ()


@dataclass(frozen=True)
class RowKey:
    """Identity of a row of `trials`."""

    campaign_id: str
    trial_id: str
    attempt: int


@dataclass(frozen=True)
class Parcel:
    """What was read from the bytes of one."""

    systems: pa.RecordBatch
    environments: pa.RecordBatch
    packed: pa.RecordBatch
    """The trials as they travel, which is how those of many parcels are joined."""

    @property
    def trials(self) -> pa.RecordBatch:
        """The trials in the schema of the store."""
        return unpack(self.packed)

    def keys(self) -> list[RowKey]:
        """Identities of the trials, in order."""
        return [RowKey(*values) for values in zip(*(values_of(self.packed, name) for name in _KEY), strict=True)]


def encode_rows(rows: Rows) -> bytes:
    """The bytes of a parcel.

    Raises:
        ParcelError: a row does not fit the schema, or all of them are too long.
    """
    sections: list[bytes | memoryview] = []
    for number, (schema, some) in enumerate(zip(_TABLES, (rows.systems, rows.environments, rows.trials), strict=True)):
        if some:
            batch = _batch(some, schema)
            message = (pack(batch) if schema is TRIALS else batch).serialize()
            padding = -message.size % _ALIGNMENT
            sections += [_SECTION.pack(number, message.size + padding), memoryview(message), bytes(padding)]
    parcel = b"".join(sections)
    if len(parcel) > MAX_PARCEL_BYTES:
        raise ParcelError(f"{len(parcel)} bytes of rows at once; at most {MAX_PARCEL_BYTES} can be delivered")
    return parcel


def decode_parcel(data: bytes) -> Parcel:
    """Reads a parcel and proves that each of its rows can be stored.

    Raises:
        ParcelError: it is damaged, of another schema, a value that every row has is missing, or a time is none that
            Python has (years 1 to 9999): whoever reads the store as Python values would fail at it.
    """
    batches = list(_EMPTY)
    position, last = 0, -1
    while position < len(data):
        if len(data) - position < _SECTION.size:
            raise ParcelError("a parcel ends in the middle of a section")
        number, length = _SECTION.unpack_from(data, position)
        position += _SECTION.size
        if not last < number < len(_TABLES) or length > len(data) - position:
            raise ParcelError(f"a parcel has a section {number} of {length} bytes, which cannot be")
        batches[number] = _read(memoryview(data)[position : position + length], _MESSAGES[number])
        position, last = position + length, number
    if last < 0:
        raise ParcelError("a parcel without rows")
    parcel = Parcel(*batches)
    if lacking := missing(parcel.packed):
        raise ParcelError(f"a row does not fit the store: {', '.join(lacking)} is null")
    for name in _TIMES:
        try:
            values_of(parcel.packed, name)
        except OverflowError:
            raise ParcelError(f"a row does not fit the store: {name} is not between the years 1 and 9999") from None
    return parcel


@functools.cache
def schema_fingerprint() -> bytes:
    """32 bytes that both sides of a delivery must have in common, for its messages carry no schema."""
    schemas = (*_TABLES, PACKED)
    fields = (f"{field.name}:{field.type}:{field.nullable}" for schema in schemas for field in schema)
    return hashlib.sha256("\n".join(fields).encode()).digest()


def _read(message: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        batch.validate(full=True)
    except _UNREADABLE as error:
        raise ParcelError(f"rows cannot be read: {_one_line(error)}") from error
    return batch


def _batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    try:
        return batch_of(rows, schema)
    except StoreError as error:
        raise ParcelError(str(error)) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
