"""Campaigns of which a host is not there as they start, though it was made ready: a scripted scheduler, a real store."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.campaign.progress import CampaignProgress, TrialRecorded
from tests.scripted_campaign import BOUND_S, PATIENT, Frozen, Lab, ready, sweep

NO_NODE = "no node serves it"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_host_that_is_not_there_at_the_start_is_lost_and_used_when_it_comes(lab: Lab) -> None:
    scheduler = Frozen()
    scheduler.absent = {"h1": NO_NODE}
    done: list[str] = []

    def note(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded) and progress.final:
            done.append(progress.host)

    scheduler.absent_until = lambda: done.count("h2") == 4
    lab.run(sweep(), scheduler, [ready("h1"), ready("h2")], note, faults=PATIENT)
    assert done == ["h2"] * 4 + ["h1"] * 4
    assert lab.rows() == [("h1", "ok", 1)] * 4 + [("h2", "ok", 1)] * 4, "it had no task that could be lost"
    [told] = [line for line in lab.notices().splitlines() if "h1 is lost" in line]
    assert told == f"h1 is lost: {NO_NODE}; its trials wait until it is back"
    assert "h1 answers, and takes tasks" in lab.notices()


def test_a_host_that_is_not_there_and_stays_away_is_given_up(lab: Lab) -> None:
    scheduler, begun = Frozen(), time.monotonic()
    scheduler.absent = {"h1": NO_NODE}
    scheduler.absent_until = lambda: False
    lab.run(sweep(), scheduler, [ready("h1"), ready("h2")])
    assert time.monotonic() - begun < BOUND_S
    assert lab.rows() == [("h1", "infrastructure_error", 1)] * 4 + [("h2", "ok", 1)] * 4
    assert f"h1 is given up: it did not come back within 2 s: {NO_NODE}" in lab.notices()


def test_a_resumed_campaign_does_not_wait_for_the_answer_of_a_host_that_is_not_there(lab: Lab) -> None:
    def stop(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded):
            raise KeyboardInterrupt

    hosts = [replace(ready(name), work_directory=str(lab.files.root / name)) for name in ("h1", "h2")]
    with pytest.raises(KeyboardInterrupt):
        lab.run(sweep(), Frozen(), hosts, stop)
    scheduler = Frozen()
    scheduler.absent = {"h1": NO_NODE}
    asked: list[str] = []

    def is_back() -> bool:
        asked[:] = asked or scheduler.asked
        return True

    scheduler.absent_until = is_back
    lab.run(sweep(), scheduler, hosts, faults=PATIENT)
    assert asked == ["h2"], "what waits there is delivered; h1 delivers when it is back"
    assert lab.rows() == [("h1", "ok", 1)] * 4 + [("h2", "ok", 1)] * 4
