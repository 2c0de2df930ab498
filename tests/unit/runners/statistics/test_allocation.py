"""Where the next session goes, with sessions made up."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from runners.contract import (
    Allocation,
    BackendSpec,
    Begin,
    Interleaving,
    Line,
    PastSession,
    Protocol,
    Series,
    Session,
    Status,
    Task,
    Trial,
    TrialRecord,
    TrialSpec,
    WorkloadSpec,
    repeated,
)
from runners.statistics.allocation import Allocator, latency_of, past_of, session_logs


def trial(workload: str, backend: str, replicate: int = 0) -> Trial:
    spec = TrialSpec(WorkloadSpec(workload, 1), BackendSpec(backend, {}), "float32", "cpu", 1, 0, Protocol())
    name = f"{workload} {backend}"
    return Trial(f"{name} {replicate}", name, 1, 0, replicate, 1, 60, spec)


QUIET = (trial("quiet", "torchscript"), trial("quiet", "eager"))
NOISY = (trial("noisy", "torchscript"), trial("noisy", "eager"))


def past(group: tuple[Trial, ...], *logs: float, taken_ms: int = 1000) -> tuple[PastSession, ...]:
    compared = group[0].trial_id
    return tuple(
        PastSession(group[0].trial_id, number, taken_ms, {compared: round(log * 1e6)})
        for number, log in enumerate(logs, 1)
    )


def chosen(*sessions: PastSession, budget_ms: int = 60_000, precision: int = 30_000, spent_s: float = 0.0) -> set[str]:
    spent_ms = sum(session.taken_ms for session in sessions)
    allocator = Allocator(Allocation(budget_ms, precision, (*QUIET, *NOISY), sessions, spent_ms))
    return {f"{again.spec.workload.name} {again.round}" for again, _ in allocator.next_session(spent_s)}


def test_the_widest_group_is_next_in_its_next_round() -> None:
    known = (*past(QUIET, 0.10, 0.101, 0.099), *past(NOISY, 0.1, 0.3, -0.1, 0.0))
    assert chosen(*known) == {"noisy 5"}


@pytest.mark.parametrize(("wider", "expected"), [(1.2, ["quiet 4", "noisy 4"]), (4.0, ["noisy 4", "noisy 5"])])
def test_of_groups_that_are_nearly_as_wide_the_one_that_waited_longest_is_next(
    wider: float, expected: list[str]
) -> None:
    noisy = (0.1 * wider, 0.0, -0.1 * wider)
    allocator = Allocator(
        Allocation(60_000, 30_000, (*QUIET, *NOISY), (*past(QUIET, 0.1, 0.0, -0.1), *past(NOISY, *noisy)))
    )
    found = []
    for number in (4, 5):
        [(again, _), *_] = allocator.next_session(10.0)
        found.append(f"{again.spec.workload.name} {again.round}")
        # as wide as before
        group = NOISY if again.spec.workload.name == "noisy" else QUIET
        allocator.learn(group[0].trial_id, number, 1.0, {group[0].trial_id: 0.1})
    assert found == expected


def test_nothing_is_next_once_all_are_narrow_enough_or_the_budget_is_spent() -> None:
    narrow = (*past(QUIET, 0.10, 0.101, 0.099), *past(NOISY, 0.1, 0.101, 0.099))
    assert chosen(*narrow) == set()
    assert chosen(*narrow, precision=1000) != set()
    wide = (*past(QUIET, 0.1, 0.2, 0.0), *past(NOISY, 0.1, 0.3, -0.1))
    assert chosen(*wide, budget_ms=7_000) == {"noisy 4"}
    assert chosen(*wide, budget_ms=7_000, spent_s=0.5) == set()


def test_a_group_that_does_not_fit_any_more_leaves_the_time_to_one_that_does() -> None:
    known = (*past(QUIET, 0.1, 0.2, 0.0), *past(NOISY, 0.1, 0.5, -0.4, taken_ms=20_000))
    assert chosen(*known, budget_ms=70_000) == {"quiet 4"}


def test_a_significant_ratio_gets_no_less_than_one_that_is_not() -> None:
    """Only the widths count: the same scatter around a large and around no difference."""
    near = (*past(QUIET, -0.05, 0.0, 0.05), *past(NOISY, 0.89, 1.0, 1.11))
    far = (*past(QUIET, 0.95, 1.0, 1.05), *past(NOISY, -0.11, 0.0, 0.11))
    assert chosen(*near) == chosen(*far) == {"noisy 4"}


def test_a_group_that_never_measured_anything_gets_no_more() -> None:
    failed = tuple(PastSession(NOISY[0].trial_id, number, 1000) for number in (1, 2, 3))
    assert chosen(*past(QUIET, 0.1, 0.2, 0.0), *failed) == {"quiet 4"}


def test_repetitions_have_an_id_of_their_own_and_name_what_they_repeat() -> None:
    allocator = Allocator(Allocation(60_000, 30_000, QUIET, past(QUIET, 0.1, 0.3, -0.1)))
    pairs = allocator.next_session(0.0)
    assert {original.trial_id for _, original in pairs} == {one.trial_id for one in QUIET}
    for again, original in pairs:
        assert again == repeated(original, 4)
        assert (again.spec, again.trial_key, again.round) == (original.spec, original.trial_key, 4)
    assert len({again.trial_id for again, _ in pairs} | {one.trial_id for one in QUIET}) == 4


def test_a_session_says_the_ratios_to_eager() -> None:
    logs = session_logs(QUIET, {"quiet eager 0": 2.0, "quiet torchscript 0": 6.0})
    assert logs == {"quiet torchscript 0": pytest.approx(math.log(3)), "quiet eager 0": pytest.approx(math.log(2))}
    assert session_logs(QUIET, {"quiet torchscript 0": 2.0}) == {}


@pytest.mark.parametrize(
    ("durations_ns", "seconds"),
    [((7_000,), 7e-6), (tuple(range(1_000, 12_000, 1_000)), 2e-6), ((0,), None), ((), None)],
)
def test_of_a_trial_the_10th_percentile_counts_as_the_store_has_it(
    durations_ns: tuple[int, ...], seconds: float | None
) -> None:
    series = Series("sync", 1, durations_ns, durations_ns, turns=(len(durations_ns),))
    record = TrialRecord("t", 1, Status.OK, None, 0, 1, series=(series,))
    assert latency_of(record) == seconds
    assert seconds is None or seconds == pytest.approx(np.quantile(durations_ns, 0.1) / 1e9)
    assert latency_of(replace(record, status=Status.CRASHED, reason="x")) is None


def test_the_baseline_is_eager_with_its_first_options_wherever_it_stands() -> None:
    spun = trial("quiet", "eager")
    spun = replace(spun, trial_id="spun", spec=replace(spun.spec, backend=BackendSpec("eager", {"spin_us": 5})))
    plain = replace(spun, trial_id="plain", spec=replace(spun.spec, backend=BackendSpec("eager", {"spin_us": 0})))
    twin = replace(plain, trial_id="twin", replicate=1)
    for trials in itertools.permutations((spun, plain, twin)):
        logs = session_logs(trials, {"spun": 2.0, "plain": 1.0, "twin": 1.0})
        assert logs == {"spun": pytest.approx(math.log(2)), "plain": 0.0, "twin": 0.0}


def test_a_group_that_begins_to_fail_gets_two_sessions_more_and_leaves_the_rest_to_others() -> None:
    wide = past(NOISY, 0.1, 0.5, -0.4)
    failed = tuple(PastSession(NOISY[0].trial_id, number, 1000) for number in (4, 5))
    assert chosen(*past(QUIET, 0.1, 0.2, 0.0), *wide, failed[0]) == {"noisy 5"}
    assert chosen(*past(QUIET, 0.1, 0.2, 0.0), *wide, *failed) == {"quiet 4"}


def test_what_earlier_starts_recorded_is_known_to_the_next_one() -> None:
    task = Task(1, "c", "t", "cpu", QUIET, allocation=Allocation(60_000, 30_000, QUIET))
    lines: list[Line] = []
    for number in (1, 2, 3, 4):
        at = number * 10_000_000_000
        for one, duration in zip(QUIET, (2_000_000 + number, 1_000_000), strict=True):
            visit = one if number == 1 else repeated(one, number)
            repeats = (None, None) if number == 1 else (one.trial_id, number)
            lines.append(Begin(visit.trial_id, 1, at, *repeats))
            if number < 4:
                series = Series("sync", 1, (duration,), (duration,), turns=(1,))
                times, session = (at, at + 2_000_000_000), Session("s", Interleaving.TURNS, 2)
                lines.append(TrialRecord(visit.trial_id, 1, Status.OK, None, *times, series=(series,), session=session))
    known = past_of(task, [lines])
    assert [(session.round, session.taken_ms, bool(session.logs_ppm)) for session in known.past] == [
        (1, 2000, True), (2, 2000, True), (3, 2000, True), (4, 0, False)
    ]  # fmt: skip
    assert known.spent_ms == 22_000
    assert known.past[0].logs_ppm[QUIET[0].trial_id] == pytest.approx(1e6 * math.log(2), abs=2)
    assert all(again.round == 5 for again, _ in Allocator(replace(known, precision_ppm=0)).next_session(0.0))
