"""From a host to the disk of the driver and back: the product's server and committer, over TCP on this machine.

Clients are processes of their own that greet as hosts do and send parcels which were encoded beforehand: what encodes
them is spread over the hosts of a lab. Each waits for its answer before it sends the next.
"""

import multiprocessing
import secrets
import selectors
import socket
import time
import uuid
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from benchmarks.store.fleet import Campaign
from benchmarks.store.rows import campaign_rows
from orchestrator.delivery import Client, Committer, Destination, Outcome, Rows, Server, encode_rows
from orchestrator.delivery.wire import Frame, FrameReader, HostHandshake, decode_answer, parcel_header
from orchestrator.store import Store

_WARM_UP_S = 1.0
_MARK = b"0123456789abcdef0123456789abcdef"
"""The trial id in a prepared parcel, in place of which each parcel that is sent has one of its own."""

_PARCELS = 32


@dataclass(frozen=True)
class Acknowledged:
    """What the clients saw."""

    per_second: float
    """Of all clients together."""
    median_s: float
    p99_s: float
    trials: int


def acknowledge(directory: Path, clients: int, processes: int, seconds: float) -> Acknowledged:
    """Lets clients deliver into a new store, each as fast as it is answered.

    Args:
        directory: for the store.
        clients: connections.
        processes: among which they are divided.
        seconds: for which is measured, after a second of warm-up.
    """
    store = Store.open(directory / f"acknowledge-{clients}-{uuid.uuid4().hex[:8]}")
    token = secrets.token_bytes(32)
    context = multiprocessing.get_context("spawn")
    ready, begin = context.Barrier(processes + 1), context.Event()
    answers = context.Queue()
    shares = [clients // processes + (number < clients % processes) for number in range(processes)]
    with (
        store.writer() as writer,
        Committer(store, writer, print) as committer,
        Server(committer, token, print) as server,
    ):
        started = [
            context.Process(target=_clients, args=(server.port, token, share, seconds, ready, begin, answers))
            for share in shares
        ]
        for process in started:
            process.start()
        ready.wait(timeout=120)
        begin.set()
        durations = np.concatenate([answers.get(timeout=120 + seconds) for _ in started])
        for process in started:
            process.join()
    if len(store.trials(["trial_id"])) < len(durations):
        raise RuntimeError("fewer trials are stored than were acknowledged")
    return Acknowledged(
        len(durations) / seconds, float(np.median(durations)), float(np.quantile(durations, 0.99)), len(durations)
    )


def offer(directory: Path, trials: int) -> Acknowledged:
    """One host's whole client, which keeps each parcel on its own disk until it is answered."""
    store = Store.open(directory / f"offer-{uuid.uuid4().hex[:8]}")
    token = secrets.token_bytes(32)
    parcels = _parcels()
    durations = []
    with (
        store.writer() as writer,
        Committer(store, writer, print) as committer,
        Server(committer, token, print) as server,
    ):
        destination = Destination("127.0.0.1", server.port, token, directory / "spool")
        with Client(destination, "bench") as client:
            for number in range(trials):
                parcel = parcels[number % _PARCELS].replace(_MARK, uuid.uuid4().hex.encode())
                start = time.perf_counter()
                client.offer(parcel)
                durations.append(time.perf_counter() - start)
    total = sum(durations)
    return Acknowledged(trials / total, float(np.median(durations)), float(np.quantile(durations, 0.99)), trials)


def _parcels() -> list[bytes]:
    rows = campaign_rows(Campaign(0, 1)).slice(0, _PARCELS).to_pylist()
    return [encode_rows(Rows(trials=[{**row, "trial_id": _MARK.decode()}])) for row in rows]


def _clients(
    port: int,
    token: bytes,
    count: int,
    seconds: float,
    ready: "multiprocessing.synchronize.Barrier",
    begin: Event,
    answers: "multiprocessing.Queue[np.ndarray]",
) -> None:
    parcels = _parcels()
    connections = [_Connection(port, token, f"bench-{number}") for number in range(count)]
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    ready.wait()
    begin.wait()
    start = time.perf_counter()
    end = start + _WARM_UP_S + seconds
    durations = []
    for connection in connections:
        connection.send(parcels)
    waiting = count
    while waiting:
        for key, _ in selector.select(timeout=30):
            duration = key.data.take()
            if duration is None:
                continue
            now = time.perf_counter()
            # where a machine stalls for all of the time, the first answer after it counts
            if start + _WARM_UP_S <= now and (now < end or not durations):
                durations.append(duration)
            if now < end:
                key.data.send(parcels)
            else:
                waiting -= 1
    answers.put(np.array(durations))


class _Connection:
    def __init__(self, port: int, token: bytes, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self._sequence = 0
        self._sent_at = 0.0
        handshake = HostHandshake(token, name)
        self.socket.sendall(handshake.hello(self._greeting()))
        handshake.check(self._greeting())

    def send(self, parcels: list[bytes]) -> None:
        parcel = parcels[self._sequence % _PARCELS].replace(_MARK, uuid.uuid4().hex.encode())
        self._sequence += 1
        self._sent_at = time.perf_counter()
        self.socket.sendall(parcel_header(self._sequence, parcel) + parcel)

    def take(self) -> float | None:
        """Seconds since the parcel was sent, once it is stored."""
        for frame in self._reader.feed(self.socket.recv(65536)):
            answer = decode_answer(frame)
            if answer.outcome is not Outcome.STORED:
                raise RuntimeError(f"a parcel was not stored: {answer}")
            return time.perf_counter() - self._sent_at
        return None

    def _greeting(self) -> Frame:
        while True:
            for frame in self._reader.feed(self.socket.recv(65536)):
                return frame
