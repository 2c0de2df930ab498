"""A real runner beside a real neighbour on its core: what the guard of the load makes of it.

Other work on this machine counts as a neighbour, too, so that the limits are wide: a core that somebody keeps busy is
far above them, and one that is merely shared is below them most of the time. Every wait has minutes.
"""

import os
import signal
import subprocess
import sys
import time
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
from tests.recording import neighbour, wait_for
from tests.tasks import QUICK, environment, lines_so_far, records, trial, write_task

pytestmark = pytest.mark.slow

CORE = max(os.sched_getaffinity(0))
LONG = replace(QUICK, turn_ms=1500, cycles=1, min_cycles=1)


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


def waiting(process: "subprocess.Popen[bytes]") -> bytes:
    """The line that says what a runner waits for; some machines set variables, and then it names those before."""
    assert process.stdout is not None
    return next(line for line in process.stdout if line.startswith(b"waiting"))


def results(record: TrialRecord) -> dict[GuardMoment, GuardResult]:
    assert {one.guard for one in record.guards} == {"load"}
    return {one.moment: one for one in record.guards}


@pytest.mark.quiet
def test_a_trial_waits_until_the_neighbour_is_gone_and_its_time_begins_then(tmp_path: Path) -> None:
    write(tmp_path, GuardPolicy.WAIT, trial("synthetic-null", timeout_s=6), permille=950)
    with start(tmp_path) as process:
        with neighbour(CORE):
            told = waiting(process)
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


@pytest.mark.quiet
def test_a_neighbour_that_comes_meanwhile_takes_the_trial_its_ok_but_not_its_samples(tmp_path: Path) -> None:
    write(tmp_path, GuardPolicy.WAIT, trial("synthetic-sleep", protocol=replace(LONG, turn_ms=8000)), permille=700)
    with start(tmp_path) as process:
        wait_for(lambda: any(isinstance(line, Begin) for line in lines_so_far(tmp_path)), 300)
        with neighbour(CORE):
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
    with neighbour(CORE), start(tmp_path, TAXMETER_LIFELINE="stdin") as process:
        assert process.stdin is not None
        assert b"waiting up to 600 s" in waiting(process)
        process.stdin.write(b"still here")
        if how == "lifeline":
            process.stdin.close()
        else:
            process.stdin.flush()
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == (75 if how == "lifeline" else 143)
    assert not any(isinstance(line, Begin) for line in lines_so_far(tmp_path))
