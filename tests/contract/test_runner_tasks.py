"""`python -m runners` on task directories: what it writes, how it survives its trials, how it ends."""

import resource
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from runners.contract import EXIT_CANNOT_RECORD, Begin, End, Environment, Line, Status, Trial, TrialRecord
from tests.contract.conftest import ran
from tests.tasks import (
    ENDLESS,
    QUICK,
    gone,
    lines,
    named,
    recorded,
    records,
    run,
    start,
    trial,
    wait_for_begin,
    write_task,
)

FAULTS = {
    "crash": (Status.CRASHED, "killed by SIGSEGV", -signal.SIGSEGV),
    "exit": (Status.CRASHED, "exited with code 173", 173),
    "raise": (Status.CRASHED, "ValueError: this workload raises on purpose", 70),
    "garbage": (Status.CRASHED, "unreadable", 0),
    "print": (Status.CRASHED, "printed more than 64 MiB", -signal.SIGKILL),
    "wrong": (Status.WRONG_OUTPUT, "before timing: input 0, output 0: relative_l2", 0),
    "unsupported": (Status.UNSUPPORTED, "unsupported on purpose", 0),
    # it ignores the request to end
    "hang": (Status.TIMEOUT, "", -signal.SIGKILL),
    "bart": (Status.UNSUPPORTED, "workload bart is unknown; known: bert-base", None),
    "iree": (Status.UNSUPPORTED, "backend iree is unknown; known: eager", None),
    # The development environment has no torch
    "torch": (Status.UNSUPPORTED, "the environment lacks the module torch", 0),
    "threads": (Status.UNSUPPORTED, "4096 threads on the ", None),
}
"""Status, reason and exit code that a trial which fails leaves in its record."""
NULL = trial("synthetic-null")
OWN = {
    "bart": trial("bart"),
    "iree": trial("tiny-bert", "iree"),
    "torch": trial("tiny-bert", "eager"),
    "threads": replace(NULL, spec=replace(NULL.spec, threads=4096)),
    "hang": trial("synthetic-hang", timeout_s=3),
}
"""Those that are not of the workload with their name."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The lines of a task with all faults, and a good trial after each."""
    directory = tmp_path_factory.mktemp("faults")
    trials: dict[str, Trial] = {}
    for number, name in enumerate(FAULTS, 1):
        trials[name] = OWN.get(name) or trial(f"synthetic-{name}")
        trials[f"after-{name}"] = trial("synthetic-null", batch=number)
    ran(directory, *named(trials))
    return lines(directory)


def test_a_task_from_its_first_line_to_its_last(measured: list[Line]) -> None:
    first, *between, last = measured
    assert isinstance(first, Environment)
    assert len(first.runner_sha256) == 64
    assert "python" in first.versions
    assert isinstance(last, End)
    recorded = [line.trial_id for line in between if isinstance(line, TrialRecord)]
    assert sorted(recorded) == sorted([*FAULTS, *(f"after-{name}" for name in FAULTS)])
    begun = [line.trial_id for line in between if isinstance(line, Begin)]
    assert len(begun) == len(set(begun))
    assert set(begun) >= {f"after-{name}" for name in FAULTS}


def test_a_good_record_is_complete(measured: list[Line]) -> None:
    [record] = [line for line in measured if isinstance(line, TrialRecord) and line.trial_id == "after-crash"]
    assert (record.status, record.reason, record.exit_code, record.log_tail) == (Status.OK, None, 0, "")
    assert [series.mode for series in record.series] == ["warmup", "sync", "pipelined", "floor", "floor_large"]
    assert all(duration > 0 for series in record.series for duration in series.durations_ns)
    assert record.series[2].calls_per_sample > 1
    assert record.verification is not None
    assert record.verification.passed
    assert record.verification.after_timing
    assert record.phases.reference_s is not None
    assert record.phases.first_call_s is not None
    assert record.usage is not None
    assert record.usage.max_rss_bytes > 0
    assert record.conditions_before.keys() == record.conditions_after.keys() != set()
    assert record.started_at_ns < record.finished_at_ns


