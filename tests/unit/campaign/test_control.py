"""A campaign is seen and steered through files: whole ones, for its owner alone, each taken once."""

import itertools
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from orchestrator.campaign import ReadyHost
from orchestrator.campaign.control import (
    CampaignPhase,
    CampaignProgressState,
    ControlFiles,
    HostPhase,
    HostProgress,
    Request,
    RequestKind,
)
from orchestrator.errors import NoUsableHostError
from orchestrator.planning import PlanningHost
from tests.conftest import Patch
from tests.scripted_campaign import PIN

HOSTS = (
    HostProgress("h1", HostPhase.RUNNING, 5, task_id="t", trial="tiny-bert eager batch 1 round 1", done=3, left=4),
    HostProgress("h2", HostPhase.LOST, 6, "no beat for 10 s", done=1, left=6, failed=1),
)
STATE = CampaignProgressState(
    "c-1", "quick", 1, 2, CampaignPhase.RUNNING, HOSTS, 4, 10, 1, 42, "this machine", "/results", 2, 61.5
)
READY = ReadyHost(PlanningHost("h3", {"rack": "b"}, (1, 2), {"cpu": PIN}), {}, frozenset({0}), "/var/lib/taxmeter")


@pytest.fixture
def control(tmp_path: Path) -> ControlFiles:
    return ControlFiles(tmp_path / "state" / "control")


def test_what_a_driver_says_is_read_as_it_was_said_and_never_half_of_it(control: ControlFiles) -> None:
    assert control.state() is None
    states = [STATE, replace(STATE, done=200, hosts=HOSTS * 200)]
    with control.driving():
        control.publish(STATE)
        assert control.state() == STATE
        over = threading.Event()
        writing = threading.Thread(target=lambda: [control.publish(states[n % 2]) for n in range(300)] and over.set())
        writing.start()
        while not over.is_set():
            assert control.state() in states
        writing.join()
    assert control.state() == states[1], "also when it is over"


def test_requests_and_offers_are_taken_once_in_order_by_one_driver(control: ControlFiles, monkeypatch: Patch) -> None:
    clock = itertools.count(10**18, -1)
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))  # set back all the time
    asked = [Request(RequestKind.DRAIN, ("h2", "h1")), Request(RequestKind.DRAIN), Request(RequestKind.STOP)]

    def ask() -> None:
        for request in asked:
            control.request(request)
        control.offer(READY)

    with control.driving():
        control.publish(STATE)
        assert control.take_requests() == []
        ask()
        assert (control.take_requests(), control.take_offers()) == (asked, [READY])
        assert (control.take_requests(), control.take_offers()) == ([], [])
        ask()
    control.request(Request(RequestKind.STOP))
    with control.driving():
        assert (control.state(), control.take_requests(), control.take_offers()) == (None, [], [])


def test_only_the_owner_may_look_and_what_others_may_have_written_is_not_read(control: ControlFiles) -> None:
    mask = os.umask(0)
    try:
        with control.driving():
            control.publish(STATE)
            control.offer(READY)
            control.request(Request(RequestKind.STOP))
            paths = [control.directory, *control.directory.rglob("*")]
            assert {path.stat().st_mode & 0o077 for path in paths} == {0}
            [offer], [asked] = ((control.directory / name).iterdir() for name in ("offers", "requests"))
            offer.chmod(0o660)
            asked.write_text('{"kind": "explode"}')
            assert (control.take_offers(), control.take_requests()) == ([], [])
            assert {path.name for path in control.refused()} == {f"{offer.name}.refused", f"{asked.name}.refused"}
    finally:
        os.umask(mask)


def test_one_campaign_at_a_time_and_asking_whether_it_lives_keeps_none_from_starting(control: ControlFiles) -> None:
    with control.driving():
        control.publish(STATE)
        with pytest.raises(NoUsableHostError, match="campaign c-1 of this project is running"), control.driving():
            pass
        assert control.state() == STATE
        assert control.is_alive()
    assert not control.is_alive()
    asked = threading.Thread(target=lambda: [control.is_alive() for _ in range(5000)])
    asked.start()
    while asked.is_alive():
        with control.driving():
            pass


def test_somebody_elses_campaign_is_not_said_to_be_over(control: ControlFiles, monkeypatch: Patch) -> None:
    monkeypatch.setattr("orchestrator.files.os.open", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(NoUsableHostError, match="cannot be read: Permission denied"):
        control.is_alive()
