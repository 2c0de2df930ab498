"""What the twins of a structure prove, and what becomes of a row where they prove nothing."""

from dataclasses import replace
from typing import Any

import pytest

from runners.contract import BackendSpec, Series, Status, TrialSpec, WorkloadSpec
from runners.examination.counts import counts_as_text, operation_facts, parsed_counts
from runners.protocol.answer import Answer
from runners.supervision.floor import Floors, difference
from tests.conftest import QUICK, MakeTrial

OPERATIONS = {"aten.linear.default": 12, "aten.view.default": 3}


def sync(samples: int = 100, pressure_ns: int | None = 0, waiting: int = 0) -> Series:
    durations = (1200,) * waiting + (1000,) * (samples - waiting)
    return Series("sync", 1, durations, (1000,) * samples, pressure_total_ns=pressure_ns)


def answer(series: Series | None = None, operations: dict[str, int] | None = OPERATIONS) -> Answer:
    return Answer(Status.OK, series=(series or sync(),), facts=operation_facts(operations))


class Runner:
    """Measures nothing: gives the answers of a script, by threads and batch."""

    def __init__(self, **scripted: Answer) -> None:
        self.scripted = scripted
        self.asked: list[TrialSpec] = []

    def __call__(self, spec: TrialSpec) -> Answer:
        self.asked.append(spec)
        kind = "threaded" if spec.threads > 1 else "large" if spec.workload.batch > 1 else "small"
        return self.scripted.get(kind, answer())


def floored(make_trial: MakeTrial, threads: int = 2, operations: Any = OPERATIONS, **scripted: Answer) -> Answer:
    return Floors().extended(answer(operations=operations), make_trial(threads=threads), Runner(**scripted))


def test_a_floor_is_of_three_twins_and_valid_where_all_operators_are_alike(make_trial: MakeTrial) -> None:
    found = floored(make_trial)
    assert [series.mode for series in found.series] == ["sync", "floor", "floor_large", "floor_threads"]
    assert (found.facts["floor_valid"], found.facts["floor_problem"]) == (True, None)
    assert found.phases.floor_s is not None
    assert [series.mode for series in floored(make_trial, threads=1).series] == ["sync", "floor", "floor_large"]


def test_the_twins_are_on_one_thread_and_have_a_hundred_calls_at_least(make_trial: MakeTrial) -> None:
    runner = Runner()
    Floors().extended(answer(), make_trial(threads=2), runner)
    assert [spec.threads for spec in runner.asked] == [1, 1, 2]
    assert {spec.protocol.sync_min_samples for spec in runner.asked} == {100}
    assert [spec.workload.batch for spec in runner.asked] == [1, 4, 1]
    assert {spec.protocol.floor_budget_ms for spec in runner.asked} == {0}  # no twin of a twin


def test_a_structure_is_measured_once_for_all_batches(make_trial: MakeTrial) -> None:
    floors, runner = Floors(), Runner()
    found = [floors.extended(answer(), make_trial(threads=2, batch=batch), runner) for batch in (8, 1)]
    assert len(runner.asked) == 3
    assert [one.phases.floor_s is None for one in found] == [False, True]
    assert len({one.facts["floor_structure"] for one in found}) == 1
    assert found[0].series == found[1].series


def test_threads_and_budgets_make_no_other_structure(make_trial: MakeTrial) -> None:
    trials = [
        make_trial(threads=threads, protocol=replace(QUICK, floor_budget_ms=budget_ms))
        for threads, budget_ms in ((1, 100), (2, 100), (2, 300))
    ]
    assert len({Floors().extended(answer(), trial, Runner()).facts["floor_structure"] for trial in trials}) == 1


def test_operators_of_the_same_number_are_not_yet_the_same(make_trial: MakeTrial) -> None:
    found = floored(make_trial, operations={"aten.linear.default": 12, "aten.reshape.default": 3}).facts
    problem = "the twin dispatches other operations: aten.reshape.default -3, aten.view.default +3"
    assert (found["floor_valid"], found["floor_alike"], found["floor_problem"]) == (False, False, problem)


@pytest.mark.parametrize(
    ("facts", "valid", "words"),
    [
        (operation_facts(None), None, "cannot be counted"),
        ({"operations": 15}, True, None),
        ({"operations": 14}, False, "the twin dispatches 15 operations, the trial 14"),
    ],
)
def test_counts_without_names_are_compared_as_counts_and_none_proves_nothing(
    make_trial: MakeTrial, facts: dict[str, Any], valid: bool | None, words: str | None
) -> None:
    found = Floors().extended(replace(answer(), facts=facts), make_trial(threads=1), Runner()).facts
    assert found["floor_valid"] is valid
    problem = found["floor_problem"]
    assert problem is None if words is None else words in str(problem)


