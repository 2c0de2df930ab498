"""`taxmeter results log`: why a trial ended as it did, from its row."""

from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from runners.contract import Status
from tests.results import CAMPAIGNS, make_store, taxmeter, trial

TRACEBACK = "Traceback\n\tfile\nValueError: no \x1b[31mred\u202e"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    there = {"campaign": CAMPAIGNS[-1]}
    failed = {**there, "status": Status.CRASHED.value, "reason": "it raised ValueError", "log_tail": TRACEBACK}
    again = trial("abc", attempt=2, **there, status=Status.OK.value)
    make_store(tmp_path / "results", trial("abc", **failed), again, trial("abd", **failed), trial("xyz"))
    return tmp_path / "results"


def test_a_trial_is_shown_with_all_attempts_and_what_its_log_says(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert taxmeter("results", "log", "abc", "--results", directory) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("abc")] == ["abc attempt 1", "abc attempt 2"]
    assert "  it raised ValueError" in lines
    assert [line for line in lines if line.startswith("  |")][:3] == [
        "  | Traceback",
        "  |         file",
        r"  | ValueError: no red\u202e",
    ]


def test_without_a_trial_each_reason_of_the_newest_campaign_is_shown_once(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert taxmeter("results", "log", "--results", directory) == ExitCode.OK
    assert capsys.readouterr().out.count("it raised ValueError") == 1


@pytest.mark.parametrize(("name", "told"), [("ab", "the beginning of 2 trials"), ("q", "no trial q")])
def test_what_names_no_single_trial_is_one_line(
    directory: Path, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    assert taxmeter("results", "log", name, "--results", directory) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
