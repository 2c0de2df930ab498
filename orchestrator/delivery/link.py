"""A connection of a host to the driver, over which both have greeted."""

import socket
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.delivery.parcels import MAX_PARCEL_BYTES, Answer
from orchestrator.delivery.wire import (
    Frame,
    FrameReader,
    HostHandshake,
    Kind,
    RefusedError,
    WireError,
    decode_answer,
    encode_beat,
    parcel_header,
)

ANSWER_S: Final = 60.0
"""A driver that takes longer to answer is connected to anew: it seals the store meanwhile, or is gone."""

BEAT_TAKEN_S: Final = 5.0
"""A connection that does not take a few bytes for so long is given up for a new one."""

GREETING_S: Final = 10.0
"""A driver that listens greets at once."""

_POLL_S = 0.25
"""An interrupt of Ray reaches Python code only, no call of the kernel."""


@dataclass(frozen=True)
class Destination:
    """Where a host delivers to."""

    address: str
    port: int
    token: bytes = field(repr=False)
    spool: Path
    """Directory on the host."""


class Link:
    """A connection over which both sides have greeted."""

    def __init__(
        self, destination: Destination, host: str, *, greeting_s: float = GREETING_S, silence_s: float | None = None
    ) -> None:
        """Connects.

        Args:
            destination: the driver's place.
            host: the name of this host.
            greeting_s: for each step of the greeting.
            silence_s: a network that brings nothing through for so long ends the connection; by default that is for
                the kernel to decide, which takes minutes.

        Raises:
            RefusedError: the driver does not let this host in.
            WireError: what listens there is no driver.
            OSError: nothing listens there, or it does not answer in time.
        """
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()
        self._socket = socket.create_connection((destination.address, destination.port), timeout=greeting_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if silence_s is not None:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * silence_s))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            handshake = HostHandshake(destination.token, host)
            self._socket.sendall(handshake.hello(self._next(greeting_s)))
            handshake.check(self._next(greeting_s))
        except BaseException:
            self._socket.close()
            raise
        self._reader.limit_bytes = MAX_PARCEL_BYTES

    def send(self, sequence: int, parcel: bytes) -> None:
        """Sends a parcel."""
        self._socket.settimeout(ANSWER_S)
        self._socket.sendall(parcel_header(sequence, parcel) + parcel)

    def answer(self, sequence: int) -> Answer:
        """Waits for the answer to a parcel.

        Raises:
            RefusedError: the driver takes nothing more, ever.
            WireError: it says something else.
            OSError: the connection is gone, or the driver does not answer in time.
        """
        frame = self._next(ANSWER_S)
        if frame.kind is Kind.REFUSAL:
            raise RefusedError(frame.payload.decode("utf-8", "replace"))
        if frame.kind is not Kind.ANSWER or frame.sequence != sequence:
            raise WireError(f"the driver answered parcel {sequence} with {frame.kind.name.lower()} {frame.sequence}")
        return decode_answer(frame)

    def beat(self, task_id: str, *, is_last: bool) -> None:
        """Says that a task goes on, or that it has come to its end.

        Raises:
            OSError: the connection is gone, or takes nothing more.
        """
        self._socket.settimeout(BEAT_TAKEN_S)
        self._socket.sendall(encode_beat(task_id, is_last=is_last))

    def close(self) -> None:
        """Ends it."""
        self._socket.close()

    def _next(self, timeout_s: float) -> Frame:
        deadline = time.monotonic() + timeout_s
        self._socket.settimeout(_POLL_S)
        while not self._frames:
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no answer within {timeout_s:.0f} s") from None
                continue
            if not data:
                raise ConnectionResetError("the driver closed the connection")
            self._frames.extend(self._reader.feed(data))
        return self._frames.popleft()