@pytest.mark.parametrize(
    ("series", "words"),
    [
        (sync(samples=99), "the twin has 99 samples, not 100"),
        (sync(waiting=76), "taken under pressure: 76 % of the calls waited for a CPU"),
        (sync(waiting=75), None),
        # Others waited, which is nothing to the floor
        (sync(pressure_ns=90_000), None),
    ],
)
def test_few_samples_and_calls_that_waited_are_no_floor(
    make_trial: MakeTrial, series: Series, words: str | None
) -> None:
    small = floored(make_trial, small=answer(series))
    assert (small.facts["floor_valid"], small.facts["floor_problem"]) == (words is None, words)
    assert small.facts["floor_alike"] is True
    large = floored(make_trial, large=answer(series))
    assert large.facts["floor_valid"] is (words is None)
    assert large.facts["floor_problem"] == (words and "the large twin: " + words)


@pytest.mark.parametrize(
    ("series", "words"),
    [
        (sync(samples=99), "the twin has 99 samples, not 100"),
        (sync(pressure_ns=60_000), "taken under pressure: some process waited for a CPU in 60 % of the time"),
        (sync(pressure_ns=50_000), None),
        (sync(pressure_ns=None), None),
    ],
)
def test_with_several_threads_the_pressure_of_the_machine_decides(
    make_trial: MakeTrial, series: Series, words: str | None
) -> None:
    found = floored(make_trial, threaded=answer(series))
    assert (found.facts["floor_valid"], found.facts["floor_threads_problem"]) == (True, words)


def test_a_large_twin_of_another_structure_has_no_number(make_trial: MakeTrial) -> None:
    found = floored(make_trial, large=answer(operations={"aten.linear.default": 15}))
    assert [series.mode for series in found.series] == ["sync", "floor", "floor_threads"]
    assert found.facts["floor_valid"] is True
    assert str(found.facts["floor_large_problem"]).startswith("of another structure: the twin dispatches other")


@pytest.mark.parametrize(
    ("twin", "modes", "valid", "problem"),
    [
        ("small", ["sync"], None, "crashed: killed by SIGSEGV"),
        ("large", ["sync", "floor", "floor_threads"], False, "the large twin: crashed: killed by SIGSEGV"),
    ],
)
def test_a_twin_that_fails_costs_the_floor_and_not_the_trial(
    make_trial: MakeTrial, twin: str, modes: list[str], valid: bool | None, problem: str
) -> None:
    found = floored(make_trial, 2, OPERATIONS, **{twin: Answer(Status.CRASHED, "killed by SIGSEGV")})
    assert found.status is Status.OK
    assert [series.mode for series in found.series] == modes
    assert (found.facts["floor_valid"], found.facts["floor_problem"]) == (valid, problem)


def test_a_model_without_a_larger_twin_has_the_small_one_alone(make_trial: MakeTrial) -> None:
    trial = make_trial(threads=1)
    spec = replace(trial.spec, workload=WorkloadSpec("reformer-enwik8", 1, 128), backend=BackendSpec("eager", {}))
    found = Floors().extended(answer(), replace(trial, spec=spec), Runner())
    assert [series.mode for series in found.series] == ["sync", "floor"]
    assert found.facts["floor_valid"] is True
    assert "no larger twin" in str(found.facts["floor_large_problem"])


def test_the_largest_differences_are_named_first() -> None:
    ours = dict.fromkeys("abcdefg", 1)
    assert difference(ours, {**ours, "c": 9}) == "c -8"
    assert difference(ours, ours) is None
    assert difference(ours, {"z": 5}) == "z -5, a +1, b +1, c +1 and 4 more names"


def test_counts_come_back_from_their_text() -> None:
    names = ["MatMul"] * 3 + ["Add"]
    assert counts_as_text(names) == "MatMul 3, Add 1"
    assert parsed_counts(counts_as_text(names)) == {"MatMul": 3, "Add": 1}
    assert parsed_counts(counts_as_text([])) == {}
    assert operation_facts({"MatMul": 3, "Add": 1}) == {"operations": 4, "operations_by_name": "MatMul 3, Add 1"}
    assert operation_facts(None) == {"operations": None, "operations_by_name": None}
