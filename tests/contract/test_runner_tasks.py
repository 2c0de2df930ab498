"""`python -m runners` on task directories: what it writes, how it survives its trials, how it ends."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import runners
from runners.contract import (
    CONTRACT_VERSION,
    EXIT_CANNOT_RECORD,
    BackendSpec,
    Begin,
    End,
    Environment,
    Line,
    Protocol,
    Status,
    Task,
    Trial,
    TrialRecord,
    TrialSpec,
    WorkloadSpec,
    decode_line,
    encode,
)

ROOT = Path(runners.__file__).parents[1]
QUICK = Protocol(
    warmup_min_calls=1,
    warmup_min_ms=1,
    turn_ms=1,
    cycles=3,
    min_cycles=2,
    sync_budget_ms=20,
    sync_min_samples=3,
    pipelined_budget_ms=20,
    pipelined_min_samples=2,
    pipelined_block_ms=5,
    floor_budget_ms=20,
)
ENDLESS = replace(QUICK, sync_budget_ms=600_000, turn_ms=60_000, max_samples=1_000_000)


def trial(name: str, backend: str = "python", timeout_s: int = 30, protocol: Protocol = QUICK) -> Trial:
    shape = {} if name.startswith("synthetic") else {"sequence_length": 16}
    spec = TrialSpec(
        workload=WorkloadSpec(name, batch=2, **shape),
        backend=BackendSpec(backend, {}),
        dtype="float32",
        device="cpu",
        threads=1,
        seed=3,
        protocol=protocol,
    )
    return Trial(f"{name}-{backend}", "key", 0, 0, 0, 1, timeout_s, spec)


def write_task(directory: Path, *trials: Trial, version: int = CONTRACT_VERSION) -> None:
    (directory / "task.json").write_text(json.dumps(encode(Task(version, "campaign", "task", "none", trials))))


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAXMETER")}
    return {**kept, **extra}


def start(directory: Path, python: Path = Path(sys.executable), **extra: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [python, "-m", "runners", directory],
        cwd=ROOT,
        env=environment(**extra),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def run(directory: Path, python: Path = Path(sys.executable)) -> tuple[int, str]:
    with start(directory, python) as process:
        output, _ = process.communicate(timeout=200)
    return process.returncode, output.decode()


def lines(directory: Path) -> list[Line]:
    return [decode_line(line) for line in (directory / "records.jsonl").read_bytes().splitlines()]


def records(directory: Path) -> list[TrialRecord]:
    return [line for line in lines(directory) if isinstance(line, TrialRecord)]


def wait_for_begin(directory: Path) -> None:
    deadline = time.monotonic() + 30
    while not any(isinstance(line, Begin) for line in lines_so_far(directory)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lines_so_far(directory: Path) -> list[Line]:
    """The whole lines; the runner may be in the middle of the next."""
    path = directory / "records.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [decode_line(line) for line in whole.splitlines()]


def gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_a_task_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-null"), trial("synthetic-sleep"))
    code, log = run(tmp_path)
    assert code == 0, log
    kinds = [type(line) for line in lines(tmp_path)]
    assert kinds == [Environment, Begin, TrialRecord, Begin, TrialRecord, End]
    first = lines(tmp_path)[0]
    assert isinstance(first, Environment)
    assert len(first.runner_sha256) == 64
    assert "python" in first.versions
    assert "runners" in log or "synthetic-null-python ok" in log


def test_a_good_record_is_complete(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-null"))
    run(tmp_path)
    (record,) = records(tmp_path)
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


def test_a_reference_is_computed_once_for_all_tasks_that_share_a_cache(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-null"), replace(trial("synthetic-null"), trial_id="twin", replicate=1))
    run(tmp_path)
    assert [record.phases.reference_s is None for record in records(tmp_path)] == [False, True]


@pytest.mark.parametrize(
    ("name", "status", "words", "code"),
    [
        ("crash", Status.CRASHED, "killed by SIGSEGV", -signal.SIGSEGV),
        ("exit", Status.CRASHED, "exited with code 173", 173),
        ("raise", Status.CRASHED, "ValueError: this workload raises on purpose", 70),
        ("garbage", Status.CRASHED, "unreadable", 0),
        ("print", Status.CRASHED, "printed more than 64 MiB", -signal.SIGKILL),
        ("wrong", Status.WRONG_OUTPUT, "before timing: input 0, output 0: relative_l2", 0),
        ("unsupported", Status.UNSUPPORTED, "unsupported on purpose", 0),
    ],
)
def test_a_fault_costs_its_own_trial_only(tmp_path: Path, name: str, status: Status, words: str, code: int) -> None:
    write_task(tmp_path, trial("synthetic-" + name), trial("synthetic-null"))
    assert run(tmp_path)[0] == 0
    faulty, healthy = records(tmp_path)
    assert (faulty.status, faulty.exit_code) == (status, code)
    assert words in (faulty.reason or "")
    assert "sync" not in [series.mode for series in faulty.series]
    assert healthy.status is Status.OK


def test_a_hanging_trial_times_out_although_it_ignores_the_request_to_end(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-hang", timeout_s=5), trial("synthetic-null"))
    assert run(tmp_path)[0] == 0
    assert [r.status for r in records(tmp_path)] == [Status.TIMEOUT, Status.OK]
    assert records(tmp_path)[0].exit_code == -signal.SIGKILL


def test_a_timeout_shows_where_the_trial_was(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-sleep", timeout_s=5, protocol=ENDLESS))
    run(tmp_path)
    (record,) = records(tmp_path)
    assert record.status is Status.TIMEOUT
    # between two of its calls of 50 ms each it is in the loop around them
    assert any(file in record.log_tail for file in ("synthetic.py", "timing.py"))


def test_a_failed_allocation_is_out_of_memory(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-memory"))
    code = f"import sys, resource; resource.setrlimit(resource.RLIMIT_DATA, ({400 << 20},) * 2); "
    code += "from runners.supervision.supervisor import run_task; sys.exit(run_task(sys.argv[1]))"
    assert resource.getrlimit(resource.RLIMIT_DATA)[1] == resource.RLIM_INFINITY
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, env=environment(), check=True)
    assert records(tmp_path)[0].status is Status.OOM


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (trial("bart"), "workload bart is unknown; known: bert-base"),
        (trial("tiny-bert", "tvm"), "backend tvm is unknown; known: eager"),
    ],
)
def test_an_unknown_name_is_unsupported(tmp_path: Path, asked: Trial, words: str) -> None:
    write_task(tmp_path, asked)
    assert run(tmp_path)[0] == 0
    (record,) = records(tmp_path)
    assert (record.status, record.exit_code) == (Status.UNSUPPORTED, None)
    assert words in (record.reason or "")


def test_an_environment_without_the_framework_says_so(tmp_path: Path) -> None:
    # The development environment has no torch
    write_task(tmp_path, trial("tiny-bert", "eager"))
    assert run(tmp_path)[0] == 0
    (record,) = records(tmp_path)
    assert (record.status, record.reason) == (Status.UNSUPPORTED, "the environment lacks the module torch")


@pytest.mark.parametrize("document", ["not json", "{}", '{"contract_version": 99}', '{"contract_version": 1}'])
def test_a_task_of_another_kind_is_refused(tmp_path: Path, document: str) -> None:
    (tmp_path / "task.json").write_text(document)
    code, log = run(tmp_path)
    assert code == 65
    assert "task.json" in log
    assert not (tmp_path / "records.jsonl").exists()


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_everything_without_a_record(tmp_path: Path, number: int, expected: int) -> None:
    write_task(tmp_path, trial("synthetic-sleep", protocol=ENDLESS))
    with start(tmp_path) as process:
        wait_for_begin(tmp_path)
        child = only_child(process.pid)
        process.send_signal(number)
        assert process.wait(20) == expected
    assert gone(child)
    assert records(tmp_path) == []


def test_the_end_of_the_orchestrator_ends_the_runner(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-sleep", protocol=ENDLESS))
    with start(tmp_path, TAXMETER_LIFELINE="stdin") as process:
        assert process.stdin is not None
        wait_for_begin(tmp_path)
        child = only_child(process.pid)
        process.stdin.write(b"still here")
        process.stdin.close()
        assert process.wait(20) == 75
    assert gone(child)
    assert records(tmp_path) == []


def test_a_killed_supervisor_leaves_a_begin_and_no_process(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-kill-supervisor"))
    assert run(tmp_path)[0] == -signal.SIGKILL
    assert [type(line) for line in lines(tmp_path)] == [Environment, Begin]


def only_child(pid: int) -> int:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
    raise AssertionError("no child was started")


def test_more_threads_than_cores_are_unsupported(tmp_path: Path) -> None:
    one = trial("synthetic-null")
    write_task(tmp_path, replace(one, spec=replace(one.spec, threads=4096)))
    run(tmp_path)
    [record] = records(tmp_path)
    assert record.status is Status.UNSUPPORTED
    assert str(record.reason).startswith("4096 threads on the ")


@pytest.mark.environment
def test_backends_agree_with_the_reference(tmp_path: Path, cpu_python: Path) -> None:
    backends = ("eager", "torchscript", "onnxruntime", "onnxruntime")
    trials = [trial("tiny-bert", backend, timeout_s=100) for backend in backends]
    write_task(tmp_path, *[replace(one, trial_id=f"t{i}") for i, one in enumerate(trials)])
    code, log = run(tmp_path, cpu_python)
    assert code == 0, log
    assert [(r.status, r.reason) for r in records(tmp_path)] == [(Status.OK, None)] * 4
    assert [r.phases.reference_s is None for r in records(tmp_path)] == [False, True, True, True]
    # All of a session are prepared before the first of them is measured
    assert [r.phases.artifact_cached for r in records(tmp_path)] == [None, None, False, True]
    assert {r.facts["parameters"] for r in records(tmp_path)} == {169664}
    assert records(tmp_path)[3].facts["onnx_provider"] == "CPUExecutionProvider"
    assert records(tmp_path)[0].facts["attn_implementation"] == "sdpa"
    sessions = [record.session for record in records(tmp_path)]
    assert sessions == [sessions[0]] * 4
    assert sessions[0] is not None
    assert sessions[0].processes == 4
    [turns] = {len(record.series[1].turns) for record in records(tmp_path)}
    assert QUICK.min_cycles <= turns <= QUICK.cycles


@pytest.mark.environment
def test_batches_of_a_task_share_the_reference_of_the_largest(tmp_path: Path, cpu_python: Path) -> None:
    trials = [
        replace(one, spec=replace(one.spec, workload=WorkloadSpec("tiny-bert", batch, sequence_length=16)))
        for batch in (1, 4, 2)
        for one in (trial("tiny-bert", "eager", timeout_s=100), trial("tiny-bert", "onnxruntime", timeout_s=100))
    ]
    write_task(tmp_path, *[replace(one, trial_id=f"t{i}") for i, one in enumerate(trials)])
    code, log = run(tmp_path, cpu_python)
    assert code == 0, log
    assert [(r.status, r.reason) for r in records(tmp_path)] == [(Status.OK, None)] * 6
    assert [r.phases.reference_s is None for r in records(tmp_path)] == [False] + [True] * 5
    assert [r.phases.artifact_cached for r in records(tmp_path)][1::2] == [False, True, True]


def test_a_disk_that_takes_no_record_is_no_fault_of_the_trial(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-sleep", protocol=ENDLESS, timeout_s=2))
    with start(tmp_path) as process:
        wait_for_begin(tmp_path)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, 1))
        output, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_CANNOT_RECORD
    assert f"{tmp_path / 'records.jsonl'}: [Errno 27] File too large" in output.decode()
