"""One reader of records: whatever the pieces, the same lines; what is damaged is told with its number."""

import os
from pathlib import Path

import pytest

from orchestrator.execution import RecordReader, TaskOutcome, aftermath, read_lines, read_pieces, records
from orchestrator.execution.base import log_tail
from runners.contract import Begin, End, encode_line
from tests.conftest import MakeTask, MakeTrial

LINES = [Begin("a", 1, 5), Begin("b", 1, 6), End("t", 2)]
WHOLE = b"".join(map(encode_line, LINES))


@pytest.mark.parametrize("size", [1, 7, len(WHOLE)])
def test_pieces_of_any_size_give_the_same_lines(size: int) -> None:
    reader = RecordReader()
    read = [line for at in range(0, len(WHOLE), size) for line in reader.feed(WHOLE[at : at + size])]
    assert [(line.number, line.line) for line in read] == list(enumerate(LINES, 1))
    assert sum(line.size + 1 for line in read) == reader.size == len(WHOLE)


def test_a_line_that_is_cut_is_none_and_damage_costs_no_other() -> None:
    reader = RecordReader()
    damaged = WHOLE.replace(b'"b"', b'"c"')
    first, second = reader.feed(damaged[:-1])
    assert (first.line, second.line) == (LINES[0], None)
    assert (second.number, second.problem) == (2, "damaged: the line does not end in its checksum")
    assert reader.is_cut
    assert [line.line for line in reader.feed(b"\n")] == [LINES[2]]
    assert not reader.is_cut


def test_a_line_that_is_too_long_is_refused_and_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_LINE_BYTES", 1000)
    reader = RecordReader()
    for _ in range(50):
        assert list(reader.feed(b"x" * 100)) == []
        assert sum(map(len, reader._pieces)) <= 1000
    read = list(reader.feed(b"\n" + WHOLE))
    assert read[0].problem == "5000 bytes in one line; at most 1000 are taken"
    assert [line.line for line in read[1:]] == LINES


def test_a_file_is_read_in_bounded_pieces_from_any_place(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(bytes(200_000))
    assert [len(piece) for piece in read_pieces(path, 10_000)] == [65536, 65536, 58928]
    assert list(read_pieces(tmp_path / "none")) == []
    path.write_bytes(WHOLE + b'{"type":')
    assert read_lines(tmp_path) == LINES


def test_a_task_that_dies_in_a_session_leaves_all_and_blames_none(make_trial: MakeTrial, make_task: MakeTask) -> None:
    task = make_task(*(make_trial(trial_id=name) for name in "abcd"))
    begun = {name: Begin(name, 1, 5) for name in "abc"}
    died = TaskOutcome(137, None, None, "the end")
    victims, left = aftermath(task, begun, frozenset("a"), died)
    reason = "the supervisor ended while the 2 trials of a session ran (exit code 137, signal 9)"
    assert [(victim.trial_id, victim.reason) for victim in victims] == [("b", reason), ("c", reason)]
    assert [trial.trial_id for trial in left] == ["d"]
    [victim], _ = aftermath(task, begun, frozenset("ab"), died)
    assert (victim.trial_id, victim.log_tail) == ("c", "the end")
    assert victim.reason == "the supervisor ended while this trial ran (exit code 137, signal 9)"
    assert aftermath(task, {}, frozenset(), died) == ((), task.trials)


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "none"])
def test_the_end_of_a_log_is_never_that_of_another_file(tmp_path: Path, kind: str) -> None:
    private, log = tmp_path / "private", tmp_path / "supervisor.log"
    private.write_text("a secret of the host's owner")
    if kind == "link":
        log.symlink_to(private)
    elif kind == "pipe":
        os.mkfifo(log)
    elif kind == "directory":
        log.mkdir()
    tail = log_tail(tmp_path)
    assert "secret" not in tail
    assert ("supervisor.log" in tail) == (kind != "none")
