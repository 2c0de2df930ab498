"""Code on hosts: what is in use stays, what is old goes, and whoever begins to use it is not robbed of it."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.hosts.cluster import borrowed, borrowing, keep, load, state
from orchestrator.hosts.cluster.boot import install, prune
from orchestrator.hosts.cluster.code import install_here, pack_code, packed_again
from orchestrator.hosts.cluster.settings import Ports
from orchestrator.hosts.cluster.state import StateFiles
from tests.unit.test_cluster_parts import Project


@pytest.fixture(autouse=True)
def sockets_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is brought up here is never taken down, so that nobody removes the directory for its sockets."""
    monkeypatch.setattr(state, "_SHORT", tmp_path)


def code_of_ages(parent: Path, *names: str) -> None:
    """Directories of code, the oldest first."""
    for age, name in enumerate(names):
        (parent / name / "runners").mkdir(parents=True)
        os.utime(parent / name, (1_000_000 + age, 1_000_000 + age))


def names(parent: Path) -> set[str]:
    return {path.name for path in parent.iterdir()} - {".lock"}


def test_the_newest_two_and_what_is_used_stay(tmp_path: Path) -> None:
    digests = [f"{number:012x}" for number in range(5)]
    code_of_ages(tmp_path, *digests)
    assert prune(tmp_path, [digests[1]]) == [digests[2], digests[0]]
    assert names(tmp_path) == {digests[1], digests[3], digests[4]}


def test_what_is_not_of_ours_stays(tmp_path: Path) -> None:
    code_of_ages(tmp_path, "0" * 12, "notes", "0123456789AB", "0" * 13, "1" * 12, "2" * 12)
    assert prune(tmp_path, []) == ["0" * 12]
    assert names(tmp_path) == {"notes", "0123456789AB", "0" * 13, "1" * 12, "2" * 12}


def test_what_was_left_half_unpacked_goes_when_nobody_can_be_at_it_any_more(tmp_path: Path) -> None:
    code_of_ages(tmp_path, f".{'0' * 12}.17", f".{'1' * 12}.18")
    os.utime(tmp_path / f".{'1' * 12}.18")
    assert prune(tmp_path, []) == [f".{'0' * 12}.17"]
    assert names(tmp_path) == {f".{'1' * 12}.18"}


def test_code_that_is_used_again_counts_as_new(tmp_path: Path) -> None:
    code = pack_code()
    place = install_here(code, tmp_path)
    os.utime(place, (1, 1))
    code_of_ages(tmp_path, "0" * 12, "1" * 12)
    assert install_here(code, tmp_path) == place
    assert prune(tmp_path, []) == ["0" * 12]
    assert packed_again(place) == code


def test_agents_that_start_at_once_install_one_whole_code(tmp_path: Path) -> None:
    code = pack_code()
    archive, place = tmp_path / "code.tar", tmp_path / "code" / code.digest[:12]
    archive.write_bytes(code.tar)
    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(install, archive, place, code.digest) for _ in range(4)]:
            one.result()
    assert names(place.parent) == {place.name}
    assert packed_again(place) == code


def test_a_cluster_of_a_sweep_goes_with_it_and_another_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, files = Project(tmp_path), StateFiles(Project(tmp_path))
    taken_down = []

    def down(*_: object) -> dict[str, str]:
        taken_down.append(load(project) is not None)
        files.forget()
        return {}

    def up() -> None:
        files.save(replace(files.create(Ports(20000)), head_address="10.0.0.1"))

    monkeypatch.setattr(borrowing, "down", down)
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
