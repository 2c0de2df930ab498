"""`taxmeter results log`: why a trial ended as it did, from its row."""

from pathlib import Path

import pytest

from runners.contract import Status
from tests.conftest import Captured
from tests.results import CAMPAIGNS, make_store, refused, told, trial

TRACEBACK = "Traceback\n\tfile\nValueError: no \x1b[31mred\u202e"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    there = {"campaign": CAMPAIGNS[-1]}
    failed = {**there, "status": Status.CRASHED.value, "reason": "it raised ValueError", "log_tail": TRACEBACK}
    again = trial("abc", attempt=2, **there, status=Status.OK.value)
    make_store(tmp_path / "results", trial("abc", **failed), again, trial("abd", **failed), trial("xyz"))
    return tmp_path / "results"


def test_a_trial_is_shown_with_all_attempts_and_what_its_log_says(directory: Path, capsys: Captured) -> None:
    lines = told(capsys, "results", "log", "abc", "--results", directory).splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("abc")] == ["abc attempt 1", "abc attempt 2"]
    assert "  it raised ValueError" in lines
    expected = ["  | Traceback", "  |         file", r"  | ValueError: no red\u202e"]
    assert [line for line in lines if line.startswith("  |")][:3] == expected


def test_without_a_trial_each_reason_of_the_newest_campaign_is_shown_once(directory: Path, capsys: Captured) -> None:
    assert told(capsys, "results", "log", "--results", directory).count("it raised ValueError") == 1


@pytest.mark.parametrize(("name", "said"), [("ab", "the beginning of 2 trials"), ("q", "no trial q")])
def test_what_names_no_single_trial_is_one_line(directory: Path, capsys: Captured, name: str, said: str) -> None:
    assert said in refused(capsys, "results", "log", name, "--results", directory)
