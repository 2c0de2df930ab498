"""What a gate says: for people, as Markdown and as JUnit, with all that its numbers rest on."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from orchestrator.analysis.comparison import Gate, Policy, Pool, gate
from orchestrator.report.gate import gate_junit, gate_markdown, render_gate
from orchestrator.store import Row
from tests.comparing import NEW, OLD, measured, rounds, store_of
from tests.printing import printed

TIMES = [0.100, 0.101, 0.099, 0.1005, 0.0995]
NOISY = [0.080, 0.120, 0.090, 0.110, 0.100]
SLOWER = [1.09 * value for value in TIMES]


def gated(directory: Path, *more: Row, policy: Policy | None = None) -> Gate:
    results = store_of(directory, *rounds(TIMES, campaign=OLD), *rounds(SLOWER, campaign=NEW), *more)
    return gate(results, "campaign=previous", max_slowdown=0.15, policy=policy)


def forms(found: Gate) -> tuple[str, ...]:
    """For people, as Markdown and as JUnit."""
    return printed(render_gate(found)), gate_markdown(found), gate_junit(found)


def test_what_could_have_been_proven_and_what_a_decision_takes_are_said_everywhere(tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = {"started_at": start, "finished_at": start + timedelta(seconds=1)}
    now = rounds([1.02 * latency_s for latency_s in NOISY], campaign=NEW, **times)
    results = store_of(tmp_path, *rounds(NOISY, campaign=OLD, **times), *now)
    found = gate(results, "campaign=previous")
    for text in forms(found):
        assert re.search(r"Smallest slow-down that could have been proven: \d+ %\.", text)
        assert re.search(r"1 undecided: a decision takes about \d+ sessions more \(\d+ min\)\.", text)


def test_what_was_pooled_flagged_or_left_out_is_told_everywhere(tmp_path: Path) -> None:
    flagged = gated(tmp_path / "flagged", measured(0.109, 9, campaign=NEW, guard_flags=["load"]))
    assert all("Guards flagged 1 of 11 processes as disturbed" in text for text in forms(flagged))
    policy = Policy(pool=frozenset({Pool.PROTOCOL, Pool.SYSTEM}), latest=True, without_flagged=True)
    for text in forms(gated(tmp_path, policy=policy)):
        assert "POOLED on request over different protocol, system" in text
        assert "Of each cell only the newest campaign." in text
        assert "Without the trials that guards flagged" in text
        assert "Ratios are unpaired: no shared rounds." in text


@pytest.mark.parametrize("character", ["\x1b", "\x00", "\x7f", "\ufffe", "\ud800", "ä", "\t"])
def test_whatever_a_reason_has_in_it_the_xml_can_be_read(tmp_path: Path, character: str) -> None:
    other = rounds(TIMES, campaign=OLD, backend="x")
    found = gated(tmp_path, *other, measured(None, campaign=NEW, backend="x", status="crashed", reason="here"))
    # as if the store had it: what a file of rows cannot hold is tried, too
    reason = f"killed: {character}[31m"
    cells = tuple(cell if cell.reason is None else replace(cell, reason=reason) for cell in found.cells)
    suite = ElementTree.fromstring(gate_junit(replace(found, cells=cells)).encode("utf-8"))
    (skipped,) = suite.findall("testcase/skipped")
    assert str(skipped.get("message")).endswith("[31m")
    assert "killed: " in str(skipped.get("message"))
