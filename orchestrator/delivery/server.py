"""The driver's end of the delivery: takes parcels from many hosts, answers each when it is stored, and hears beats."""

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from orchestrator.delivery.beats import Heard, Listening
from orchestrator.delivery.committing import Committer, Tell
from orchestrator.delivery.parcels import MAX_PARCEL_BYTES, Answer
from orchestrator.delivery.wire import (
    DriverHandshake,
    Frame,
    FrameReader,
    Kind,
    RefusedError,
    WireError,
    decode_beat,
    encode_answer,
    encode_refusal,
)
from orchestrator.errors import InfrastructureError

GREETING_S: Final = 10.0
"""Within that a host has proven to know the token, or is let go."""

MAX_CONNECTIONS: Final = 512
MAX_WAITING_BYTES: Final = 128 * 2**20
"""Of parcels that wait for the disk, all hosts together; nothing is read from a host while there is more."""

_STEPS_TO_MEET: Final = 2
"""Of the loop, from accepting a connection to `connection_made`."""
LISTENS_EVERY_S: Final = 0.5
"""So often the server notes that it listens: a driver that was stopped itself has not heard, but was not spoken to."""

MAX_STRANGERS_TOLD: Final = 10
"""Whoever does not know the token can knock as often as he likes, but fills no terminal."""


class Server:
    """Listens from its creation on until it is closed; has a thread of its own."""

    def __init__(
        self, committer: Committer, token: bytes, tell: Tell, *, address: str = "127.0.0.1", port: int = 0
    ) -> None:
        """Starts to listen.

        Raises:
            InfrastructureError: the address cannot be listened on.
        """
        self._core = _Core(committer, token, tell)
        listening: Future[int] = Future()
        run = self._core.run(address, port, listening)
        self._thread = threading.Thread(target=asyncio.run, args=(run,), name="delivery", daemon=True)
        self._thread.start()
        try:
            self.port = listening.result()
        except OSError as error:
            self._thread.join()
            raise InfrastructureError(f"cannot listen for results on {address}:{port}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def beats(self) -> Heard:
        """When each task was heard of that is listened for. From any thread."""
        return self._core.listening.heard()

    def listen_for(self, task_id: str) -> None:
        """Notes the beats of a task from now on; those of other tasks are nothing to the driver."""
        self._core.listening.begin(task_id)

    def forget(self, task_id: str) -> None:
        """Ends `listen_for`."""
        self._core.listening.end(task_id)

    def close(self) -> None:
        """Ends all connections. What was not answered stays with its hosts."""
        self._core.end()
        self._thread.join()


class _Core:
    """What the connections share; everything but `answered` and `end` runs in the server's thread."""

    def __init__(self, committer: Committer, token: bytes, tell: Tell) -> None:
        self.committer = committer
        self.token = token
        self.connections: set[_Connection] = set()
        self.listening = Listening()
        self.waiting_bytes = 0
        self._tell = tell
        self._strangers = 0
        self._held: list[_Connection] = []
        self._answers: deque[tuple[_Connection, int, int, Answer]] = deque()
        self._is_scheduled = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    async def run(self, address: str, port: int, listening: "Future[int]") -> None:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(lambda: _Connection(self, loop), address, port, backlog=MAX_CONNECTIONS)
        except OSError as error:
            listening.set_exception(error)
            return
        with self._lock:
            self._loop = loop
        listening.set_result(server.sockets[0].getsockname()[1])
        while not self._ended.is_set():
            self.listening.tick()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), LISTENS_EVERY_S)
        with self._lock:
            self._loop = None
        # A closed server leaves open whom it has accepted but not met yet, so that it stops accepting first.
        for one in server.sockets:
            loop.remove_reader(one.fileno())
        for _ in range(_STEPS_TO_MEET):
            await asyncio.sleep(0)
        server.close()
        for connection in list(self.connections):
            connection.abort()

    def end(self) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._ended.set)

    def answered(self, connection: "_Connection", sequence: int, size: int, answer: Answer) -> None:
        """Takes the committer's answer, in its thread. The loop is woken once for all answers of a group."""
        with self._lock:
            self._answers.append((connection, sequence, size, answer))
            if self._loop is not None and not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon_threadsafe(self._send_answers)

    def hold(self, connection: "_Connection") -> None:
        """Reads nothing more from a connection until something was stored."""
        connection.transport.pause_reading()
        self._held.append(connection)

    def stranger(self, text: str) -> None:
        """Tells of a connection that was closed because of what came over it before its greeting was complete."""
        self._strangers += 1
        if self._strangers <= MAX_STRANGERS_TOLD:
            last = "; further ones are not told" if self._strangers == MAX_STRANGERS_TOLD else ""
            self._tell(text + last)

    def tell(self, text: str) -> None:
        self._tell(text)

    def _send_answers(self) -> None:
        with self._lock:
            self._is_scheduled = False
            answers, self._answers = self._answers, deque()
        failure = self.committer.failure
        for connection, sequence, size, answer in answers:
            self.waiting_bytes -= size
            if failure is None:
                connection.transport.write(encode_answer(sequence, answer))
            else:
                connection.refuse(str(failure))
        held, self._held = self._held, []
        for connection in held:
            if not connection.transport.is_closing():
                connection.transport.resume_reading()


