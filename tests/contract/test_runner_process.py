"""One child process: what it may hold, what is killed with it."""

import pytest

from tests.contract.conftest import Interpret


def test_the_answer_cannot_be_shortened(interpret: Interpret) -> None:
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


def test_daemons_of_a_child_are_killed_with_it(interpret: Interpret) -> None:
    said = interpret("""
def function():
    for _ in range(5):
        daemon()
    return ok()
ended = supervise(function)
say(code=ended.code, left=kernel.descendants(os.getpid()))
""")
    assert said == {"code": 0, "left": []}


def test_a_stopped_child_is_killed_at_its_deadline(interpret: Interpret) -> None:
    said = interpret("""
ended = supervise(lambda: os.kill(os.getpid(), signal.SIGSTOP), seconds=2)
say(code=ended.code, stop=ended.stop.value)
""")
    assert said == {"code": -9, "stop": "deadline"}


def test_what_a_child_prints_is_kept_from_its_end(interpret: Interpret) -> None:
    said = interpret("""
def function():
    print("first" + "x" * 200000 + "last")
    return ok()
tail = supervise(function).log_tail
say(length=len(tail), end=tail[-5:])
""")
    assert said == {"length": 65536, "end": "last\n"}


@pytest.mark.parametrize("body", ["sys.exit(3)", "raise KeyboardInterrupt", "os.close(1); raise ValueError"])
def test_no_exception_leaves_the_child(interpret: Interpret, body: str) -> None:
    said = interpret(f"""
def function():
    {body}
me = os.getpid()
ended = supervise(function)
say(code=ended.code, same=os.getpid() == me)
""")
    assert said == {"code": 70, "same": True}


def test_a_child_is_the_first_to_be_killed_for_memory(interpret: Interpret) -> None:
    said = interpret("""
def function():
    return ok(score=int(open("/proc/self/oom_score_adj").read()))
say(score=decode_answer(supervise(function).data).facts["score"])
""")
    assert said == {"score": 1000}


def test_a_reason_with_a_byte_that_is_no_text_says_it_in_text(interpret: Interpret) -> None:
    said = interpret("""
def function():
    raise OSError("no such file: caf\\udce9")
say(reason=decode_answer(supervise(function).data).reason)
""")
    assert said["reason"] == r"OSError: no such file: caf\udce9"
