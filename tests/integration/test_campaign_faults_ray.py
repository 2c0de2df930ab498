"""Campaigns on real Ray: workers are killed or frozen, nodes freeze or are not there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.scheduling.nodes import NO_NODE
from tests.conftest import PROJECT
from tests.faulty_campaign import TRIALS

pytestmark = pytest.mark.cluster

BOUND_S = 120.0
"""From the fault to the campaign's end. Alone on a machine it takes 10 to 20 s; the machines of a CI are slow."""


def outcome(scenario: str, directory: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.faulty_campaign", scenario, str(directory)]
    variables = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=PROJECT, env=variables)
    assert done.returncode == 0, done.stderr
    assert "(raylet" not in done.stdout + done.stderr, "Ray's own account of what died"
    whole: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert whole["after_s"] < BOUND_S, whole["told"]
    assert len({tuple(key) for key in whole["keys"]}) == len(whole["keys"]), "no row is stored twice"
    return whole


def ok(host: str, count: int, attempt: int = 1) -> list[list[object]]:
    return [[host, "ok", attempt]] * count


VICTIM = [["h1", "infrastructure_error", 1]]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("kill_worker", "h1 is lost: Ray lost the task"),
        # On a busy machine Ray itself kills the process that it was told to cancel, before the host is asked.
        ("freeze_worker", "h1 is lost: no sign of life for 6 s"),
    ],
)
def test_a_worker_that_dies_or_freezes_costs_one_attempt_and_is_replaced(
    tmp_path: Path, fault: str, expected: str
) -> None:
    told = outcome(fault, tmp_path)
    assert told["rows"] == VICTIM + ok("h1", TRIALS - 1) + ok("h1", 1, 2)
    assert any(expected in said for said in told["told"])
    assert not told["worker_is_left"]


@pytest.mark.long
def test_a_node_that_was_frozen_is_used_again_and_nothing_is_stored_twice(tmp_path: Path) -> None:
    told = outcome("freeze_node", tmp_path)
    assert told["rows"] == VICTIM + ok("h1", TRIALS - 1) + ok("h1", 1, 2) + ok("h2", TRIALS)
    assert any("h1 is lost: no sign of life for 6 s" in text for text in told["told"])


@pytest.mark.long
def test_a_node_that_died_before_the_campaign_began_is_used_when_it_is_there_again(tmp_path: Path) -> None:
    told = outcome("start_node", tmp_path)
    assert told["rows"] == ok("h1", TRIALS) + ok("h2", TRIALS)
    assert any(f"h1 is lost: {NO_NODE}; its trials wait until it is back" in text for text in told["told"])
