"""The live line of a campaign on a terminal, a pseudo-terminal here."""

import os
import pty
import re
from contextlib import suppress

import pytest

from orchestrator.campaign import CampaignPlanned, Notice, TrialBegun, TrialRecorded
from orchestrator.cli.progress import ProgressLine
from orchestrator.cli.tables import SafeConsole
from orchestrator.planning import Plan, PlannedTask
from runners.contract import Status, TrialRecord

ERASED = "\x1b[2K"


def whole(terminal: int) -> str:
    """What a terminal that nobody writes to any more was given."""
    parts = []
    with os.fdopen(terminal, "rb", 0) as stream, suppress(OSError):
        while part := stream.read(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


def test_the_line_is_drawn_anew_below_what_stays_and_cleared_at_the_end(
    make_trial, make_task, monkeypatch: pytest.MonkeyPatch
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
    lines = [text for piece in pieces for text in piece.splitlines() if "/2 " in text]
    assert len(lines) > 3, "once with each line that stays"
    assert "0/2 " in lines[0]
    assert re.search(r"1/2 .* s left synthetic-sleep .* on lab1", lines[-1])
    stays = [text for piece in pieces for text in piece.splitlines() if text.strip() and "/2 " not in text]
    assert stays[0] == "campaign c-7: 2 trials to run, about 60 s"
    assert [text.split(" ")[0] for text in stays[1:]] == ["crashed", "note"]
    assert pieces[-1].strip() == "", "the line is gone"
