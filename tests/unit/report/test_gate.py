"""What a gate says: for people, as Markdown and as JUnit, with all that its numbers rest on."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from orchestrator.analysis.comparison import Gate, Policy, Pool, gate
from orchestrator.report.gate import gate_junit, gate_markdown, render_gate
from orchestrator.store import Row
from tests.comparing import NEW, OLD, measured, rounds, store_of

TIMES = [0.100, 0.101, 0.099, 0.1005, 0.0995]
SLOWER = [1.09 * value for value in TIMES]


def gated(directory: Path, *more: Row, max_slowdown: float = 0.15, policy: Policy | None = None) -> Gate:
    results = store_of(directory, *rounds(TIMES, campaign=OLD), *rounds(SLOWER, campaign=NEW), *more)
    return gate(results, "campaign=previous", max_slowdown=max_slowdown, policy=policy)


def shown(found: Gate) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(render_gate(found))
    return captured.get()


def test_a_slow_down_within_the_limit_is_not_denied(tmp_path: Path) -> None:
    assert "passed: no slow-down beyond 15 % is proven." in shown(gated(tmp_path / "quiet"))
    twins = [0.080, 0.120, 0.090, 0.110, 0.100]  # no threshold
    noisy = gated(tmp_path / "noisy", *rounds(twins, campaign=NEW, replicate=1), max_slowdown=0.05)
    assert "failed: 1 cell is slower beyond doubt." in shown(noisy)
    assert "A/A, the same trial twice: 0 of 1 pair called different." in shown(noisy)


def test_what_could_have_been_proven_and_what_a_decision_takes_are_said_everywhere(tmp_path: Path) -> None:
    noisy = [0.080, 0.120, 0.090, 0.110, 0.100]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = {"started_at": start, "finished_at": start + timedelta(seconds=1)}
    now = rounds([1.02 * latency_s for latency_s in noisy], campaign=NEW, **times)
    results = store_of(tmp_path, *rounds(noisy, campaign=OLD, **times), *now)
    found = gate(results, "campaign=previous")
    for text in (shown(found), gate_markdown(found), gate_junit(found)):
        assert re.search(r"Smallest slow-down that could have been proven: \d+ %\.", text)
        assert re.search(r"1 undecided: a decision takes about \d+ sessions more \(\d+ min\)\.", text)


def test_what_was_pooled_and_left_out_is_told_everywhere(tmp_path: Path) -> None:
    policy = Policy(pool=frozenset({Pool.PROTOCOL, Pool.SYSTEM}), latest=True, without_flagged=True)
    found = gated(tmp_path, policy=policy)
    for text in (shown(found), gate_markdown(found), gate_junit(found)):
        assert "POOLED on request over different protocol, system" in text
        assert "Of each cell only the newest campaign." in text
        assert "Without the trials that guards flagged" in text
        assert "Ratios are unpaired: no shared rounds." in text


def test_flagged_trials_are_told_everywhere(tmp_path: Path) -> None:
    found = gated(tmp_path, measured(0.109, 9, campaign=NEW, guard_flags=["load"]))
    for text in (shown(found), gate_markdown(found), gate_junit(found)):
        assert "Guards flagged 1 of 11 processes as disturbed" in text


@pytest.mark.parametrize("character", ["\x1b", "\x00", "\x7f", "\ufffe", "\ud800", "ä", "\t"])
def test_whatever_a_reason_has_in_it_the_xml_can_be_read(tmp_path: Path, character: str) -> None:
    reason = f"killed: {character}[31m"
    other = rounds(TIMES, campaign=OLD, backend="x")
    failed = measured(None, campaign=NEW, backend="x", status="crashed", reason="here")
    found = gated(tmp_path, *other, failed)
    document = gate_junit(_with_reason(found, reason))
    suite = ElementTree.fromstring(document.encode("utf-8"))
    (skipped,) = suite.findall("testcase/skipped")
    assert str(skipped.get("message")).endswith("[31m")
    assert "killed: " in str(skipped.get("message"))


def _with_reason(found: Gate, reason: str) -> Gate:
    """As if the store had it: what a file of rows cannot hold is tried, too."""
    return replace(
        found, cells=tuple(one if one.reason is None else replace(one, reason=reason) for one in found.cells)
    )
