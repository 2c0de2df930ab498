"""How a host and the driver talk: frames over one TCP connection, after both have proven to know the token.

The driver speaks first:

    driver  CHALLENGE  magic, version, a random number
    host    HELLO      version, schema, a random number, proof, its name
    driver  WELCOME    proof                     or REFUSAL: a reason, and the end
    host    PARCEL     rows, under a number of the host's choice
    driver  ANSWER     outcome and reason, under the same number
    host    BEAT       a task of the host, and whether it goes on; nobody answers

A proof is an HMAC of both random numbers, so that the token itself is never sent and nothing said once can be said
again. Frames are not encrypted: a network that is not trusted wants a tunnel, as the rest of a cluster does.
"""

import hashlib
import hmac
import secrets
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from orchestrator.delivery.parcels import Answer, Outcome, schema_fingerprint
from orchestrator.errors import InfrastructureError

PROTOCOL_VERSION: Final = 2
MAX_GREETING_BYTES: Final = 1024
"""Of a frame of anyone who has not proven to know the token."""

MAX_REASON_BYTES: Final = 2048

_MAGIC = b"taxmeter-rows"
_HEADER = struct.Struct(">BQII")
_NUMBER_BYTES = 32
_CHALLENGE = struct.Struct(f">{len(_MAGIC)}sH{_NUMBER_BYTES}s")
_HELLO = struct.Struct(f">H32s{_NUMBER_BYTES}s32s")
_MAX_NAME_BYTES = 256


class WireError(InfrastructureError):
    """The other side does not speak as agreed; the connection is of no use any more."""


class RefusedError(WireError):
    """The driver does not take this host's rows, and trying again would not change it."""


class Kind(IntEnum):
    """What a frame is."""

    CHALLENGE = 1
    HELLO = 2
    WELCOME = 3
    REFUSAL = 4
    PARCEL = 5
    ANSWER = 6
    BEAT = 7


@dataclass(frozen=True)
class Frame:
    """One message."""

    kind: Kind
    sequence: int
    payload: bytes


def encode_frame(kind: Kind, sequence: int, payload: bytes) -> bytes:
    """The bytes of a frame."""
    return _header(kind, sequence, payload) + payload


def encode_answer(sequence: int, answer: Answer) -> bytes:
    """The frame that tells what became of a parcel."""
    return encode_frame(Kind.ANSWER, sequence, bytes([answer.outcome.value]) + _text(answer.reason))


def decode_answer(frame: Frame) -> Answer:
    """What became of a parcel.

    Raises:
        WireError: the frame is no answer.
    """
    try:
        outcome = Outcome(frame.payload[0])
    except (IndexError, ValueError):
        raise WireError("an answer without a known outcome") from None
    return Answer(outcome, frame.payload[1:].decode("utf-8", "replace"))


def encode_beat(task_id: str, *, is_last: bool) -> bytes:
    """The frame that says that a task goes on, or has come to its end on its host."""
    return encode_frame(Kind.BEAT, 0, bytes([is_last]) + task_id.encode())


def decode_beat(frame: Frame) -> tuple[str, bool]:
    """The task of a beat, and whether it was its last.

    Raises:
        WireError: it is no beat.
    """
    try:
        return frame.payload[1:].decode(), bool(frame.payload[0])
    except (IndexError, UnicodeDecodeError):
        raise WireError("a beat of no task") from None


