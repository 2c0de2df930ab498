"""One child process: what it may hold, what is killed with it.

Each test runs in an interpreter of its own: a supervisor kills every descendant that it has.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import runners

ROOT = Path(runners.__file__).parents[1]

PRELUDE = """
import json, os, signal, sys, time
from runners.contract import Status
from runners.protocol.answer import Answer, decode_answer
from runners.supervision import kernel
from runners.supervision.interrupts import Interrupts
from runners.supervision.process import run_child

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
"""


def interpret(script: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script],
        cwd=ROOT,
        env={**os.environ, "TAXMETER_LIFELINE": ""},
        capture_output=True,
        timeout=60,
        check=True,
    )
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_a_child_holds_nothing_but_its_answer() -> None:
    said = interpret("""
def function():
    links = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            links.append(os.readlink("/proc/self/fd/" + name))
        except FileNotFoundError:
            pass  # the listing itself
    return ok(links=" ".join(link.partition(":")[0] for link in links))
say(links=decode_answer(supervise(function).data).facts["links"])
""")
    assert said["links"] == "/dev/null pipe pipe /memfd"


def test_the_answer_cannot_be_shortened() -> None:
    said = interpret("""
def function():
    for name in os.listdir("/proc/self/fd"):
        path = "/proc/self/fd/" + name
        if os.path.exists(path) and os.readlink(path).startswith("/memfd"):
            os.write(int(name), b"kept")
            os.ftruncate(int(name), 0)
ended = supervise(function)
say(data=ended.data[:4].decode(), log=ended.log_tail)
""")
    assert said["data"] == "kept"
    assert "PermissionError" in str(said["log"])


def test_daemons_of_a_child_are_killed_with_it() -> None:
    said = interpret("""
def function():
    for _ in range(5):
        daemon()
    return ok()
ended = supervise(function)
say(code=ended.code, left=kernel.descendants(os.getpid()))
""")
    assert said == {"code": 0, "left": []}


def test_a_stopped_child_is_killed_at_its_deadline() -> None:
    said = interpret("""
ended = supervise(lambda: os.kill(os.getpid(), signal.SIGSTOP), seconds=2)
say(code=ended.code, stop=ended.stop.value)
""")
    assert said == {"code": -9, "stop": "deadline"}


def test_what_a_child_prints_is_kept_from_its_end() -> None:
    said = interpret("""
def function():
    print("first" + "x" * 200000 + "last")
    return ok()
tail = supervise(function).log_tail
say(length=len(tail), end=tail[-5:])
""")
    assert said == {"length": 65536, "end": "last\n"}


@pytest.mark.parametrize("body", ["sys.exit(3)", "raise KeyboardInterrupt", "os.close(1); raise ValueError"])
def test_no_exception_leaves_the_child(body: str) -> None:
    said = interpret(f"""
def function():
    {body}
me = os.getpid()
ended = supervise(function)
say(code=ended.code, same=os.getpid() == me)
""")
    assert said == {"code": 70, "same": True}


def test_a_child_is_the_first_to_be_killed_for_memory() -> None:
    said = interpret("""
def function():
    return ok(score=int(open("/proc/self/oom_score_adj").read()))
say(score=decode_answer(supervise(function).data).facts["score"])
""")
    assert said == {"score": 1000}


def test_a_reason_with_a_byte_that_is_no_text_says_it_in_text() -> None:
    said = interpret("""
def function():
    raise OSError("no such file: caf\\udce9")
say(reason=decode_answer(supervise(function).data).reason)
""")
    assert said["reason"] == r"OSError: no such file: caf\udce9"
