"""A driver that is listened for, and a host that says what a test wants."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.delivery import Committer, Destination, Rows, Server, Spool, encode_rows
from orchestrator.delivery.wire import Frame, FrameReader, HostHandshake
from orchestrator.store import Store
from tests.storing import row

TOKEN = b"t" * 32


def parcel(name: str, **more: Any) -> bytes:
    return encode_rows(Rows(trials=[row(name, **more)]))


class Driver:
    """A store that is listened for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = Store.open(directory / "results")
        self.told: list[str] = []
        self.writer = self.store.writer()
        self.committer = Committer(self.store, self.writer, self.told.append)
        self.server = Server(self.committer, TOKEN, self.told.append)

    def destination(self, port: int | None = None, token: bytes = TOKEN, spool: str = "spool") -> Destination:
        return Destination("127.0.0.1", port or self.server.port, token, self.directory / spool)

    def restart(self) -> None:
        port = self.server.port
        self.server.close()
        self.server = Server(self.committer, TOKEN, self.told.append, port=port)

    def close(self) -> None:
        self.server.close()
        self.committer.close()
        self.writer.close()


def left_in(directory: Path) -> int:
    return len(Spool(directory).pending())


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 20 s"
        time.sleep(0.01)


class Raw:
    """A connection that says what a test wants."""

    def __init__(self, driver: Driver, token: bytes = TOKEN) -> None:
        self.socket = socket.create_connection(("127.0.0.1", driver.server.port), timeout=20)
        self._reader = FrameReader()
        handshake = HostHandshake(token, "raw")
        self.socket.sendall(handshake.hello(self.next()))
        handshake.check(self.next())

    def next(self) -> Frame:
        frames: list[Frame] = []
        while not frames:
            data = self.socket.recv(65536)
            assert data, "closed"
            frames = list(self._reader.feed(data))
        [frame] = frames
        return frame

    def is_closed(self) -> bool:
        with self.socket:
            try:
                return not self.socket.recv(100)
            except ConnectionResetError:
                return True
