"""Temporary directories are those of a process; what killed ones left is removed."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from orchestrator.files import remove_abandoned, temporary_directory


def test_directories_of_dead_processes_are_removed_and_only_those(tmp_path: Path) -> None:
    alive = temporary_directory("ours-", tmp_path)
    dead, foreign = tmp_path / "ours-999999999-x", tmp_path / "theirs"
    for directory in (dead, foreign):
        directory.mkdir()
    another = temporary_directory("ours-", tmp_path)
    assert set(tmp_path.iterdir()) == {alive, another, foreign}
    assert alive.name.startswith(f"ours-{os.getpid()}-")


def test_a_directory_that_another_process_has_just_removed_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, dead = tmp_path / "ours-999999998-x", tmp_path / "ours-999999999-x"
    dead.mkdir()

    def listed(self: Path, pattern: str) -> Iterable[Path]:
        return [gone, dead]

    monkeypatch.setattr(Path, "glob", listed)
    remove_abandoned("ours-", tmp_path)
    assert not dead.exists()
