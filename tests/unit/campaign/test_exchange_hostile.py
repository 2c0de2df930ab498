"""`taxmeter results import` of files that somebody else made: nothing blocks, nothing is half written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign.exchange import importing
from orchestrator.errors import ExitCode
from orchestrator.store import Writer, batch_of
from tests import exporting
from tests.exporting import Export, edit, record

export, exported = exporting.export, exporting.exported


def sparse(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.truncate(2 * 2**30)


def replaced(path: Path, by: Callable[[Path], object]) -> None:
    path.unlink()
    by(path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("file", ["export.json"])
@pytest.mark.parametrize(
    "attack",
    [
        lambda path: replaced(path, os.mkfifo),
        lambda path: replaced(path, lambda place: place.symlink_to("/etc/passwd")),
        sparse,
        lambda path: path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000),
        lambda path: path.write_text('{"fingerprint": "\\ud800"}'),
        lambda path: path.write_text('{"fingerprint": 1e999}'),
    ],
    ids=["pipe", "link", "sparse", "deep", "surrogate", "infinity"],
)
def test_files_of_strangers_are_told_of_in_one_line(
    export: Export, capsys: pytest.CaptureFixture[str], file: str, attack: Callable[[Path], object]
) -> None:
    export.finish(0)
    export.finish(1)
    attack((export.directory if file == "export.json" else export.task_directory(1)) / file)
    code = export.load()
    error = capsys.readouterr().err
    assert file in error
    assert len(error) < 1000
    if file in ("export.json", "task.json"):
        assert (code, export.store_path.exists()) == (ExitCode.USAGE, False)
    else:
        # The other task and the skips are whole
        assert (code, len(export.rows())) == (ExitCode.TRIALS_FAILED, 4)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"started_at_ns": 4_070_908_800_000_000_000}, "it gives no row: started_at is 2099-01-01"),
        ({"facts": {"a": "\ud800"}}, "record.facts: holds half of a surrogate pair"),
        ({"reason": "x" * 2**21}, "record.reason: 2097152 characters, at most"),
    ],
)
def test_a_row_of_the_second_task_that_no_store_takes_is_known_before_the_first_is_written(
    export: Export, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any], expected: str,
) -> None:  # fmt: skip
    first, second = export.task(1).trials
    export.finish(0)
    export.write(1, record(first), record(second, **changes))
    known: list[bool] = []
    put = Writer.put_campaign
    monkeypatch.setattr(Writer, "put_campaign", lambda writer, row: known.append(True) or put(writer, row))
    monkeypatch.setattr(importing, "batch_of", lambda rows, table: known.append(False) or batch_of(rows, table))
    assert export.load() == ExitCode.TRIALS_FAILED
    told = capsys.readouterr().err
    assert f"tasks/r2-cpu/records.jsonl:3: {expected}" in told
    assert told.count("\n") == 1
    before = known.index(True)
    assert before >= known[before:].count(False) > 0, "all that is judged while rows are written was judged before"
    assert len(export.rows()) == 5


def test_an_export_from_the_future_is_refused_and_nothing_is_written(
    export: Export, capsys: pytest.CaptureFixture[str]
) -> None:
    export.finish(0)
    edit(export.directory / "export.json", f'"exported_at_ns": {export.manifest.exported_at_ns}',
         '"exported_at_ns": 4070908800000000000')  # fmt: skip
    assert export.load() == ExitCode.USAGE
    assert "started_at is 2099-01-01" in capsys.readouterr().err
    assert not export.store_path.exists()