class _Connection(asyncio.Protocol):
    """One host, or a stranger until it has greeted."""

    transport: asyncio.Transport

    def __init__(self, core: _Core, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._loop = loop
        self._handshake: DriverHandshake | None = DriverHandshake(core.token)
        self._reader = FrameReader()
        self._name = "an unknown host"
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        assert self._handshake is not None
        self.transport = transport
        if len(self._core.connections) >= MAX_CONNECTIONS:
            self._core.stranger(f"{self._peer()} was turned away: {MAX_CONNECTIONS} hosts are connected")
            transport.abort()
            return
        self._core.connections.add(self)
        self._deadline = self._loop.call_later(GREETING_S, transport.abort)
        transport.write(self._handshake.challenge())

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except RefusedError as error:
            self._core.stranger(f"{self._peer()} was refused: {error}")
            self.refuse(str(error))
        except WireError as error:
            tell = self._core.stranger if self._handshake else self._core.tell
            tell(f"the connection of {self._peer()} was closed: {error}")
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface
        self._core.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def refuse(self, reason: str) -> None:
        """Says why, and closes."""
        if not self.transport.is_closing():
            self.transport.write(encode_refusal(reason))
            self.transport.close()

    def abort(self) -> None:
        """Closes without a word."""
        self.transport.abort()

    def _take(self, frame: Frame) -> None:
        if self.transport.is_closing():
            return
        if self._handshake is not None:
            self._greet(self._handshake, frame)
        elif frame.kind is Kind.PARCEL:
            self._submit(frame)
        elif frame.kind is Kind.BEAT:
            task_id, is_last = decode_beat(frame)
            self._core.listening.hear(task_id, is_last=is_last)
        else:
            raise WireError(f"a frame {frame.kind.name.lower()} where only parcels and beats are expected")

    def _greet(self, handshake: DriverHandshake, hello: Frame) -> None:
        welcome, self._name = handshake.answer(hello)
        self._handshake = None
        self._reader.limit_bytes = MAX_PARCEL_BYTES
        if self._deadline is not None:
            self._deadline.cancel()
        if self._core.committer.failure is not None:
            self.refuse(str(self._core.committer.failure))
            return
        self.transport.write(welcome)

    def _submit(self, frame: Frame) -> None:
        size = len(frame.payload)
        self._core.waiting_bytes += size
        if self._core.waiting_bytes > MAX_WAITING_BYTES:
            self._core.hold(self)
        self._core.committer.submit(
            frame.payload, lambda answer: self._core.answered(self, frame.sequence, size, answer)
        )

    def _peer(self) -> str:
        peer = self.transport.get_extra_info("peername")
        return f"{self._name} ({peer[0]})" if peer else self._name
