"""A session of forked processes: who has the turn, who is stopped, and what one that fails costs the others."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.contract.conftest import PRELUDE, Interpret, told


def test_each_builds_by_itself_and_has_one_turn_in_each_cycle_and_ends_by_itself(
    interpret: Interpret, tmp_path: Path
) -> None:
    said = interpret('members, n = run_session({n: taking(n) for n in "abc"})\nsay(answers=answers(members), n=n)')
    assert said == {"answers": {name: ["ok", None, 5] for name in "abc"}, "n": 3}
    lines = told(tmp_path)
    assert lines[:3] == [[name, "builds"] for name in "abc"]
    cycles = [lines[3 + 3 * number : 6 + 3 * number] for number in range(5)]
    for number, cycle in enumerate(cycles):
        assert sorted(cycle) == [[name, str(number)] for name in "abc"]
    assert lines[18:] == [[name, "cycles"] for name in "abc"]


def test_the_order_of_turns_is_random_and_the_same_for_the_same_seed(interpret: Interpret, tmp_path: Path) -> None:
    orders = []
    for seed in "xxy":
        interpret(f'say(n=run_session({{n: taking(n, 0) for n in "abc"}}, seed="{seed}")[1])')
        orders.append(["".join(name for name, what in told(tmp_path) if what == str(turn)) for turn in range(5)])
        (tmp_path / "told").unlink()
    assert orders[0] == orders[1] != orders[2]
    assert len(set(orders[0])) > 1


def test_whoever_has_no_turn_stands_still_with_all_its_threads_and_children(interpret: Interpret) -> None:
    said = interpret("""
import threading

def busy(name):
    def function(turns):
        # a thread and a child of its own that never rest
        threading.Thread(target=spin, args=(30,), daemon=True).start()
        if os.fork() == 0:
            spin(30)
            os._exit(0)
        for _ in turns:
            spin(0.1)
        return ok()
    return function

def ticks():
    used = {}
    for pid in kernel.descendants(os.getppid()):
        if pid != os.getpid():
            fields = open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()
            used[pid] = int(fields[11]) + int(fields[12])
    return used

def watcher(turns):
    moved, seen = 0, 0
    for _ in turns:
        before = ticks()
        spin(0.2)
        after = ticks()
        seen = max(seen, len(before))
        moved += sum(after[pid] - before[pid] for pid in before)
    return ok(moved=moved, seen=seen)

members, _ = run_session({"a": busy("a"), "b": busy("b"), "watcher": watcher})
facts = decode_answer(members["watcher"].ended.data).facts
say(moved=facts["moved"], seen=facts["seen"])
""")
    assert said == {"moved": 0, "seen": 4}


@pytest.mark.parametrize(
    ("fails", "status", "reason"),
    [
        ("lambda: os.kill(os.getpid(), signal.SIGKILL)", "crashed", "killed by SIGKILL"),
        ("lambda: os._exit(3)", "crashed", "exited with code 3 without an answer"),
        ("lambda: [os.write(1, b'x' * 65536) for _ in iter(int, 1)]", "crashed", "printed more than 64 MiB"),
        ("lambda: 1 / 0", "crashed", "ZeroDivisionError: division by zero"),
        ("lambda: time.sleep(60)", "timeout", "no answer within 30 s"),
    ],
)
def test_one_that_fails_in_its_turn_ends_alone(
    interpret: Interpret, tmp_path: Path, fails: str, status: str, reason: str
) -> None:
    said = interpret(f"""
functions = {{"a": taking("a"), "bad": taking("bad", fails={fails}), "c": taking("c")}}
members, n = run_session(functions, seconds=3)
say(answers=answers(members), n=n, left=kernel.descendants(os.getpid()))
""")
    good = ["ok", None, 5]
    assert said == {"answers": {"a": good, "bad": [status, reason, None], "c": good}, "n": 3, "left": []}
    assert [what for name, what in told(tmp_path) if name == "bad"] == ["builds", "0", "1", "2"]


def test_one_that_fails_before_its_first_turn_is_none_of_the_processes(interpret: Interpret) -> None:
    said = interpret("""
members, n = run_session({"a": taking("a"), "bad": lambda turns: ok(turns=0), "c": taking("c")})
say(answers=answers(members), n=n)
""")
    assert said["n"] == 2
    assert said["answers"] == {"a": ["ok", None, 5], "bad": ["ok", None, 0], "c": ["ok", None, 5]}


KERNEL = """
# The kernel's counter is a file here: it is counted up by hand, as the kernel does when it kills.
counter = sys.argv[1] + ".kills"
open(counter, "w").write("0")
kernel.oom_kills = lambda: int(open(counter).read())
"""
OUT_OF_MEMORY = ["oom", "the kernel killed a process of the trial: out of memory", None]


@pytest.mark.parametrize(("kills", "end"), [(0, ["crashed", "killed by SIGKILL", None]), (1, OUT_OF_MEMORY)])
def test_one_that_is_killed_while_it_is_stopped_ends_alone(
    interpret: Interpret, kills: int, end: list[str | None]
) -> None:
    said = interpret(f"""{KERNEL}