def test_a_later_task_takes_what_an_earlier_one_made_unless_it_was_changed(tmp_path: Path) -> None:
    seen = []
    for task in ("first", "second", "third"):
        (tmp_path / task).mkdir()
        if task == "third":
            for document in (tmp_path / "kept").glob("reference-*/document*"):
                document.write_bytes(document.read_bytes()[:-1] + b"?")
        [record] = recorded(
            tmp_path / task, Path(sys.executable), trial("synthetic-null"), cache=tmp_path / "kept"
        ).values()
        assert record.status is Status.OK
        seen.append((record.phases.reference_cache, record.phases.reference_s is None))
    assert seen == [("miss", False), ("hit", True), ("refused", False)]
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_its_own_trial_only(measured: list[Line], name: str) -> None:
    of_trials = {line.trial_id: line for line in measured if isinstance(line, TrialRecord)}
    record, (status, reason, code) = of_trials[name], FAULTS[name]
    assert (record.status, record.exit_code) == (status, code)
    assert reason in (record.reason or "")
    assert "sync" not in [series.mode for series in record.series]
    assert of_trials[f"after-{name}"].status is Status.OK


def test_a_timeout_shows_where_the_trial_was(tmp_path: Path) -> None:
    [record] = ran(tmp_path, trial("synthetic-sleep", timeout_s=2, protocol=ENDLESS))
    assert record.status is Status.TIMEOUT
    # between two of its calls of 50 ms each it is in the loop around them
    assert any(file in record.log_tail for file in ("synthetic.py", "timing.py"))


@pytest.mark.parametrize("document", ["not json", "{}", '{"contract_version": 99}', '{"contract_version": 1}'])
def test_a_task_of_another_kind_is_refused(tmp_path: Path, document: str) -> None:
    (tmp_path / "task.json").write_text(document)
    code, log = run(tmp_path)
    assert code == 65
    assert "task.json" in log
    assert not (tmp_path / "records.jsonl").exists()


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (None, 75)])
def test_a_signal_and_the_end_of_the_orchestrator_end_everything_without_a_record(
    tmp_path: Path, number: signal.Signals | None, expected: int
) -> None:
    write_task(tmp_path, trial("synthetic-sleep", protocol=ENDLESS))
    with start(tmp_path, TAXMETER_LIFELINE="stdin") as process:
        assert process.stdin is not None
        wait_for_begin(tmp_path)
        child = only_child(process.pid)
        if number is None:
            process.stdin.write(b"still here")
            process.stdin.close()
        else:
            process.send_signal(number)
        assert process.wait(20) == expected
    assert gone(child)
    assert records(tmp_path) == []


def only_child(pid: int) -> int:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
    raise AssertionError("no child was started")


@pytest.mark.environment
def test_backends_agree_with_the_reference(tmp_path: Path, cpu_python: Path) -> None:
    backends = ("eager", "torchscript", "onnxruntime", "onnxruntime")
    trials = {f"t{i}": trial("tiny-bert", backend, timeout_s=100) for i, backend in enumerate(backends)}
    found = ran(tmp_path, *named(trials), python=cpu_python)
    assert [(record.status, record.reason) for record in found] == [(Status.OK, None)] * 4
    assert [record.phases.reference_s is None for record in found] == [False, True, True, True]
    # All of a session are prepared before the first of them is measured
    assert [record.phases.artifact_cache for record in found] == [None, None, "miss", "hit"]
    assert {record.facts["parameters"] for record in found} == {169664}
    assert found[3].facts["onnx_provider"] == "CPUExecutionProvider"
    assert found[0].facts["attn_implementation"] == "sdpa"
    assert found[0].session is not None
    assert [record.session for record in found] == [found[0].session] * 4
    assert found[0].session.processes == 4
    [turns] = {len(record.series[1].turns) for record in found}
    assert QUICK.min_cycles <= turns <= QUICK.cycles


@pytest.mark.environment
def test_batches_of_a_task_share_the_reference_of_the_largest(tmp_path: Path, cpu_python: Path) -> None:
    backends = [(batch, backend) for batch in (1, 4, 2) for backend in ("eager", "onnxruntime")]
    trials = {str(each): trial("tiny-bert", each[1], timeout_s=100, batch=each[0]) for each in backends}
    found = ran(tmp_path, *named(trials), python=cpu_python)
    assert [(record.status, record.reason) for record in found] == [(Status.OK, None)] * 6
    assert [record.phases.reference_s is None for record in found] == [False] + [True] * 5
    assert [record.phases.artifact_cache for record in found][1::2] == ["miss", "hit", "hit"]


def test_a_disk_that_takes_no_record_is_no_fault_of_the_trial(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-sleep", protocol=ENDLESS, timeout_s=2))
    with start(tmp_path) as process:
        wait_for_begin(tmp_path)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, 1))
        output, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_CANNOT_RECORD
    assert f"{tmp_path / 'records.jsonl'}: [Errno 27] File too large" in output.decode()
