"""`taxmeter results import`: what becomes of the files of a machine that ran an export.

Somebody else may have made them: nothing blocks, nothing is half written.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign import ResumePolicy, choose_campaign
from orchestrator.campaign.exchange import cores_of, exported_host, intake
from orchestrator.config import load_sweep
from orchestrator.environments import Catalogue
from orchestrator.errors import ExitCode
from orchestrator.store import Writer, fitting
from runners.contract import METHOD_VERSION
from runners.system import collect, system_id
from tests import exporting
from tests.conftest import Captured, Patch
from tests.exporting import SWEEP, Export, begin, edit, record
from tests.recording import line_of, with_first

export, exported = exporting.export, exporting.exported


def refusal(export: Export, capsys: Captured) -> str:
    """Why all of it is refused."""
    assert (export.load(), export.store_path.exists()) == (ExitCode.USAGE, False)
    return capsys.readouterr().err


def test_each_trial_and_each_skip_gives_a_row_and_a_second_import_adds_nothing(
    export: Export, capsys: Captured
) -> None:
    export.finish(0)
    export.finish(1)
    assert export.load() == ExitCode.OK
    assert "6 rows added, 0 were there already" in capsys.readouterr().out
    rows = export.rows()
    assert sorted(row["status"] for row in rows) == ["ok"] * 4 + ["skipped"] * 2
    planned = {trial.trial_id: trial.trial_key for number in (0, 1) for trial in export.task(number).trials}
    measured = [row for row in rows if row["status"] == "ok"]
    assert {row["trial_id"]: row["trial_key"] for row in measured} == planned
    places = [(row["host"], row["isolation"], row["executor_reason"], row["environment"]) for row in measured]
    assert places == [("borrowed", "process", "the task directory was run by hand", "cpu")] * 4
    locked = export.manifest.environments["cpu"].lock_sha256
    stacks = [tuple(row[name] for name in ("lock_sha256", "torch_version", "runner_sha256")) for row in measured]
    assert stacks == [(locked, export.versions["torch"], "c" * 64)] * 4
    assert {row["system_id"] for row in measured} == {system_id(collect())}
    assert {json.loads(row["facts"])["env_OMP_NUM_THREADS"] for row in measured} == {"1"}
    environments = {row["environment_id"]: row for row in export.store.environments().to_pylist()}
    [seen] = {row["environment_id"] for row in measured}
    assert json.loads(environments[seen]["facts"]) == {"libc": "glibc 2.36"}
    [system] = export.store.systems().to_pylist()
    assert json.loads(system["fingerprint"])["private"] is None
    [(declared, its_system)] = {(row["environment_id"], row["system_id"]) for row in rows if row["status"] == "skipped"}
    assert (declared != seen, environments[declared]["versions"], its_system) == (True, "{}", system["system_id"])
    assert {row["task_id"] for row in measured} == {export.task(0).task_id, export.task(1).task_id}
    [campaign] = export.store.campaigns().to_pylist()
    told = [campaign[name] for name in ("campaign_id", "sweep_document", "planned_trials")]
    assert told == [export.manifest.campaign_id, SWEEP, 4]
    assert (campaign["rows"], campaign["trials_ok"], campaign["trials_skipped"]) == (6, 4, 2)
    assert campaign["finished_at"] == max(row["finished_at"] for row in rows)
    parts = sorted(export.store_path.rglob("*.parquet"))
    assert export.load() == ExitCode.OK
    assert "nothing added, 6 rows were there already" in capsys.readouterr().out
    assert export.rows() == rows
    assert sorted(export.store_path.rglob("*.parquet")) == parts


def test_the_rest_of_an_export_is_added_later(export: Export, capsys: Captured) -> None:
    first, second = export.task(0).trials
    export.write(0, begin(first), record(first), begin(second))
    assert export.load() == ExitCode.OK
    told = capsys.readouterr().out
    assert "3 rows added" in told
    assert "1 trials began and have no record, 2 have not begun" in told
    export.write(0, begin(second, 2), record(second, 2), again=2)
    export.finish(1)
    assert export.load() == ExitCode.OK
    assert "4 rows added, 3 were there already" in capsys.readouterr().out
    attempts = {(row["trial_id"], row["attempt"]): row for row in export.rows()}
    lost, kept = attempts[second.trial_id, 1], attempts[second.trial_id, 2]
    assert (lost["status"], kept["status"]) == ("infrastructure_error", "ok")
    assert kept["task_id"] == f"{lost['task_id']}-again-2"
    last = export.store.attempts(export.manifest.campaign_id)
    assert {last[trial.trial_id].status.value for trial in (first, second)} == {"ok"}


def test_what_a_start_recorded_stays_though_the_trial_began_once_more(export: Export) -> None:
    first, second = export.task(0).trials
    export.write(0, begin(first), record(first), begin(second), record(second))
    export.write(0, begin(first, 2), again=2)
    export.finish(1)
    assert export.load() == ExitCode.OK
    ends = [(row["trial_id"], row["attempt"], row["status"]) for row in export.rows() if row["status"] != "skipped"]
    assert [end for end in ends if end[0] == first.trial_id] == [(first.trial_id, 1, "ok")]


def test_a_start_that_died_gives_a_row_of_each_trial_and_one_that_may_still_run_none(export: Export) -> None:
    first, second = export.task(0).trials
    export.write(0, begin(first), begin(second))
    export.write(0, begin(first, 2), begin(second, 2), record(first, 2), again=2)
    export.finish(1)
    assert export.load() == ExitCode.OK
    ends = {(row["trial_id"], row["attempt"]): row["status"] for row in export.rows()}
    assert [ends.get((first.trial_id, attempt)) for attempt in (1, 2)] == ["infrastructure_error", "ok"]
    assert [ends.get((second.trial_id, attempt)) for attempt in (1, 2)] == ["infrastructure_error", None]


def test_a_task_that_did_not_come_back_is_named(export: Export, capsys: Captured) -> None:
    export.finish(0)
    shutil.rmtree(export.task_directory(1))
    assert export.load() == ExitCode.OK
    told = capsys.readouterr().out
    assert "not here: tasks/r2-cpu" in told
    assert "0 trials began and have no record, 2 have not begun" in told


STRANGE = line_of('{"type":"begin","trial_id":"x","attempt":1,"started_at_ns":1}')


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (b'{"type":"rec\xff\n', "line 7 of its records cannot be read: damaged: the line does not end in its checksum"),
        (b'{"type":"rec', "line 7 of its records cannot be read: damaged: the line does not end in its checksum"),
        (STRANGE, "the runner recorded x, which is no"),
        (None, "line 7 of its records is a second environment"),
    ],
)
def test_a_damaged_line_is_named_and_the_rest_is_imported(
    export: Export, capsys: Captured, damage: bytes | None, expected: str
) -> None:
    path = export.finish(0)
    export.finish(1)
    data = path.read_bytes()
    path.write_bytes(data + (damage or data.partition(b"\n")[0] + b"\n"))
    assert export.load() == ExitCode.TRIALS_FAILED
    error = capsys.readouterr().err
    assert f"not imported: tasks/r1-cpu/records.jsonl: {expected}" in error
    assert error.count("\n") == 1
    assert len(export.rows()) == 6


@pytest.mark.parametrize(
    ("file", "change", "expected"),
    [
        ("system.json", None, "system.json: "),
        ("system.json", lambda _: b"{}", "system.json: its machine: fingerprint: Field required"),
        ("system.json", lambda _: b'{"fingerprint": {}}', "system.json: its machine: fingerprint.cpu: "),
        ("records.jsonl", lambda data: data.partition(b"\n")[2], "line 2 of its records gives no row: no environment"),
        ("records.jsonl", lambda data: with_first(data, b'"python"', b'"caf\\u00e9"'), "keys of an identity are"),
        ("system.json", lambda data: data.replace(b'"x86_64"', b'"\\ud800"'), "system.json: "),
    ],
)
def test_results_without_their_machine_or_environment_are_left_out(
    export: Export, capsys: Captured, file: str, change: Callable[[bytes], bytes] | None, expected: str
) -> None:
    export.finish(0)
    export.finish(1)
    path = export.task_directory(0) / file
    path.unlink() if change is None else path.write_bytes(change(path.read_bytes()))
    assert export.load() == ExitCode.TRIALS_FAILED
    error = capsys.readouterr().err
    assert f"not imported: tasks/r1-cpu/{file}: " in error
    assert expected in error
    assert sum(row["status"] == "ok" for row in export.rows()) == 2


def test_other_versions_are_refused_and_nothing_is_written(export: Export, capsys: Captured) -> None:
    export.finish(0)
    others = [f"tool-{number}" for number in range(9)]
    export.finish(1, versions={**export.versions, "torch": "1.12.1", **dict.fromkeys(others, "0.1")})
    error = refusal(export, capsys)
    locked = export.manifest.environments["cpu"].versions["torch"]
    assert f"  torch is 1.12.1 instead of {locked}\n" in error
    assert "  tool-0 is not in the lock" in error
    assert "  and 2 more" in error
    assert "--accept-versions" in error


def test_accepted_versions_mix_neither_with_the_locked_nor_with_each_other(export: Export, capsys: Captured) -> None:
    first, second = export.task(0).trials
    export.write(0, record(first), begin(second))
    export.write(0, record(second, 2), again=2, versions={**export.versions, "torch": "1.12.1"})
    export.finish(1, versions={**export.versions, "torch": "1.13.1"}, kernel="another")
    assert export.load("--accept-versions") == ExitCode.OK
    assert "is not the locked one: torch is 1.12.1" in capsys.readouterr().out
    rows = [row for row in export.rows() if row["status"] == "ok"]
    versions = (export.versions["torch"], "1.12.1", "1.13.1")
    locked, older, newer = ([row for row in rows if row["torch_version"] == version] for version in versions)
    assert (len(locked), len(older), len(newer)) == (1, 1, 2)
    assert {row["environment"] for row in locked} == {"cpu"}
    for column in ("trial_key", "environment", "environment_id"):
        sets = [{row[column] for row in found} for found in (locked, older, newer)]
        assert len(set().union(*sets)) == sum(map(len, sets))
    assert {row["lock_sha256"] for row in older + newer} == {None}
    assert all(row["environment"].startswith("cpu+found-") for row in older + newer)
    by_name = {row["environment"]: row for row in export.store.environments().to_pylist()}
    assert by_name[older[0]["environment"]]["lock_sha256"] is None
    skipped = [row for row in export.rows() if row["status"] == "skipped"]
    assert [row["system_id"] for row in skipped] == [None, None]  # nobody knows on which of the two machines


def test_an_export_that_ran_twice_is_a_conflict(export: Export, capsys: Captured) -> None:
    export.finish(0)
    assert export.load() == ExitCode.OK
    first, second = export.task(0).trials
    export.write(0, record(first, started_at_ns=5), record(second))
    assert export.load() == ExitCode.TRIALS_FAILED
    assert "1 rows that the store has with another content" in capsys.readouterr().err
    assert len(export.rows()) == 4


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (
            "tasks/r1-cpu/task.json",
            '"batch": 1',
            '"batch": 8',
            "tasks/r1-cpu/task.json: not the task that was exported",
        ),
        ("export.json", f'"method_version": {METHOD_VERSION}', '"method_version": 99', "method 99"),
        ("export.json", '"campaign_id": "', '"campaign_id": "../', "campaign_id: damaged: String should match pattern"),
    ],
)
def test_what_did_not_run_or_is_not_what_was_exported_is_refused(
    export: Export, capsys: Captured, file: str, old: str, new: str, expected: str
) -> None:
    assert "no trial of this export has a record yet" in refusal(export, capsys)
    export.finish(0)
    edit(export.directory / file, old, new)
    assert expected in refusal(export, capsys)


def test_no_local_sweep_continues_an_imported_campaign(export: Export) -> None:
    first, second = export.task(0).trials
    export.write(0, record(first), record(second))
    assert export.load() == ExitCode.OK
    wanted = load_sweep(export.sweep)
    entry = Catalogue.load(Path("docker/images.yaml")).entry("cpu")
    # The same name, lock and isolation as the exported machine
    host = exported_host("borrowed", {}, cores_of(wanted, None), [entry])
    continuation = choose_campaign(wanted, [host], export.store, ResumePolicy.AUTO)
    assert continuation.is_new
    assert continuation.plan.digest == export.manifest.plan_digest


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
    assert "started_at is 2099-01-01" in refusal(export, capsys)
