"""Whose cluster it is: one that a sweep brought up goes with it, and another stays."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.hosts.cluster import borrowed, keep, lifecycle, load, state
from orchestrator.hosts.cluster.settings import Ports
from orchestrator.hosts.cluster.state import StateFiles
from tests.unit.test_cluster_parts import Project


@pytest.fixture(autouse=True)
def sockets_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is brought up here is never taken down, so that nobody removes the directory for its sockets."""
    monkeypatch.setattr(state, "_SHORT", tmp_path)


def test_a_cluster_of_a_sweep_goes_with_it_and_another_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, files = Project(tmp_path), StateFiles(Project(tmp_path))
    taken_down = []

    def down(*_: object) -> dict[str, str]:
        taken_down.append(load(project) is not None)
        files.forget()
        return {}

    def up() -> None:
        files.save(replace(files.create(Ports(20000)), head_address="10.0.0.1"))

    monkeypatch.setattr(lifecycle, "down", down)
    with borrowed(project, print):
        up()
    assert taken_down == [True]

    up()
    with borrowed(project, print):
        pass
    assert taken_down == [True], "it was up for its own sake"
    files.forget()

    # A killed sweep leaves its cluster, which is the next sweep's as if that had brought it up ...
    files.of_a_sweep.touch()
    up()
    with borrowed(project, print):
        pass
    assert taken_down == [True, True]
    # ... unless somebody asked for it meanwhile.
    files.of_a_sweep.touch()
    up()
    keep(project)
    with borrowed(project, print):
        pass
    assert taken_down == [True, True]


def test_a_mark_that_a_killed_sweep_left_goes_with_the_cluster(tmp_path: Path) -> None:
    files = StateFiles(Project(tmp_path))
    files.create(Ports(20000))
    files.of_a_sweep.touch()
    files.forget()
    assert not files.of_a_sweep.exists()