class FrameReader:
    """Cuts what a connection brings into frames, and never keeps more than one unfinished frame."""

    def __init__(self, limit_bytes: int = MAX_GREETING_BYTES) -> None:
        self.limit_bytes = limit_bytes
        """Longest payload that is taken from now on."""
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Takes what came and yields the frames that are complete with it.

        Raises:
            WireError: a frame is damaged, too long or of no known kind. No byte after it can be understood.
        """
        self._rest += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if len(self._rest) < _HEADER.size:
            return None
        kind, sequence, length, checksum = _HEADER.unpack_from(self._rest)
        if length > self.limit_bytes:
            raise WireError(f"a frame of {length} bytes where at most {self.limit_bytes} are allowed")
        end = _HEADER.size + length
        if len(self._rest) < end:
            return None
        with memoryview(self._rest) as view:
            payload = bytes(view[_HEADER.size : end])
        del self._rest[:end]
        if checksum != _checksum(kind, sequence, payload):
            raise WireError("a frame was damaged on its way")
        try:
            return Frame(Kind(kind), sequence, payload)
        except ValueError:
            raise WireError(f"a frame of unknown kind {kind}") from None


class DriverHandshake:
    """The driver's half of the greeting."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._number = secrets.token_bytes(_NUMBER_BYTES)

    def challenge(self) -> bytes:
        """The first frame of a connection."""
        return encode_frame(Kind.CHALLENGE, 0, _CHALLENGE.pack(_MAGIC, PROTOCOL_VERSION, self._number))

    def answer(self, hello: Frame) -> tuple[bytes, str]:
        """The frame that lets a host in, and the host's name.

        Raises:
            RefusedError: it is not let in; the message is for the host.
            WireError: the frame is no greeting.
        """
        if hello.kind is not Kind.HELLO or len(hello.payload) < _HELLO.size:
            raise WireError(f"a frame {hello.kind.name.lower()} in place of a greeting")
        version, schema, number, proof = _HELLO.unpack_from(hello.payload)
        name = hello.payload[_HELLO.size :]
        if version != PROTOCOL_VERSION:
            raise RefusedError(
                f"the host speaks version {version} of the protocol, the driver {PROTOCOL_VERSION}; "
                "install the same taxmeter on both"
            )
        if not hmac.compare_digest(proof, _proof(self._token, b"host", self._number, number, schema + name)):
            raise RefusedError("the host does not know the token of this campaign")
        if schema != schema_fingerprint():
            raise RefusedError("the host writes rows of another schema; install the same taxmeter on both")
        welcome = encode_frame(Kind.WELCOME, 0, _proof(self._token, b"driver", self._number, number, b""))
        return welcome, name.decode("utf-8", "replace")


class HostHandshake:
    """The host's half of the greeting."""

    def __init__(self, token: bytes, name: str) -> None:
        self._token = token
        self._name = name.encode()[:_MAX_NAME_BYTES]
        self._number = secrets.token_bytes(_NUMBER_BYTES)
        self._expected = b""

    def hello(self, challenge: Frame) -> bytes:
        """The answer to a challenge.

        Raises:
            RefusedError: the driver speaks another version.
            WireError: whoever listens there is no driver.
        """
        if challenge.kind is not Kind.CHALLENGE or len(challenge.payload) != _CHALLENGE.size:
            raise WireError("what listens there is no driver of taxmeter")
        magic, version, number = _CHALLENGE.unpack(challenge.payload)
        if magic != _MAGIC:
            raise WireError("what listens there is no driver of taxmeter")
        if version != PROTOCOL_VERSION:
            raise RefusedError(f"the driver speaks version {version} of the protocol, the host {PROTOCOL_VERSION}")
        schema = schema_fingerprint()
        proof = _proof(self._token, b"host", number, self._number, schema + self._name)
        self._expected = _proof(self._token, b"driver", number, self._number, b"")
        payload = _HELLO.pack(PROTOCOL_VERSION, schema, self._number, proof) + self._name
        return encode_frame(Kind.HELLO, 0, payload)

    def check(self, answer: Frame) -> None:
        """Makes sure that the driver let this host in, and knows the token itself.

        Raises:
            RefusedError: it did not let it in.
            WireError: it does not know the token.
        """
        if answer.kind is Kind.REFUSAL:
            raise RefusedError(answer.payload.decode("utf-8", "replace"))
        if answer.kind is not Kind.WELCOME or not hmac.compare_digest(answer.payload, self._expected):
            raise WireError("what listens there does not know the token of this campaign")


def encode_refusal(reason: str) -> bytes:
    """The frame after which the driver closes a connection."""
    return encode_frame(Kind.REFUSAL, 0, _text(reason))


def parcel_header(sequence: int, parcel: bytes) -> bytes:
    """What is sent before a parcel's own bytes, which may be too many to copy."""
    return _header(Kind.PARCEL, sequence, parcel)


def _header(kind: Kind, sequence: int, payload: bytes) -> bytes:
    return _HEADER.pack(kind, sequence, len(payload), _checksum(kind, sequence, payload))


def _checksum(kind: int, sequence: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(b"%d/%d" % (kind, sequence)))


def _proof(token: bytes, role: bytes, of_driver: bytes, of_host: bytes, said: bytes) -> bytes:
    version = PROTOCOL_VERSION.to_bytes(2, "big")
    return hmac.digest(token, b"/".join((role, version, of_driver, of_host, said)), hashlib.sha256)


def _text(reason: str) -> bytes:
    return reason.encode("utf-8", "replace")[:MAX_REASON_BYTES]
