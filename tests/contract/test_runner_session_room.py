"""What becomes of processes for which there is no room beside all others of their session."""

import subprocess
from pathlib import Path

import pytest

from runners.contract import Interleaving
from tests.conftest import PROJECT
from tests.contract.conftest import Interpret, told
from tests.tasks import environment, records, trial, write_task

CROWDED = """
import os, sys
from runners.supervision import kernel
from runners.supervision.room import Room
from runners.supervision.start import run_directory

Room.shortage = lambda self: None if len(kernel.descendants(os.getpid())) < 2 else "no room"
sys.exit(run_directory(sys.argv[1]))
"""


@pytest.mark.parametrize(("baseline", "left_out"), [("a", "c"), ("b", "c"), ("c", "b")])
def test_what_has_no_room_has_its_turns_with_the_baseline_alone(
    interpret: Interpret, tmp_path: Path, baseline: str, left_out: str
) -> None:
    said = interpret(f"""
class Small(Room):
    def shortage(self):
        return None if len(kernel.descendants(os.getpid())) < 2 else "no room"

members = {{name: Member(taking(name), Allowance(30), name == "{baseline}") for name in "abc"}}
n = SessionRun(list(members.values()), Protocol(cycles=5), "a", interrupts, Small(tuple)).run()
say(answers=answers(members), n=n, out=[m.left_out for m in members.values()],
    pairs={{name: [m.paired, m.first_cycle] for name, m in members.items()}})
""")
    assert said["out"] == [None] * 3
    assert said["pairs"] == {name: ["no room", 5] if name == left_out else [None, 0] for name in "abc"}
    assert said["n"] == 2
    assert said["answers"] == {name: ["ok", None, 10 if name == baseline else 5] for name in "abc"}
    turns = [name for name, what in told(tmp_path) if what.isdigit()]
    # first the two that fit, then the third one and the baseline
    assert set(turns[:10]) == {"a", "b", "c"} - {left_out}
    assert set(turns[10:]) == {baseline, left_out}


def test_what_has_no_room_even_in_a_pair_or_no_baseline_to_pair_with_is_left_out(interpret: Interpret) -> None:
    said = interpret("""
class None_(Room):
    def shortage(self):
        return "no room"

def run(baseline):
    members = {name: Member(taking(name), Allowance(30), name == baseline) for name in "ab"}
    SessionRun(list(members.values()), Protocol(cycles=5), "a", interrupts, None_(tuple)).run()
    return {name: m.left_out for name, m in members.items()}

say(baseline=run("a"), none=run("z"))
""")
    assert said == {"baseline": {"a": None, "b": "no room"}, "none": {"a": None, "b": "no room"}}


@pytest.mark.environment
def test_in_the_rows_a_turn_of_a_pair_has_the_number_of_its_cycle(tmp_path: Path, cpu_python: Path) -> None:
    backends = ("eager", "torchscript", "onnxruntime")
    write_task(tmp_path, *(trial("tiny-bert", backend, timeout_s=100) for backend in backends))
    command = [cpu_python, "-c", CROWDED, tmp_path]
    done = subprocess.run(command, cwd=PROJECT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {record.trial_id.rpartition("-")[2]: record for record in records(tmp_path)}
    turns = {name: record.series[1].turns for name, record in found.items()}
    [paired] = [name for name, record in found.items() if record.session.interleaving is Interleaving.PAIRS]
    assert paired != "eager"
    assert found[paired].session.reason == "no room"
    [other] = {"torchscript", "onnxruntime"} - {paired}
    first, both = len(turns[other]), len(turns["eager"])
    assert (both, len(turns[paired])) == (2 * first, both)
    assert turns[paired][:first] == (0,) * first
    assert all(turns[paired][first:])
    assert all(turns["eager"])
