"""What a person reads of a running campaign fits a terminal of 80 columns, and says what is wrong."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from orchestrator.campaign.control import CampaignPhase, CampaignProgressState, HostPhase, HostProgress, left_s
from orchestrator.cli.sweep_control import CampaignStatus, render
from tests.printing import printed

S = 10**9
BEGAN = 1_790_000_000 * S
NOW = BEGAN + 600 * S
HOSTS = (
    HostProgress(
        "h1", HostPhase.RUNNING, NOW - 12 * S, None, "t", "tiny-bert torchscript batch 16 round 2", done=50, left=30
    ),
    HostProgress("a100-07", HostPhase.LOST, NOW - 130 * S, "no sign of life for 10 s", done=20, left=60, failed=1),
    HostProgress("h3", HostPhase.DONE, NOW - 240 * S, done=40),
)
STATE = CampaignProgressState(
    "quickstart-20260921T130640Z-ab12cd", "quickstart", BEGAN, NOW - S, CampaignPhase.RUNNING, HOSTS, 110, 90, 1, 42,
    "this machine", "/results", estimate_s=1000.0,
)  # fmt: skip
LAST = {
    "campaign_id": "c-1", "started_at": datetime(2026, 11, 21, 17, 24, tzinfo=UTC), "left_to_do": 4, "planned": 30,
    "failed": 2,
}  # fmt: skip


def shown(seen: CampaignStatus) -> str:
    text = printed(render(seen), 80)
    assert max(map(len, text.splitlines())) <= 80
    return text


def running(state: CampaignProgressState | None) -> CampaignStatus:
    return CampaignStatus(True, state, None, NOW)


def test_each_host_has_a_line_and_the_whole_has_an_end() -> None:
    lines = [line.rstrip() for line in shown(running(STATE)).splitlines()]
    assert lines == [
        "quickstart-20260921T130640Z-ab12cd is running on this machine, for 10 min",
        "",
        "host     phase    done  left  failed    for  what",
        "h1       running    50    30       0   12 s  tiny-bert torchscript batch 16",
        "                                             round 2",
        "a100-07  lost       20    60       1  2 min  no sign of life for 10 s",
        "h3       done       40     0       0  4 min",
        "total              110    90       1",
        "",
        "110 of 200 trials are in the store, 11 a minute",
        "about 6 min left, until 14:29 UTC",
        "without a100-07: 60 trials wait there",
    ]


def test_a_long_name_of_a_host_still_fits() -> None:
    host = replace(HOSTS[0], name="gpu-node-with-a-long-name-17.rack-b")
    text = shown(running(replace(STATE, hosts=(host,))))
    assert "gpu-node-with-a-long-name-17.rack-b" in text
    assert "total" not in text


def test_the_time_left_is_that_of_the_slowest_host_that_works() -> None:
    assert STATE.left_s(NOW) == pytest.approx((30 * 400 + 50 * 30 * 600 / 50) / 80)
    slow = replace(HOSTS[0], name="h4", done=6, left=20)
    assert replace(STATE, hosts=(*HOSTS, slow)).left_s(NOW) == pytest.approx((20 * 400 + 6 * 20 * 600 / 6) / 26)
    assert replace(STATE, hosts=(slow,), estimate_s=None).left_s(NOW) == pytest.approx(20 * 600 / 6)
    young = replace(HOSTS[0], done=2)
    assert replace(STATE, hosts=(young,)).left_s(NOW) == pytest.approx(400)
    assert replace(STATE, hosts=(young,), estimate_s=None).left_s(NOW) is None
    assert replace(STATE, hosts=HOSTS[1:]).left_s(NOW) is None


def test_first_trials_that_compile_are_no_pace_for_the_rest() -> None:
    assert left_s(592, 8, elapsed_s=1000.0, estimate_s=13_000.0) == pytest.approx(12_827, abs=1)


def test_what_was_done_before_this_run_is_no_pace() -> None:
    resumed = replace(STATE, already_done=100)
    assert resumed.left_s(NOW) == pytest.approx((30 * 400 + 10 * 30 * 600 / 10) / 40)
    assert "110 of 200 trials are in the store (100 of them before this run), 1 a minute" in shown(running(resumed))


def test_a_driver_that_says_nothing_is_noted() -> None:
    assert shown(running(None)) == "a campaign of this project is starting\n"
    assert "said nothing" not in shown(running(STATE))
    assert "its driver lives, but has said nothing for 60 s" in shown(running(replace(STATE, beat_at_ns=NOW - 60 * S)))


def test_a_driver_that_died_is_told_with_what_it_said_last() -> None:
    text = " ".join(shown(CampaignStatus(False, STATE, LAST, NOW + 240 * S)).split())
    for words in (
        "the driver of quickstart-20260921T130640Z-ab12cd died; its last sign of life came 4 min ago",
        "tiny-bert torchscript", "no campaign of this project runs", "`taxmeter sweep resume` goes on with it",
    ):  # fmt: skip
        assert words in text


def test_without_a_campaign_the_last_one_is_told_from_the_store() -> None:
    ended = replace(STATE, phase=CampaignPhase.ENDED)
    text = " ".join(shown(CampaignStatus(False, ended, LAST, NOW)).split())
    assert "died" not in text
    assert "c-1 of 2026-11-21 17:24 UTC, is not finished: 4 of 30 trials are left" in text
    text = " ".join(shown(CampaignStatus(False, None, LAST | {"left_to_do": 0}, NOW)).split())
    assert "is finished: 30 trials, 2 of them failed" in text
    assert shown(CampaignStatus(False, None, None, NOW)) == "no campaign of this project runs\n"
    assert "but one is being prepared" in shown(CampaignStatus(False, None, None, NOW, is_locked=True))


def test_whether_all_is_well() -> None:
    finished = LAST | {"left_to_do": 0}
    well = (running(replace(STATE, hosts=HOSTS[::2])), running(None))
    ended = (CampaignStatus(False, None, last, NOW) for last in (finished, None))
    assert all(status.is_well for status in (*well, *ended))
    assert not any(status.is_well for status in (running(STATE), CampaignStatus(False, None, LAST, NOW)))
