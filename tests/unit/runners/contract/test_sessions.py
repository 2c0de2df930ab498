"""Which trials are measured in turns with each other, and what a record may say of it."""

from dataclasses import replace

import pytest

from runners.contract import (
    LEGACY,
    ContractError,
    Interleaving,
    Protocol,
    Series,
    Session,
    Status,
    Stop,
    Trial,
    TrialRecord,
    decode_line,
    encode_line,
    sessions_of,
)
from runners.protocol.answer import Answer, decode_answer, encode_answer
from tests.conftest import MakeTrial


def names(*trials: Trial) -> list[list[str]]:
    return [[trial.trial_id for trial in session] for session in sessions_of(trials)]


def test_a_session_is_what_differs_in_nothing_but_its_backend(make_trial: MakeTrial) -> None:
    trials = [
        make_trial(trial_id="a", backend="eager"),
        make_trial(trial_id="other batch", backend="eager", batch=2),
        make_trial(trial_id="b", backend="onnxruntime", options={"level": "all"}),
        make_trial(trial_id="other round", backend="eager", round=2),
        make_trial(trial_id="twin", backend="eager", replicate=1),
        make_trial(trial_id="other threads", backend="eager", threads=2),
        make_trial(trial_id="other protocol", backend="eager", protocol=Protocol(turn_ms=60)),
    ]
    assert names(*trials) == [
        ["a", "b", "twin"], ["other batch"], ["other round"], ["other threads"], ["other protocol"]
    ]  # fmt: skip


def test_the_papers_procedure_and_what_is_to_be_alone_are_alone(make_trial: MakeTrial) -> None:
    legacy = [make_trial(trial_id=name, backend=name, protocol=Protocol(procedure=LEGACY)) for name in "ab"]
    assert names(*legacy) == [["a"], ["b"]]
    first, again = (make_trial(trial_id=name, backend=name, attempt=3) for name in "cd")
    assert names(first, replace(again, alone=True), replace(first, trial_id="e")) == [["c", "e"], ["d"]]


def record(series: Series, session: Session | None = None) -> TrialRecord:
    return TrialRecord("t", 1, Status.OK, None, 1, 2, series=(series,), session=session)


SYNC = Series("sync", 1, (5, 6, 7), (5, 6, 7), stopped=Stop.CYCLES, turns=(2, 1))
SESSION = Session("0123456789abcdef" * 2, Interleaving.TURNS, 3)


def test_a_record_comes_back_with_its_session_and_its_turns() -> None:
    said = record(SYNC, SESSION)
    assert decode_line(encode_line(said)) == said
    alone = record(SYNC, replace(SESSION, interleaving=Interleaving.ALONE, reason="no room"))
    assert decode_line(encode_line(alone)) == alone


@pytest.mark.parametrize("turns", [(2,), (2, 2), (3, 0), (4, -1)])
def test_turns_that_do_not_divide_the_samples_are_refused(turns: tuple[int, ...]) -> None:
    series = replace(SYNC, turns=turns)
    with pytest.raises(ContractError, match="the turns of sync do not add up to its samples"):
        decode_line(encode_line(record(series)))
    with pytest.raises(ContractError, match="the turns of sync do not add up to its samples"):
        decode_answer(encode_answer(Answer(Status.OK, series=(series,))))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"session_id": "x"}, "session_id: expected 32 hexadecimal digits"),
        ({"session_id": "A" * 32}, "session_id: expected 32 hexadecimal digits"),
        ({"processes": -1}, "-1 is no number of processes"),
        ({"processes": 2**31}, "2147483648 is no number of processes"),
        ({"reason": "why"}, "reason: needed for every interleaving but turns"),
        ({"interleaving": Interleaving.ALONE}, "reason: needed for every interleaving but turns"),
    ],
)
def test_a_session_that_cannot_be_is_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(ContractError, match=problem):
        decode_line(encode_line(record(SYNC, replace(SESSION, **change))))  # type: ignore[arg-type]
