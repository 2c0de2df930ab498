"""A real runner beside a real neighbour on its core: what the guard of the load makes of it.

Other work on this machine counts as a neighbour, too, so that the limits are wide: a core that somebody keeps busy is
far above them, and one that is merely shared is below them most of the time. Every wait has minutes.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from runners.contract import (
    NO_GUARDS,
    Begin,
    GuardMoment,
    GuardOutcome,
    GuardPolicy,
    GuardResult,
    LoadGuard,
    Status,
    Trial,
    TrialRecord,
)
from tests.conftest import PROJECT
from tests.tasks import QUICK, environment, lines_so_far, records, trial, write_task

pytestmark = pytest.mark.slow

CORE = max(os.sched_getaffinity(0))
BUSY = "import os, sys\nwhile True: pass"
LONG = replace(QUICK, turn_ms=1500, cycles=1, min_cycles=1)


@contextmanager
def neighbour() -> Iterator[None]:
    """Somebody who keeps the trial's core busy until the block ends."""
    command = ["taskset", "--cpu-list", str(CORE), sys.executable, "-c", BUSY]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def write(directory: Path, policy: GuardPolicy, *trials: Trial, permille: int = 500, wait_s: int = 300) -> None:
    load = LoadGuard(policy, max_busy_permille=permille, window_ms=500, wait_s=wait_s)
    write_task(directory, *trials, guards=replace(NO_GUARDS, load=load))


def start(directory: Path, **extra: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        ["taskset", "--cpu-list", str(CORE), sys.executable, "-m", "runners", directory],
        cwd=PROJECT,
        env=environment(**extra),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def run(directory: Path) -> str:
    with start(directory) as process:
        output, _ = process.communicate(timeout=500)
    assert process.returncode == 0, output.decode()
    return output.decode()


def results(record: TrialRecord) -> dict[GuardMoment, GuardResult]:
    assert {one.guard for one in record.guards} == {"load"}
    return {one.moment: one for one in record.guards}


def wait_for(condition: str, directory: Path) -> None:
    deadline = time.monotonic() + 300
    while not any(type(line).__name__ == condition for line in lines_so_far(directory)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_trial_beside_a_neighbour_is_flagged_and_counts(tmp_path: Path) -> None:
    write(tmp_path, GuardPolicy.FLAG, trial("synthetic-sleep", protocol=LONG))
    with neighbour():
        run(tmp_path)
    [record] = records(tmp_path)
    assert (record.status, record.reason) == (Status.OK, None)
    seen = results(record)
    assert [seen[moment].outcome for moment in GuardMoment] == [GuardOutcome.FLAGGED] * 2
    for one in seen.values():
        assert one.observed is not None
        assert 500 < one.observed <= 1000
        assert (one.limit, one.unit, one.detail) == (500, "permille", f"cores {CORE}")


def test_an_error_runs_no_trial_beside_a_neighbour_and_the_next_start_tries_it_again(tmp_path: Path) -> None:
    write(tmp_path, GuardPolicy.ERROR, trial("synthetic-sleep", protocol=LONG))
    with neighbour():
        run(tmp_path)
    [record] = records(tmp_path)
    assert (record.status, record.exit_code, record.series) == (Status.INFRASTRUCTURE_ERROR, None, ())
    assert record.reason == "guard load: others keep the trial's cores busy; the trial did not run"
    assert results(record)[GuardMoment.BEFORE].outcome is GuardOutcome.FAILED
    run(tmp_path)
    [again] = records(tmp_path / "again-2")
    assert again.attempt == 2


@pytest.mark.quiet
def test_a_trial_waits_until_the_neighbour_is_gone_and_its_time_begins_then(tmp_path: Path) -> None:
    write(tmp_path, GuardPolicy.WAIT, trial("synthetic-null", timeout_s=6), permille=950)
    with start(tmp_path) as process:
        assert process.stdout is not None
        with neighbour():
            told = process.stdout.readline()
            time.sleep(7)  # longer than the trial may take
        rest, _ = process.communicate(timeout=500)
    assert process.returncode == 0, rest.decode()
    [record] = records(tmp_path)
    before = results(record)[GuardMoment.BEFORE]
    assert before.outcome is GuardOutcome.WAITED
    assert before.waited_s > 0
    assert record.exit_code is not None
    assert record.status is not Status.TIMEOUT
    assert b"waiting up to 300 s: guard load: others keep the trial's cores busy" in told


def test_a_wait_that_is_in_vain_is_an_infrastructure_error_that_says_so(tmp_path: Path) -> None:
    write(tmp_path, GuardPolicy.WAIT, trial("synthetic-null"), wait_s=2)
    with neighbour():
        run(tmp_path)
    [record] = records(tmp_path)
    assert record.status is Status.INFRASTRUCTURE_ERROR
    assert record.reason == (
        "guard load: others keep the trial's cores busy, still after waiting 2 s; the trial did not run"
    )


@pytest.mark.quiet
def test_a_neighbour_that_comes_meanwhile_takes_the_trial_its_ok_but_not_its_samples(tmp_path: Path) -> None:
    write(tmp_path, GuardPolicy.WAIT, trial("synthetic-sleep", protocol=replace(LONG, turn_ms=8000)), permille=700)
    with start(tmp_path) as process:
        wait_for("Begin", tmp_path)
        with neighbour():
            assert process.wait(300) == 0
    [record] = records(tmp_path)
    assert record.status is Status.INFRASTRUCTURE_ERROR
    assert record.reason == (
        "guard load, during the trial: others keep the trial's cores busy; what it measured does not count"
    )
    assert "sync" in [series.mode for series in record.series]
    assert results(record)[GuardMoment.AFTER].outcome is GuardOutcome.FAILED


@pytest.mark.parametrize("how", ["lifeline", "signal"])
def test_a_runner_that_waits_ends_when_it_has_to(tmp_path: Path, how: str) -> None:
    write(tmp_path, GuardPolicy.WAIT, trial("synthetic-null"), wait_s=600)
    with neighbour(), start(tmp_path, TAXMETER_LIFELINE="stdin") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b"waiting up to 600 s" in process.stdout.readline()
        process.stdin.write(b"still here")
        if how == "lifeline":
            process.stdin.close()
        else:
            process.stdin.flush()
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == (75 if how == "lifeline" else 143)
    assert not any(isinstance(line, Begin) for line in lines_so_far(tmp_path))


def test_a_task_without_guards_watches_nothing(tmp_path: Path) -> None:
    write_task(tmp_path, trial("synthetic-null"))
    run(tmp_path)
    [record] = records(tmp_path)
    assert (record.status, record.guards) == (Status.OK, ())
