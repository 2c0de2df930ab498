"""What a person reads of a running campaign fits a terminal of 80 columns, and says what is wrong."""

import os
import pty
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from orchestrator.campaign import CampaignPlanned, Notice, TrialBegun, TrialRecorded
from orchestrator.campaign.control import CampaignPhase, CampaignProgressState, HostPhase, HostProgress, left_s
from orchestrator.cli.progress import ProgressLine
from orchestrator.cli.sweep_control import CampaignStatus, render
from orchestrator.cli.tables import SafeConsole
from orchestrator.planning import Plan, PlannedTask
from runners.contract import Status, TrialRecord
from tests.conftest import MakeTask, MakeTrial, Patch
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
    assert not running(STATE).is_well
    assert running(replace(STATE, hosts=HOSTS[::2])).is_well
    long = replace(HOSTS[0], name="gpu-node-with-a-long-name-17.rack-b")
    text = shown(running(replace(STATE, hosts=(long,))))
    assert long.name in text
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
    # first trials that compile are no pace for the rest
    assert left_s(592, 8, elapsed_s=1000.0, estimate_s=13_000.0) == pytest.approx(12_827, abs=1)


def test_what_was_done_before_this_run_is_no_pace() -> None:
    resumed = replace(STATE, already_done=100)
    assert resumed.left_s(NOW) == pytest.approx((30 * 400 + 10 * 30 * 600 / 10) / 40)
    assert "110 of 200 trials are in the store (100 of them before this run), 1 a minute" in shown(running(resumed))


def test_a_driver_that_says_nothing_is_noted() -> None:
    assert shown(running(None)) == "a campaign of this project is starting\n"
    assert running(None).is_well
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
    assert not CampaignStatus(False, None, LAST, NOW).is_well
    finished, nothing = (CampaignStatus(False, None, last, NOW) for last in (LAST | {"left_to_do": 0}, None))
    assert "is finished: 30 trials, 2 of them failed" in " ".join(shown(finished).split())
    assert shown(nothing) == "no campaign of this project runs\n"
    assert finished.is_well
    assert nothing.is_well
    assert "but one is being prepared" in shown(CampaignStatus(False, None, None, NOW, is_locked=True))


ERASED = "\x1b[2K"


def whole(terminal: int) -> str:
    """What a terminal that nobody writes to any more was given."""
    parts = []
    with os.fdopen(terminal, "rb", 0) as stream, suppress(OSError):
        while part := stream.read(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


def test_the_live_line_is_drawn_anew_below_what_stays_and_cleared_at_the_end(
    make_trial: MakeTrial, make_task: MakeTask, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    trials = [make_trial("synthetic-null"), make_trial("synthetic-sleep")]
    plan = Plan((PlannedTask("lab1", make_task(*trials)),), (), (), "digest", 60.0)
    crashed = TrialRecord(trials[0].trial_id, 1, Status.CRASHED, "it fell", 1, 2)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, ProgressLine(SafeConsole(file=stream, width=100)) as line:
        line.observe(CampaignPlanned("c-7", plan, 0))
        line.observe(TrialBegun("lab1", trials[0]))
        line.observe(TrialRecorded("lab1", trials[0], crashed, final=True))
        line.observe(Notice("a note"))
        line.observe(TrialBegun("lab1", trials[1]))
    pieces = [re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", piece) for piece in whole(ours).split(ERASED)]
    texts = [text for piece in pieces for text in piece.splitlines() if text.strip()]
    lines, stays = ([text for text in texts if ("/2 " in text) is live] for live in (True, False))
    assert len(lines) > 3, "once with each line that stays"
    assert "0/2 " in lines[0]
    assert re.search(r"1/2 .* s left synthetic-sleep .* on lab1", lines[-1])
    assert stays[0] == "campaign c-7: 2 trials to run, about 60 s"
    assert [text.split(" ")[0] for text in stays[1:]] == ["crashed", "note"]
    assert pieces[-1].strip() == "", "the line is gone"
