"""The rule of verdicts: hardly ever a difference where there is none, nearly always where there is one."""

import math

import numpy as np
import pytest

from orchestrator.analysis.statistics import Estimate, mean_ratio
from orchestrator.analysis.verdict import MARGIN, Judgement, Verdict, judge_family, slower_beyond

SESSIONS = 8


def interval(value: float, low: float | None, high: float | None, sessions: int = SESSIONS) -> Estimate:
    return Estimate(value, low, high, sessions, 100)


def judge(ratio: Estimate, margin: float = MARGIN) -> Judgement:
    return judge_family([ratio], margin)[0]


def same_twice(generator: np.random.Generator, spread: float) -> Estimate:
    """With the heavy tail that neighbours on a shared machine cause on either side."""
    sides = generator.normal(size=(2, SESSIONS)) + 0.5 * generator.exponential(size=(2, SESSIONS))
    return mean_ratio(spread * (sides[0] - sides[1]), samples=SESSIONS)


@pytest.mark.parametrize("spread", [0.005, 0.02, 0.1, 0.4])
def test_the_same_thing_twice_is_called_different_as_often_as_the_level_says(spread: float) -> None:
    generator = np.random.default_rng(1)
    different = sum(judge(same_twice(generator, spread)).verdict.is_different for _ in range(1000))
    assert 20 <= different <= 70


def test_a_family_of_ratios_raises_no_more_alarms_than_one() -> None:
    generator = np.random.default_rng(2)
    families = [[same_twice(generator, 0.3) for _ in range(10)] for _ in range(300)]
    together = sum(any(one.verdict.is_different for one in judge_family(family)) for family in families)
    alone = sum(any(judge(one).verdict.is_different for one in family) for family in families)
    assert 2 <= together <= 24
    assert alone > 3 * together


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (interval(1.0, 0.98, 1.02), Verdict.EQUIVALENT),
        (interval(1.0, 0.9, 1.1), Verdict.UNDECIDED),
        (interval(1.02, 1.01, 1.04), Verdict.FASTER),
        (interval(1.02, 1.01, 1.029), Verdict.SLIGHTLY_FASTER),
        (interval(0.98, 0.971, 0.99), Verdict.SLIGHTLY_SLOWER),
        (interval(1.5, None, None), Verdict.UNDECIDED),
        (interval(1.5, 1.5, 1.5), Verdict.FASTER),
        (interval(0.5, 0.5, 0.5), Verdict.SLOWER),
        (interval(1.0, 1.0, 1.0), Verdict.EQUIVALENT),
    ],
)
def test_the_interval_decides(found: Estimate, expected: Verdict) -> None:
    assert judge(found).verdict is expected


def test_a_margin_is_chosen_and_what_no_number_of_sessions_decides_is_said_so() -> None:
    assert judge(interval(1.02, 1.01, 1.029), margin=0.01).verdict is Verdict.FASTER
    assert judge(interval(1.0295, 0.2, 5.3)).sessions is None


@pytest.mark.parametrize("centre", [0.5, 0.98, 1.0, 1.02, 2.0])
@pytest.mark.parametrize("width", [1.01, 1.05, 1.2, 3.0])
def test_of_one_ratio_different_means_that_the_interval_excludes_1(centre: float, width: float) -> None:
    low, high = centre / width, centre * width
    found = judge(interval(centre, low, high))
    assert found.verdict.is_different == (low > 1 or high < 1)
    assert found.verdict.is_equivalent == (low >= 1 / 1.03 and high <= 1.03)
    assert found.least == pytest.approx(width - 1)


def test_in_a_family_the_clear_difference_stays_and_the_doubtful_one_goes() -> None:
    clear, doubtful, same = interval(2.0, 1.9, 2.1), interval(1.1, 1.01, 1.198), interval(1.0, 0.99, 1.01)
    assert judge(doubtful).verdict is Verdict.FASTER
    verdicts = [one.verdict for one in judge_family([same, doubtful, clear, doubtful])]
    assert verdicts == [Verdict.EQUIVALENT, Verdict.UNDECIDED, Verdict.FASTER, Verdict.UNDECIDED]


def test_what_has_no_interval_counts_for_nothing_in_a_family() -> None:
    doubtful, single = interval(1.1, 1.01, 1.198), interval(3.0, None, None, 1)
    judged = judge_family([doubtful, *[single] * 9])
    assert judged[0] == judge(doubtful)
    assert judged[1] == Judgement(Verdict.UNDECIDED, None, None)
    assert judge_family([]) == ()


@pytest.mark.parametrize(("value", "half"), [(1.10, 0.15), (1.0, 0.05), (1.02, 0.05), (1.25, 0.4)])
def test_a_decision_takes_as_many_sessions_as_are_said(value: float, half: float) -> None:
    """With the same ratio and scatter, so many more decide it, and one fewer does not."""
    found = interval(value, value * math.exp(-half), value * math.exp(half), 5)
    assert judge(found).verdict is Verdict.UNDECIDED
    more = judge(found).sessions
    assert more is not None

    def after(added: int) -> Verdict:
        count = 5 + added
        spread = half / 2.7764451051977987 * math.sqrt(5)  # Student's t with 4 degrees of freedom
        logs = math.log(value) + np.array([1, -1] * (count // 2) + [0] * (count % 2)) * spread
        logs = math.log(value) + (logs - logs.mean()) * spread / logs.std(ddof=1)
        return judge(mean_ratio(logs, 1)).verdict

    assert after(more) is not Verdict.UNDECIDED
    assert after(more - 1) is Verdict.UNDECIDED


def test_a_slow_down_beyond_a_limit_is_proven_or_excluded_or_neither() -> None:
    ratios = [interval(0.8, 0.78, 0.82), interval(0.97, 0.96, 0.98), interval(0.9, 0.8, 1.01), interval(1.2, 1.1, 1.3)]
    slower, within, neither = Verdict.SLOWER, Verdict.EQUIVALENT, Verdict.UNDECIDED
    assert [found.verdict for found in slower_beyond(ratios, 0.05)] == [slower, within, neither, within]
    assert slower_beyond([interval(0.8, None, None)], 0.05) == (Judgement(neither, None, None),)
    doubtful = interval(0.9, 0.862, 0.94)
    (alone,) = slower_beyond([doubtful], 0.05)
    assert alone.verdict is slower
    assert {found.verdict for found in slower_beyond([doubtful] * 20, 0.05)} == {neither}


@pytest.mark.parametrize("value", [0.90, 0.97])
def test_a_decision_about_a_limit_takes_as_many_sessions_as_are_said(value: float) -> None:
    def after(more: int) -> Judgement:
        return slower_beyond([mean_ratio(math.log(value) + np.array([-0.1, 0.1] * (2 + more // 2)), 1)], 0.05)[0]

    now = after(0)
    assert now.verdict is Verdict.UNDECIDED
    assert now.least is not None
    assert now.least > 0.05
    assert now.sessions is not None
    # Sessions more whose scatter is that of the population, which is a little less than that of the first four
    assert after(now.sessions + now.sessions % 2).verdict is not Verdict.UNDECIDED
    assert after(now.sessions // 2).verdict is Verdict.UNDECIDED
