"""Many hosts at a time: answers in order, and Ctrl-C does not wait for a host that never answers."""

import threading
import time

import pytest

from orchestrator.hosts.connection import Connections, for_each
from orchestrator.hosts.connection.ssh import MAX_AT_ONCE


class Waiting(Connections):
    """A call waits until all connections are ended."""

    def __init__(self) -> None:
        super().__init__({})
        self.ended = threading.Event()

    def abort(self) -> None:
        self.ended.set()


def test_answers_come_in_the_order_of_the_hosts() -> None:
    def call(number: int) -> int:
        time.sleep(0.01 * (3 - number % 3))
        return number * number

    assert for_each(range(40), call, Waiting()) == [number * number for number in range(40)]
    assert for_each([], call, Waiting()) == []


def test_an_interrupt_ends_what_waits_and_starts_nothing_more() -> None:
    connections, started = Waiting(), []

    def call(number: int) -> bool:
        started.append(number)
        if number == 0:
            raise KeyboardInterrupt
        return connections.ended.wait(60)

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        for_each(range(10 * MAX_AT_ONCE), call, connections)
    assert time.monotonic() - begin < 30
    assert connections.ended.is_set()
    assert len(started) <= MAX_AT_ONCE + 1
