"""Hosts and the driver over real sockets: whatever is cut, restarted or forged, each row arrives once."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.delivery import Client, DeliveryError, Server, Spool, client, deliver_leftovers, server
from orchestrator.delivery.wire import Frame, HostHandshake, parcel_header
from orchestrator.errors import InfrastructureError, StoreError
from tests.delivering import TOKEN, Driver, Raw, left_in, parcel, wait_for
from tests.storing import names


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    one = Driver(tmp_path)
    yield one
    one.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", 0.2)


def test_rows_of_many_hosts_arrive_once_and_leave_their_spools(driver: Driver) -> None:
    def host(number: int) -> None:
        with Client(driver.destination(spool=f"spool-{number}"), f"h{number}") as one:
            for trial in range(20):
                one.offer(parcel(f"h{number}-{trial:02d}"))
                one.offer(parcel("everybody's"))
            one.flush()

    hosts = [threading.Thread(target=host, args=(number,)) for number in range(8)]
    for one in hosts:
        one.start()
    for one in hosts:
        one.join(60)
    expected = [f"h{number}-{trial:02d}" for number in range(8) for trial in range(20)]
    assert names(driver.store) == sorted([*expected, "everybody's"])
    assert sum(left_in(driver.directory / f"spool-{number}") for number in range(8)) == 0
    assert driver.told == []


def test_when_an_offer_returns_the_row_is_on_the_disk(driver: Driver) -> None:
    with Client(driver.destination(), "h1") as one:
        one.offer(parcel("a"))
        assert names(driver.store) == ["a"]


def test_without_a_driver_rows_wait_in_the_spool_and_the_task_ends_with_a_clear_problem(
    driver: Driver, impatient: None
) -> None:
    driver.server.close()
    with Client(driver.destination(), "h1", unreachable_s=0.5) as one:
        for name in ("a", "b"):
            one.offer(parcel(name))
        with pytest.raises(DeliveryError, match=r"2 records could not be delivered .*2 of them wait in .*/spool"):
            one.flush()
    assert left_in(driver.directory / "spool") == 2
    assert names(driver.store) == []


def test_a_driver_that_comes_back_gets_what_it_missed_in_order(driver: Driver, impatient: None) -> None:
    with Client(driver.destination(), "h1") as one:
        one.offer(parcel("a"))
        port = driver.server.port
        driver.server.close()
        one.offer(parcel("b"))
        one.offer(parcel("c"))
        assert names(driver.store) == ["a"]
        driver.server = Server(driver.committer, TOKEN, driver.told.append, port=port)
        one.flush()
    driver.close()
    assert names(driver.store) == ["a", "b", "c"]
    assert left_in(driver.directory / "spool") == 0


def test_a_restart_between_two_rows_is_not_noticed(driver: Driver) -> None:
    with Client(driver.destination(), "h1") as one:
        one.offer(parcel("a"))
        driver.restart()
        one.offer(parcel("b"))
        one.flush()
    assert names(driver.store) == ["a", "b"]


class Cutting(threading.Thread):
    """Stands between host and driver and cuts the first connection when `until` says so of what the driver said."""

    def __init__(self, port: int, until: int) -> None:
        super().__init__(daemon=True)
        self._target = port
        self._until = until
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0

    def run(self) -> None:
        while True:
            try:
                host, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            driver = socket.create_connection(("127.0.0.1", self._target))
            limit = self._until if self.connections == 1 else 10**9
            threading.Thread(target=self._forward, args=(host, driver, 10**9), daemon=True).start()
            threading.Thread(target=self._forward, args=(driver, host, limit), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, limit: int) -> None:
        with contextlib.suppress(OSError):  # the other direction has ended
            while limit > 0 and (data := source.recv(min(limit, 65536))):
                target.sendall(data)
                limit -= len(data)
        for one in (source, target):
            # a socket that another thread reads from is not closed by closing it
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_an_answer_that_is_lost_makes_a_duplicate_that_is_dropped(driver: Driver) -> None:
    greeting = 64 + 49  # challenge and welcome; the answer to the first row is cut off
    between = Cutting(driver.server.port, greeting + 3)
    between.start()
    with Client(driver.destination(between.port), "h1") as one:
        one.offer(parcel("a"))
        one.offer(parcel("b"))
        one.flush()
    between.close()
    assert between.connections == 2
    assert names(driver.store) == ["a", "b"]
    assert left_in(driver.directory / "spool") == 0


def test_a_host_with_another_token_keeps_its_rows(driver: Driver) -> None:
    with Client(driver.destination(token=b"u" * 32), "h1") as one:
        one.offer(parcel("a"))
        with pytest.raises(DeliveryError, match="refuses this host: the host does not know the token of this campaign"):
            one.flush()
    assert left_in(driver.directory / "spool") == 1
    assert names(driver.store) == []
    assert driver.told == ["an unknown host (127.0.0.1) was refused: the host does not know the token of this campaign"]


def test_a_host_with_another_schema_keeps_its_rows(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.delivery.wire.HostHandshake.hello", with_another_schema(HostHandshake.hello))
    with Client(driver.destination(), "h1") as one:
        one.offer(parcel("a"))
        with pytest.raises(DeliveryError, match="rows of another schema; install the same taxmeter on both"):
            one.flush()
    assert left_in(driver.directory / "spool") == 1


def with_another_schema(hello: Callable[..., bytes]) -> Callable[..., bytes]:
    def other(self: HostHandshake, challenge: Frame) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("orchestrator.delivery.wire.schema_fingerprint", lambda: b"o" * 32)
            return hello(self, challenge)

    return other


def test_what_a_dead_agent_left_is_delivered_by_the_next_and_what_is_damaged_is_reported(driver: Driver) -> None:
    spool = Spool(driver.directory / "spool")
    spool.put(parcel("a"))
    damaged = spool.put(parcel("b"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    spool.put(parcel("c"))
    with Client(driver.destination(), "h1") as one:
        one.flush()
        [problem] = one.take_problems()
        assert one.take_problems() == []
    assert f"it is kept as {spool.directory}/aside/{damaged.name}" in problem
    assert names(driver.store) == ["a", "c"]


def test_what_a_dead_run_left_is_stored_without_a_detour(driver: Driver) -> None:
    spool = Spool(driver.directory / "spool")
    for data in (parcel("a"), parcel("b"), parcel("a"), b"nonsense"):
        spool.put(data)
    spool.pending()[1].write_bytes(b"damaged")
    told: list[str] = []
    assert deliver_leftovers(spool, driver.committer, told.append) == 1
    assert names(driver.store) == ["a"]
    assert (spool.pending(), len(list((spool.directory / "aside").iterdir()))) == ([], 2)
    assert ["damaged" in told[0], "was refused: a parcel ends in the middle" in told[1]] == [True, True]


def test_a_row_that_can_never_be_stored_is_a_problem_of_its_task(driver: Driver) -> None:
    with Client(driver.destination(), "h1") as one:
        one.offer(b"nonsense")
        one.offer(parcel("a"))
        with pytest.raises(
            DeliveryError, match="the driver refused a record: a parcel ends .*; it is kept as .*/aside/"
        ):
            one.flush()
    assert names(driver.store) == ["a"]


def test_rows_that_no_disk_takes_are_held_until_the_driver_takes_them(driver: Driver, impatient: None) -> None:
    (driver.directory / "spool").write_text("no directory")
    port = driver.server.port
    driver.server.close()
    with Client(driver.destination(), "h1", unreachable_s=20) as one:
        one.offer(parcel("a"))
        assert "records are held in memory until the driver takes them" in one.take_problems()[0]
        driver.server = Server(driver.committer, TOKEN, driver.told.append, port=port)
        one.flush()
    assert names(driver.store) == ["a"]


def test_hosts_wait_while_too_much_waits_for_the_disk(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_WAITING_BYTES", 20_000)
    go, append = threading.Event(), driver.writer.append_batches
    monkeypatch.setattr(driver.writer, "append_batches", lambda batches: (go.wait(20), append(batches))[1])
    raw = [Raw(driver) for _ in range(4)]
    for number, one in enumerate(raw):
        for trial in range(20):
            data = parcel(f"h{number}-{trial:02d}", log_tail="x" * 20_000)
            one.socket.sendall(parcel_header(trial, data) + data)
    wait_for(lambda: driver.server._core.waiting_bytes > 20_000)
    # of each connection what came at once, which is 256 KiB at most
    assert driver.server._core.waiting_bytes < 80 * len(data)
    go.set()
    wait_for(lambda: len(names(driver.store)) == 80)
    wait_for(lambda: driver.server._core.waiting_bytes == 0)
    for one in raw:
        one.socket.close()


def test_when_the_store_fails_hosts_are_told_at_once_and_keep_their_rows(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(batches: Any) -> None:
        raise StoreError("cannot write the journal")

    with Client(driver.destination(), "h1") as one:
        one.offer(parcel("a"))
        monkeypatch.setattr(driver.writer, "append_batches", broken)
        one.offer(parcel("b"))
        with pytest.raises(DeliveryError, match="refuses this host: cannot write the journal"):
            one.flush()
    with Client(driver.destination(), "h2") as other, pytest.raises(DeliveryError, match="cannot write the journal"):
        other.flush()
    assert left_in(driver.directory / "spool") == 1


def test_an_address_of_another_machine_cannot_be_listened_on(driver: Driver) -> None:
    with pytest.raises(InfrastructureError, match=r"cannot listen for results on 192\.0\.2\.1:0: "):
        Server(driver.committer, TOKEN, driver.told.append, address="192.0.2.1")
