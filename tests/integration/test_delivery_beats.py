"""Beats over the delivery wire: heard while a task lives, and never a burden to it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.delivery import Heart
from orchestrator.delivery.wire import encode_beat
from tests.delivering import TOKEN, Driver, Raw, wait_for


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    one = Driver(tmp_path)
    yield one
    one.close()


def test_a_task_is_heard_from_its_beginning_to_its_end(driver: Driver) -> None:
    driver.server.listen_for("t1")
    with Heart(driver.destination(), "h1", "t1"):
        wait_for(lambda: "t1" in driver.server.beats().beats)
        first = driver.server.beats().beats["t1"]
        wait_for(lambda: driver.server.beats().beats["t1"].at_s > first.at_s)
        assert not driver.server.beats().beats["t1"].is_over
    wait_for(lambda: driver.server.beats().beats["t1"].is_over)
    driver.server.forget("t1")
    assert driver.server.beats().beats == {}
    assert driver.told == []


def test_a_driver_that_comes_back_is_heard_again(driver: Driver) -> None:
    with Heart(driver.destination(), "h1", "t1"):
        driver.restart()
        driver.server.listen_for("t1")
        wait_for(lambda: "t1" in driver.server.beats().beats)


def test_a_driver_that_is_gone_holds_no_task_up(driver: Driver) -> None:
    begun = time.monotonic()
    with Heart(driver.destination(port=1), "h1", "t1"):
        time.sleep(0.1)
    assert time.monotonic() - begun < 5


def test_who_does_not_know_the_token_is_not_heard(driver: Driver) -> None:
    driver.server.listen_for("t1")
    with Heart(driver.destination(token=b"x" * 32), "h1", "t1"):
        wait_for(lambda: driver.told)
    assert driver.server.beats().beats == {}
    assert TOKEN not in "".join(driver.told).encode()


def test_beats_of_tasks_that_nobody_cares_for_are_not_kept(driver: Driver) -> None:
    driver.server.listen_for("last")
    raw = Raw(driver)
    for number in range(1000):
        raw.socket.sendall(encode_beat(f"t{number}", is_last=False))
    raw.socket.sendall(encode_beat("last", is_last=False))
    wait_for(lambda: driver.server.beats().beats)
    assert list(driver.server.beats().beats) == ["last"]
    raw.socket.close()


def test_a_server_knows_until_when_it_has_listened(driver: Driver) -> None:
    first = driver.server.beats()
    wait_for(lambda: driver.server.beats().until_s > first.until_s)
    assert driver.server.beats().since_s == first.since_s


def test_a_frozen_process_falls_silent_and_beats_again_when_it_goes_on(driver: Driver) -> None:
    driver.server.listen_for("t1")
    code = (
        "import sys, time; from pathlib import Path; from orchestrator.delivery import Destination, Heart\n"
        f"with Heart(Destination('127.0.0.1', {driver.server.port}, {TOKEN!r}, Path('/nowhere')), 'h1', 't1'):\n"
        "    time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])

    def heard_s() -> float:
        beat = driver.server.beats().beats.get("t1")
        return 0.0 if beat is None else beat.at_s

    try:
        wait_for(heard_s)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.5)  # what was on its way
        last = heard_s()
        time.sleep(3)
        assert heard_s() == last
        os.kill(process.pid, signal.SIGCONT)
        wait_for(lambda: heard_s() > last)
    finally:
        process.kill()
        process.wait()
