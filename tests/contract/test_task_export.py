"""Exported tasks for real: `run.sh` with this very interpreter as the Python of a borrowed machine."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import runners.supervision.start
from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.store import Store
from runners.contract import Begin, ContractError, Environment, Line, TaskFiles, TrialRecord, decode, decode_line
from runners.supervision.start import EXIT_BUSY, EXIT_GIVEN_UP, run_directory
from runners.system import Fingerprint, collect, system_id
from tests.recording import processes_naming, wait_for

PROTOCOL = (
    "{warmup_min_calls: 1, warmup_min_ms: 1, warmup_max_ms: 50, turn_ms: 5, cycles: 2, min_cycles: 1,"
    " pipelined_budget_ms: 20, pipelined_min_samples: 2, pipelined_block_ms: 5}"
)
Export = Callable[..., Path]


@pytest.fixture
def export(tmp_path: Path, in_project: Path) -> Export:
    """Exports a sweep of synthetic workloads, two rounds if not told otherwise."""

    def make(*workloads: str, batch: tuple[int, ...] = (1,), rounds: int = 2) -> Path:
        path = tmp_path / "sweep.yaml"
        listed = ", ".join(f"{{name: synthetic-{name}, batch: {list(batch)}}}" for name in workloads)
        path.write_text(
            f"version: 1\nname: small\nenvironments: [cpu]\nworkloads: [{listed}]\nbackends: [python]\n"
            f"threads: [1]\nrounds: {rounds}\ntimeout_s: 60\nprotocol: {PROTOCOL}\n"
        )
        output = tmp_path / "a directory with spaces"
        assert run(["task", "export", str(path), "--output", str(output)]) == ExitCode.OK
        return output

    return make


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TAXMETER", "PYTHON"))}
    return {**kept, "PYTHON": sys.executable, **changes}


def start(output: Path, *tasks: str, **changes: str) -> "subprocess.Popen[str]":
    """Starts the script as a person does: from somewhere else, in a process group of its own."""
    return subprocess.Popen(
        [output / "run.sh", *tasks],
        cwd=output.parent,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def measure(output: Path, *tasks: str, **changes: str) -> tuple[int, str]:
    with start(output, *tasks, **changes) as process:
        told, _ = process.communicate(timeout=120)
    return process.returncode, told


def lines(directory: Path) -> list[Line]:
    """All lines of a task, those of later starts after those of earlier ones; a cut one is left out."""
    found: list[Line] = []
    for files in TaskFiles(str(directory)).starts():
        path = Path(files.records)
        for raw in path.read_bytes().splitlines() if path.exists() else []:
            try:
                found.append(decode_line(raw))
            except ContractError:
                continue
    return found


def records(directory: Path) -> list[TrialRecord]:
    return [line for line in lines(directory) if isinstance(line, TrialRecord)]


def load(output: Path) -> tuple[int, list[dict[str, Any]]]:
    results = output.parent / "results"
    code = run(["results", "import", str(output), "--results", str(results), "--accept-versions"])
    rows: list[dict[str, Any]] = Store.open(results).trials().to_pylist()
    return code, rows


def test_a_bare_python_measures_an_export_and_its_rows_come_back(
    export: Export, capsys: pytest.CaptureFixture[str]
) -> None:
    output = export("null", "crash", "unsupported")
    code, told = measure(output)
    assert code == 1, told
    assert "r1-cpu: done, but 2 trials failed, the first one: " in told
    document = json.loads((output / "tasks" / "r1-cpu" / "system.json").read_text())
    fingerprint = decode(Fingerprint, document["fingerprint"])
    assert fingerprint.private is None
    code, rows = load(output)
    assert code == ExitCode.OK
    assert Counter(row["status"] for row in rows) == {"ok": 2, "crashed": 2, "unsupported": 2}
    assert {row["system_id"] for row in rows} == {system_id(fingerprint)} == {system_id(collect())}
    assert {row["isolation"] for row in rows} == {"process"}
    assert all(row["latency_sync_median_s"] > 0 for row in rows if row["status"] == "ok")
    # A trial that the environment refuses may be refused before or after somebody looked
    watched = [row for row in rows if row["status"] != "unsupported"]
    assert all({"load", "throttling"} <= {one["guard"] for one in row["guards"]} for row in watched)
    assert all(row["guard_flags"] is not None for row in watched)
    campaign = rows[0]["campaign_id"]
    capsys.readouterr()
    assert run(["results", "show", campaign, "--results", str(output.parent / "results")]) == ExitCode.OK
    shown = " ".join(capsys.readouterr().out.split())
    assert "NOT in containers (isolation=process: the task directory was run by hand" in shown


@pytest.mark.slow
def test_a_finished_task_is_not_run_again(export: Export) -> None:
    output = export("null")
    assert measure(output)[0] == 0
    before = {path: path.read_bytes() for path in output.glob("tasks/*/records.jsonl")}
    assert len(before) == 2
    code, told = measure(output)
    assert code == 0, told
    assert {path: path.read_bytes() for path in output.glob("tasks/**/records.jsonl")} == before
    assert not (output / "cache").exists()


def test_one_task_can_be_named(export: Export) -> None:
    output = export("null")
    assert measure(output, "r2-cpu")[0] == 0
    assert records(output / "tasks" / "r1-cpu") == []
    assert len(records(output / "tasks" / "r2-cpu")) == 1
    code, told = measure(output, "r3-cpu")
    assert code == 2
    assert "no task r3-cpu here; known: r1-cpu r2-cpu" in told


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.slow
def test_an_ended_script_leaves_nothing_running_and_goes_on_later(export: Export, number: signal.Signals) -> None:
    trials = 6  # it is ended while the second runs, or one soon after that
    output = export("sleep", batch=tuple(range(1, trials + 1)), rounds=1)
    task = output / "tasks" / "r1-cpu"
    # A shell cannot trap what its parent ignores, as that of a background job does
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = start(output)
    signal.signal(signal.SIGINT, before)
    with process:
        wait_for(lambda: records(task) != [] and isinstance(lines(task)[-1], Begin), 60)
        process.send_signal(number)
        told, _ = process.communicate(timeout=60)
    assert process.returncode == (-9 if number is signal.SIGKILL else 128 + number), told
    wait_for(lambda: processes_naming(output) == [], 60)
    done = records(task)
    begun = {line.trial_id for line in lines(task) if isinstance(line, Begin)} - {one.trial_id for one in done}
    assert 1 <= len(done) < trials
    assert len(begun) == 1
    code, told = measure(output)
    assert code == 0, told
    attempts = {one.trial_id: one.attempt for one in records(task)}
    assert len(records(task)) == len(attempts) == trials
    assert {trial_id for trial_id, attempt in attempts.items() if attempt == 2} == begun
    starts = [line for line in lines(task) if isinstance(line, Environment)]
    assert len({line.task_id for line in starts}) == 2
    code, rows = load(output)
    assert code == ExitCode.OK
    assert Counter((row["status"], row["attempt"]) for row in rows) == {
        ("ok", 1): trials - 1,
        ("ok", 2): 1,
        ("infrastructure_error", 1): 1,
    }


def test_a_killed_runner_costs_its_trial_and_the_other_tasks_go_on(export: Export) -> None:
    output = export("null", "kill-supervisor")
    first = output / "tasks" / "r1-cpu"
    code, told = measure(output)
    assert code == 1
    assert "r1-cpu: exit code 137" in told
    assert "r2-cpu: exit code 137" in told
    assert "2 tasks are not finished; run it again to go on" in told
    # What the trial had started in a session of its own is gone as well
    wait_for(lambda: processes_naming(output) == [], 60)
    for _ in range(2):
        assert measure(output, "r1-cpu")[0] == 1
    assert [one.status.value for one in records(first)] == ["ok"]
    before = [path.name for path in first.iterdir()]
    code, told = measure(output, "r1-cpu")
    assert f"exit code {EXIT_GIVEN_UP}" in told
    assert "3 starts ended while it ran" in told
    assert [path.name for path in first.iterdir()] == before
    code, rows = load(output)
    assert code == ExitCode.OK
    mine = [row for row in rows if row["round"] == 1]
    assert Counter((row["workload"], row["status"], row["attempt"]) for row in mine) == {
        ("synthetic-null", "ok", 1): 1,
        ("synthetic-kill-supervisor", "infrastructure_error", 1): 1,
        ("synthetic-kill-supervisor", "infrastructure_error", 2): 1,
    }


def test_a_wrong_python_is_told_for_each_task(export: Export) -> None:
    code, told = measure(export("null"), PYTHON="/nonexistent/python")
    assert (code, told.count("/nonexistent/python is no Python 3.8 or later")) == (1, 2)


def test_a_task_goes_on_without_the_script_too(export: Export) -> None:
    output = export("null", batch=(1, 2), rounds=1)
    task = output / "tasks" / "r1-cpu"
    command = [sys.executable, "-m", "runners", "../tasks/r1-cpu"]
    subprocess.run(command, cwd=output / "code", env=environment(), check=True, timeout=60)
    assert len(records(task)) == 2
    path = task / "records.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)
    # As if the supervisor had died in the middle of the second record
    path.write_bytes(b"".join(kept[:4]) + kept[4][:40])
    subprocess.run(command, cwd=output / "code", env=environment(), check=True, timeout=60)
    again = [decode_line(raw) for raw in (task / "again-2" / "records.jsonl").read_bytes().splitlines()]
    assert [(one.trial_id, one.attempt) for one in again if isinstance(one, TrialRecord)] == [
        (json.loads(kept[4])["trial_id"], 2)
    ]
    code, rows = load(output)
    assert code == ExitCode.TRIALS_FAILED  # the cut line is named
    assert Counter(row["status"] for row in rows) == {"ok": 2, "infrastructure_error": 1}


def test_two_runners_do_not_share_a_task(
    export: Export, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = export("null", rounds=1) / "tasks" / "r1-cpu"
    monkeypatch.setattr(runners.supervision.start, "_PATIENCE_S", 0.1)
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, task / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert run_directory(str(task)) == EXIT_BUSY
        holder.communicate()
    assert "another process runs this task" in capsys.readouterr().out
    assert sorted(path.name for path in task.iterdir()) == ["lock", "task.json"]


def test_a_file_system_without_locks_is_told(
    export: Export, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(37, "No locks available")

    ran: list[str] = []
    task = export("null", rounds=1) / "tasks" / "r1-cpu"
    monkeypatch.setattr(fcntl, "lockf", refuse)
    monkeypatch.setattr(runners.supervision.start, "run_task", lambda directory: ran.append(directory) or 0)
    assert run_directory(str(task)) == 0
    assert ran == [str(task)]
    assert "this file system has no locks" in capsys.readouterr().out
