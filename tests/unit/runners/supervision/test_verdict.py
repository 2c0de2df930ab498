"""From the end of a process to the status of its trial."""

from dataclasses import replace

import pytest

from runners.contract import CacheState, ContractError, Phases, Series, Status, Usage
from runners.protocol.answer import Answer, decode_answer, encode_answer, merge_phases
from runners.supervision.child import answer_of
from runners.supervision.process import MAX_ANSWER_BYTES, Ended, Stop
from runners.supervision.verdict import judge

SERIES = Series("sync", 1, (10, 11), (9, 9))
GOOD = Answer(Status.OK, None, Phases(build_s=0.5), (SERIES,), True, None, {"parameters": 3})
ENDED = Ended(encode_answer(GOOD), 0, None, 0, "", Usage(1, 0.0, 0.0, 0, 0, 0))


def test_an_answer_survives_its_journey() -> None:
    assert judge(ENDED, 10) == GOOD


@pytest.mark.parametrize(
    ("ended", "status", "words"),
    [
        (replace(ENDED, oom_kills=1), Status.OOM, "out of memory"),
        (replace(ENDED, oom_kills=1, code=-9, data=b""), Status.OOM, "out of memory"),
        (replace(ENDED, stop=Stop.DEADLINE, code=-15), Status.TIMEOUT, "no answer within 10 s"),
        (replace(ENDED, code=-200), Status.CRASHED, "killed by signal 200"),
        (replace(ENDED, code=1), Status.CRASHED, "exited with code 1 after its answer"),
        (replace(ENDED, data=b"\xff\x00"), Status.CRASHED, "unreadable"),
        (replace(ENDED, data=b"[" * 100_000), Status.CRASHED, "unreadable"),
        (replace(ENDED, data=bytes(MAX_ANSWER_BYTES + 1)), Status.CRASHED, "larger than 64 MiB"),
    ],
)
def test_the_way_it_ended_comes_before_the_answer(ended: Ended, status: Status, words: str) -> None:
    answer = judge(ended, 10)
    assert answer.status is status
    assert words in (answer.reason or "")


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b'{"status":"ok","surprise":1}',
        b'{"status":"timeout","reason":"me?"}',
        b'{"status":"crashed"}',
        b'{"status":"ok","facts":{"x":NaN}}',
        b'{"status":"ok","series":[{"mode":"sync","calls_per_sample":1,"durations_ns":[1],"cpu_ns":[]}]}',
    ],
)
def test_a_malformed_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ContractError):
        decode_answer(data)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ModuleNotFoundError("x", name="runners.gone"), Status.CRASHED, "ModuleNotFoundError"),
        (MemoryError(), Status.OOM, "MemoryError"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"), Status.OOM, "allocate"),
        (ValueError("first\nsecond"), Status.CRASHED, "ValueError: first"),
    ],
)
def test_what_a_trial_raises_becomes_its_answer(error: BaseException, status: Status, reason: str) -> None:
    def function() -> Answer:
        raise error

    answer = answer_of(function)
    assert answer.status is status
    assert reason in (answer.reason or "")


def test_phases_of_two_processes_are_joined() -> None:
    joined = merge_phases(Phases(reference_s=1.0, artifact_cache=CacheState.MISS), Phases(build_s=0.0))
    assert joined == Phases(reference_s=1.0, artifact_cache=CacheState.MISS, build_s=0.0)
