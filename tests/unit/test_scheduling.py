"""What the Ray scheduler decides without Ray."""

import os
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode, NoUsableHostError
from orchestrator.scheduling import SchedulingHost
from orchestrator.scheduling.nodes import DIRECTORY_PREFIX, HOST_LABEL, SLOT, refuse_unmatched, remove_abandoned

HOST = SchedulingHost("h1", {"gpu": "H100"})


def node(**changes: object) -> dict[str, object]:
    whole = {
        "Alive": True,
        "NodeManagerHostname": "box",
        "Labels": {HOST_LABEL: "h1", "gpu": "H100", "ray.io/node-id": "1"},
        "Resources": {SLOT: 1.0},
    }
    return whole | changes


def test_a_node_with_all_labels_and_a_slot_serves() -> None:
    refuse_unmatched([HOST], [node(Alive=False), node()])


@pytest.mark.parametrize(
    "change",
    [
        {"Alive": False},
        {"Labels": {HOST_LABEL: "h1", "gpu": "A100"}},
        {"Labels": {HOST_LABEL: "h2", "gpu": "H100"}},
        {"Resources": {}},
    ],
)
def test_a_selector_that_no_node_matches_is_refused_with_the_reason(change: dict[str, object]) -> None:
    with pytest.raises(NoUsableHostError, match="no node of the Ray cluster serves h1") as caught:
        refuse_unmatched([HOST], [node(**change)])
    assert caught.value.exit_code == ExitCode.NO_USABLE_HOST
    assert "living nodes: " in str(caught.value)


def test_directories_of_dead_runs_are_removed_and_only_those(tmp_path: Path) -> None:
    dead = tmp_path / f"{DIRECTORY_PREFIX}999999999-x"
    alive = tmp_path / f"{DIRECTORY_PREFIX}{os.getpid()}-x"
    foreign = tmp_path / "ray"
    for directory in (dead, alive, foreign):
        directory.mkdir()
    remove_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive.name, foreign.name])