def killer(turns):
    for number, _ in enumerate(turns):
        if number == 1:
            [victim] = [p for p in kernel.descendants(os.getppid()) if p != os.getpid()]
            open(counter, "w").write("{kills}")
            os.kill(victim, signal.SIGKILL)
    return ok(turns=number)

members, n = run_session({{"victim": taking("victim"), "killer": killer}})
say(answers=answers(members), left=kernel.descendants(os.getpid()))
""")
    assert said == {"answers": {"victim": end, "killer": ["ok", None, 4]}, "left": []}


def test_whose_child_the_kernel_kills_for_memory_is_out_of_it(interpret: Interpret) -> None:
    said = interpret(f"""{KERNEL}
def own(turns):
    for number, _ in enumerate(turns):
        if number == 1:
            child = os.fork()
            if child == 0:
                time.sleep(60)
            open(counter, "w").write("1")
            os.kill(child, signal.SIGKILL)
    return ok(turns=number)

members, n = run_session({{"other": taking("other"), "own": own}})
say(answers=answers(members))
""")
    assert said["answers"] == {"other": ["ok", None, 5], "own": OUT_OF_MEMORY}


def test_what_a_dead_process_left_behind_is_gone_before_the_next_turn(interpret: Interpret) -> None:
    said = interpret("""
def leaving(turns):
    for number, _ in enumerate(turns):
        daemon()
        os._exit(5)

def looking(turns):
    seen = 0
    for _ in turns:
        seen = len([p for p in kernel.descendants(os.getppid()) if p != os.getpid()])
    return ok(turns=seen)

members, n = run_session({"leaving": leaving, "looking": looking})
say(answers=answers(members))
""")
    assert said["answers"] == {
        "leaving": ["crashed", "exited with code 5 without an answer", None],
        "looking": ["ok", None, 0],
    }


def test_a_process_holds_nothing_of_another_one(interpret: Interpret) -> None:
    said = interpret("""
def function(turns):
    links = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            links.append(os.readlink("/proc/self/fd/" + name).partition(":")[0])
        except FileNotFoundError:
            pass  # the listing itself
    for _ in turns:
        pass
    return ok(links=" ".join(sorted(links)))

members, _ = run_session({name: function for name in "abc"})
say(links=[decode_answer(m.ended.data).facts["links"] for m in members.values()])
""")
    # its input, its output, its answer, and the two pipes of its turns
    assert said["links"] == ["/dev/null /memfd pipe pipe pipe pipe"] * 3


def test_the_time_of_each_stands_still_while_others_have_their_turn(interpret: Interpret) -> None:
    said = interpret("""
members, n = run_session({"quick": taking("quick"), "slow": taking("slow", 0.8)}, seconds=30)
say(answers=answers(members), spent={name: 30 - m.allowance.left_s for name, m in members.items()})
""")
    assert said["answers"] == {"quick": ["ok", None, 5], "slow": ["ok", None, 5]}
    assert said["spent"]["slow"] >= 4.0
    assert said["spent"]["quick"] < said["spent"]["slow"] - 2.0


def test_a_process_whose_time_runs_out_ends_its_turns_and_says_that_they_are_few(
    interpret: Interpret, tmp_path: Path
) -> None:
    said = interpret("""
protocol = Protocol(cycles=9, min_cycles=8)
members, n = run_session({"quick": taking("quick"), "slow": taking("slow", 1.0)}, protocol, seconds=5)
say(answers=answers(members))
""")
    status, _, turns = said["answers"]["slow"]
    assert (said["answers"]["quick"], status) == (["ok", None, 9], "ok")
    assert 1 <= turns < 8
    assert ["slow", "short_series"] in told(tmp_path)


def test_the_slowest_ends_the_session_after_the_least_number_of_cycles(interpret: Interpret, tmp_path: Path) -> None:
    said = interpret("""
def spent(turns):
    count = 0
    for _ in turns:
        count += 1
        turns.is_spent = True
    return ok(turns=count)

members, n = run_session({"quick": taking("quick"), "slow": spent})
say(answers=answers(members))
""")
    assert said["answers"] == {"quick": ["ok", None, 2], "slow": ["ok", None, 2]}
    assert ["quick", "budget"] in told(tmp_path)


@pytest.mark.parametrize("how", ["signal", "lifeline"])
def test_the_end_of_the_supervisor_ends_every_process_stopped_or_not(tmp_path: Path, how: str) -> None:
    script = """
def waiting(name):
    def function(turns):
        for _ in turns:
            append(name, os.getpid())
            time.sleep(60)
    return function

from runners.supervision.interrupts import Interrupted
try:
    run_session({name: waiting(name) if name == "a" else taking(name) for name in "abc"})
except Interrupted as interruption:
    assert kernel.descendants(os.getpid()) == []
    sys.exit(interruption.exit_code)
"""
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, tmp_path / "told"],
        cwd=PROJECT,
        env={**os.environ, "TAXMETER_LIFELINE": "stdin"},
        stdin=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        deadline = time.monotonic() + 30
        while not (tmp_path / "told").exists() or not any(name == "a" for name, _ in told(tmp_path)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        assert len(children) == 3
        if how == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.close()
        assert process.wait(20) == (143 if how == "signal" else 75)
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
