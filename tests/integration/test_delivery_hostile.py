"""Whatever comes over a connection ends at most that connection, and never becomes a row by mistake."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.delivery import Client, server
from orchestrator.delivery.wire import Kind, decode_answer, encode_frame, parcel_header
from tests.delivering import Driver, Raw, parcel, wait_for
from tests.storing import names


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    one = Driver(tmp_path)
    yield one
    one.close()


def test_a_connection_that_is_cut_in_the_middle_of_a_parcel_leaves_no_row(driver: Driver) -> None:
    raw, data = Raw(driver), parcel("half")
    raw.socket.sendall(parcel_header(1, data) + data[: len(data) // 2])
    raw.socket.close()
    with Client(driver.destination(), "h1") as one:
        one.offer(parcel("whole"))
        one.flush()
    assert names(driver.store) == ["whole"]


def test_a_damaged_parcel_ends_its_connection_and_no_other(driver: Driver) -> None:
    raw, other, data = Raw(driver), Raw(driver), parcel("a")
    raw.socket.sendall(parcel_header(1, data) + data[:-1] + bytes([data[-1] ^ 1]))
    assert raw.is_closed()
    other.socket.sendall(parcel_header(1, data) + data)
    assert decode_answer(other.next()).outcome.name == "STORED"
    assert driver.told == ["the connection of raw (127.0.0.1) was closed: a frame was damaged on its way"]
    other.socket.close()


def test_an_endless_parcel_is_not_read(driver: Driver) -> None:
    raw = Raw(driver)
    raw.socket.sendall(bytes([Kind.PARCEL]) + bytes(8) + b"\xff" * 8)
    assert raw.is_closed()
    wait_for(lambda: driver.told)
    assert "a frame of 4294967295 bytes" in driver.told[0]


def test_only_parcels_are_taken_from_a_host(driver: Driver) -> None:
    raw = Raw(driver)
    raw.socket.sendall(encode_frame(Kind.ANSWER, 1, b"\1"))
    assert raw.is_closed()
    wait_for(lambda: driver.told)
    assert "where only parcels and beats are expected" in driver.told[0]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_make_no_row_and_stop_nobody(driver: Driver, data: bytes, greeted: bool) -> None:
    if greeted:
        raw = Raw(driver)
        connection = raw.socket
        connection.sendall(encode_frame(Kind.PARCEL, 1, data))
        assert decode_answer(raw.next()).outcome.name == "REFUSED"
    else:
        connection = socket.create_connection(("127.0.0.1", driver.server.port), timeout=20)
    connection.sendall(data)
    connection.close()
    Raw(driver).socket.close()
    assert names(driver.store) == []
    assert driver.committer.failure is None


def test_strangers_do_not_fill_the_terminal(driver: Driver) -> None:
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", driver.server.port), timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            while connection.recv(100):
                pass
    assert len(driver.told) == server.MAX_STRANGERS_TOLD
    assert driver.told[-1].endswith("further ones are not told")


def test_whoever_does_not_greet_is_let_go(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as hasty:
        hasty.setattr(server, "GREETING_S", 0.1)
        connection = socket.create_connection(("127.0.0.1", driver.server.port), timeout=20)
        with connection, contextlib.suppress(ConnectionResetError):
            while connection.recv(100):
                pass
    with Client(driver.destination(), "h1") as one:
        one.offer(parcel("a"))
    assert names(driver.store) == ["a"]
