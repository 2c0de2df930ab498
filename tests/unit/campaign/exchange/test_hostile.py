"""`taxmeter results import` of files that somebody else made: nothing blocks, nothing is half written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign.exchange import intake
from orchestrator.errors import ExitCode
from orchestrator.store import Writer, fitting
from tests import exporting
from tests.conftest import Captured, Patch
from tests.exporting import Export, edit, record

export, exported = exporting.export, exporting.exported


def sparse(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.truncate(2 * 2**30)


def replaced(path: Path, by: Callable[[Path], object]) -> None:
    path.unlink()
    by(path)


SPECIAL = {
    "pipe": lambda path: replaced(path, os.mkfifo),
    "link": lambda path: replaced(path, lambda place: place.symlink_to("/etc/passwd")),
    "directory": lambda path: replaced(path, Path.mkdir),
    "device": lambda path: replaced(path, lambda place: place.symlink_to("/dev/zero")),
}
SPOILT = {
    "sparse": sparse,
    "deep": lambda path: path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000),
    "surrogate": lambda path: path.write_text('{"fingerprint": "\\ud800"}'),
    "infinity": lambda path: path.write_text('{"fingerprint": 1e999}'),
}
Attack = Callable[[Path], object]


@pytest.fixture
def whole(export: Export) -> Export:
    export.finish(0)
    export.finish(1)
    return export


@pytest.mark.timeout(120)
@pytest.mark.parametrize("file", ["export.json", "task.json", "system.json"])
@pytest.mark.parametrize("attack", (SPECIAL | SPOILT).values(), ids=SPECIAL | SPOILT)
def test_files_of_strangers_are_told_of_in_one_line(whole: Export, capsys: Captured, file: str, attack: Attack) -> None:
    attack((whole.directory if file == "export.json" else whole.task_directory(1)) / file)
    code = whole.load()
    error = capsys.readouterr().err
    assert file in error
    assert (error.count("\n"), len(error) < 1000) == (1, True)
    if file == "system.json":
        # The other task and the skips are whole
        assert (code, len(whole.rows())) == (ExitCode.TRIALS_FAILED, 4)
    else:
        assert (code, whole.store_path.exists()) == (ExitCode.USAGE, False)


@pytest.mark.parametrize("attack", SPECIAL.values(), ids=SPECIAL)
def test_records_that_are_no_file_are_refused_unstored(whole: Export, capsys: Captured, attack: Attack) -> None:
    attack(whole.task_directory(1) / "records.jsonl")
    assert (whole.load(), whole.store_path.exists()) == (ExitCode.USAGE, False)
    assert capsys.readouterr().err.count("records.jsonl") == 1


@pytest.mark.timeout(120)
def test_records_that_are_sparse_give_the_rows_before_the_hole(whole: Export, capsys: Captured) -> None:
    sparse(whole.task_directory(1) / "records.jsonl")
    assert (whole.load(), len(whole.rows())) == (ExitCode.TRIALS_FAILED, 6)
    assert "records.jsonl: line 7 of its records cannot be read: 2147" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["tasks", "tasks/r2-cpu", "tasks/r2-cpu/again-2"])
def test_a_directory_that_is_a_link_is_not_followed(
    whole: Export, tmp_path: Path, capsys: Captured, place: str
) -> None:
    path = whole.directory / place
    if path.exists():
        path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert (whole.load(), whole.store_path.exists()) == (ExitCode.USAGE, False)
    assert capsys.readouterr().err == f"taxmeter: {path} is a link; expected a directory\n"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"started_at_ns": 4_070_908_800_000_000_000}, "gives no row: started_at is 2099-01-01"),
        ({"facts": {"a": "\ud800"}}, "cannot be read: record.facts: holds half of a surrogate pair"),
        ({"reason": "x" * 2**21}, "cannot be read: record.reason: 2097152 characters, at most"),
        ({"started_at_ns": 2**70}, "cannot be read: record.started_at_ns: "),
        ({"exit_code": 2**40}, "cannot be read: exit_code: "),
    ],
)
def test_a_row_of_the_second_task_that_no_store_takes_is_known_before_the_first_is_written(
    export: Export, capsys: Captured, monkeypatch: Patch, changes: dict[str, Any], expected: str
) -> None:
    first, second = export.task(1).trials
    export.finish(0)
    export.write(1, record(first), record(second, **changes))
    known: list[bool] = []
    put = Writer.put_campaign
    monkeypatch.setattr(Writer, "put_campaign", lambda writer, row: known.append(True) or put(writer, row))
    monkeypatch.setattr(intake, "fitting", lambda rows: known.append(False) or fitting(rows))
    assert export.load() == ExitCode.TRIALS_FAILED
    told = capsys.readouterr().err
    assert f"tasks/r2-cpu/records.jsonl: line 3 of its records {expected}" in told
    assert told.count("\n") == 1
    assert known.index(True) == known.count(False) > 1, "all was judged before anything was written"
    assert len(export.rows()) == 5


def test_an_export_from_the_future_is_refused_and_nothing_is_written(export: Export, capsys: Captured) -> None:
    export.finish(0)
    edit(export.directory / "export.json", str(export.manifest.exported_at_ns), "4070908800000000000")
    assert export.load() == ExitCode.USAGE
    assert "started_at is 2099-01-01" in capsys.readouterr().err
    assert not export.store_path.exists()
