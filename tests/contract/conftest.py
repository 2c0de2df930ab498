"""Runners, and supervisors in interpreters of their own: one kills every descendant that it has."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runners.contract import NO_GUARDS, Guards, Status, Trial, TrialRecord
from runners.contract.record import FactValue
from tests.conftest import PROJECT
from tests.tasks import records, run, write_task

PRELUDE = """
import json, os, signal, sys, time
from runners.contract import Protocol
from runners.contract import Status
from runners.protocol.answer import Answer, decode_answer
from runners.protocol.turns import Turns
from runners.supervision import kernel
from runners.supervision.interrupts import Interrupts
from runners.supervision.process import run_child
from runners.supervision.room import Room
from runners.supervision.session import Allowance, Member, SessionRun
from runners.supervision.verdict import judge

def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()

def ok(**facts):
    return Answer(Status.OK, facts=facts)

interrupts = Interrupts()
interrupts.install()
kernel.become_subreaper()

def supervise(function, seconds=20):
    return run_child(function, time.monotonic() + seconds, interrupts)

def say(**what):
    print(json.dumps(what))

def append(*words):
    with open(sys.argv[1], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

def told():
    with open(sys.argv[1]) as file:
        return [line.split() for line in file]

def taking(name, seconds=0.01, fails=None, at=2):
    def function(turns):
        count = 0
        append(name, "builds")
        for _ in turns:
            append(name, count)
            if fails is not None and count == at:
                fails()
            time.sleep(seconds)
            count += 1
        append(name, turns.ended.value)
        return ok(turns=count)
    return function

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

def run_session(functions, protocol=Protocol(cycles=5, min_cycles=2), seconds=30, seed="a"):
    members = {name: Member(function, Allowance(seconds)) for name, function in functions.items()}
    processes = SessionRun(list(members.values()), protocol, seed, interrupts, Room(tuple)).run()
    return members, processes

def answers(members):
    judged = {name: judge(m.ended, 30) for name, m in members.items() if m.left_out is None}
    return {name: [a.status.value, a.reason, a.facts.get("turns")] for name, a in judged.items()}
"""
"""What their programs begin with."""

Interpret = Callable[[str], dict[str, Any]]


@pytest.fixture
def interpret(tmp_path: Path) -> Interpret:
    """What a program says; its processes append what they do to a file that `told` reads."""

    def said(script: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + script, tmp_path / "told"],
            cwd=PROJECT,
            env={**os.environ, "TAXMETER_LIFELINE": ""},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    return said


def told(tmp_path: Path) -> list[list[str]]:
    """The lines that the processes of a program appended, in words."""
    return [line.split() for line in (tmp_path / "told").read_text().splitlines()]


def ran(
    directory: Path, *trials: Trial, guards: Guards = NO_GUARDS, python: Path = Path(sys.executable)
) -> list[TrialRecord]:
    """The records of a task that `python -m runners` ran to its end."""
    write_task(directory, *trials, guards=guards)
    code, log = run(directory, python)
    assert code == 0, log
    return records(directory)


def facts_of(record: TrialRecord) -> Mapping[str, FactValue]:
    """The facts of a trial that was measured and verified, and of which nothing but its floor may have a problem."""
    assert (record.status, record.reason) == (Status.OK, None), record.log_tail
    assert record.verification is not None
    assert record.verification.passed
    assert record.verification.after_timing
    problems = {name for name, value in record.facts.items() if name.endswith("_problem") and value}
    assert not {name for name in problems if not name.startswith("floor_")}
    return record.facts
