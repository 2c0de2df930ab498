"""Which trials of a task a later start runs."""

from pathlib import Path

from runners.contract import Begin, Environment, Line, Status, TaskFiles, TrialRecord, sessions_of
from runners.supervision.start import MAX_ATTEMPTS, divide
from tests.conftest import MakeTask, MakeTrial


def record(trial_id: str, attempt: int = 1, status: Status = Status.OK) -> TrialRecord:
    return TrialRecord(trial_id, attempt, status, None, started_at_ns=1, finished_at_ns=2)


def test_what_is_left_comes_in_order_and_what_was_begun_comes_last(make_trial: MakeTrial, make_task: MakeTask) -> None:
    task = make_task(*(make_trial(trial_id=name) for name in "abcd"))
    lines = [Environment("task", {}, {}, "0"), Begin("b", 1, 1), Begin("a", 1, 1), record("a")]
    left, given_up = divide(task, lines)
    assert [(trial.trial_id, trial.attempt) for trial in left] == [("c", 1), ("d", 1), ("b", 2)]
    assert given_up == ()


def test_a_trial_with_a_record_is_never_run_again_whatever_became_of_it(
    make_trial: MakeTrial, make_task: MakeTask
) -> None:
    task = make_task(*(make_trial(trial_id=name) for name in "ab"))
    assert divide(task, [record("a", status=Status.CRASHED), record("b", attempt=2)]) == ((), ())


def test_what_a_guard_kept_from_counting_is_run_again_however_often(make_trial: MakeTrial, make_task: MakeTask) -> None:
    task = make_task(*(make_trial(trial_id=name) for name in "ab"))
    lines = [record("b")]
    for attempt in range(1, MAX_ATTEMPTS + 3):
        lines += [Begin("a", attempt, 1), record("a", attempt, Status.INFRASTRUCTURE_ERROR)]
    left, given_up = divide(task, lines)
    assert [(trial.trial_id, trial.attempt, trial.alone) for trial in left] == [("a", MAX_ATTEMPTS + 3, False)]
    assert given_up == ()


def test_a_trial_that_ends_every_start_is_given_up(make_trial: MakeTrial, make_task: MakeTask) -> None:
    task = make_task(make_trial(trial_id="a"))
    begun = [Begin("a", attempt, 1) for attempt in range(1, MAX_ATTEMPTS)]
    left, given_up = divide(task, begun)
    assert [trial.attempt for trial in left] == [MAX_ATTEMPTS]
    assert given_up == ()
    left, given_up = divide(task, [*begun, Begin("a", MAX_ATTEMPTS, 1)])
    assert left == ()
    assert [trial.trial_id for trial in given_up] == ["a"]


def test_a_session_that_ends_its_starts_is_divided_at_the_last(make_trial: MakeTrial, make_task: MakeTask) -> None:
    task = make_task(*(make_trial(trial_id=name, backend=name) for name in "abc"))
    lines: list[Line] = []
    for attempt in range(1, MAX_ATTEMPTS):
        lines += [Begin(name, attempt, 1) for name in "abc"]
        left, given_up = divide(task, lines)
        assert [(trial.trial_id, trial.attempt) for trial in left] == [(name, attempt + 1) for name in "abc"]
        assert given_up == ()
        together = len(sessions_of(left)) == 1
        assert together == (attempt < MAX_ATTEMPTS - 1)
    # Alone, the first is well, the second ends its start, and the third has not begun.
    lines += [Begin("a", MAX_ATTEMPTS, 1), record("a", MAX_ATTEMPTS), Begin("b", MAX_ATTEMPTS, 1)]
    left, given_up = divide(task, lines)
    assert [(trial.trial_id, trial.attempt) for trial in left] == [("c", MAX_ATTEMPTS)]
    assert [trial.trial_id for trial in given_up] == ["b"]


def test_the_starts_of_a_directory_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    files = TaskFiles(str(tmp_path))
    for number in (10, 2, 9):
        Path(files.again(number).directory).mkdir()
    (tmp_path / "again-").mkdir()
    (tmp_path / "cache").mkdir()
    names = [Path(start.directory).name for start in files.starts()]
    assert names == [tmp_path.name, "again-2", "again-9", "again-10"]
    assert [start.directory for start in TaskFiles(str(tmp_path / "none")).starts()] == [str(tmp_path / "none")]
