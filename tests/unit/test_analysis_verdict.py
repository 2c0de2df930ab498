"""When two things are called different: hardly ever if they are the same, nearly always if they are not."""

import numpy as np
import pytest

from orchestrator.analysis.statistics import Estimate, paired_ratio, unpaired_ratio
from orchestrator.analysis.verdict import Verdict, judge, judge_family

ROUNDS = 8


def interval(value: float, low: float | None, high: float | None) -> Estimate:
    return Estimate(value, low, high, ROUNDS, 100)


def pair(generator: np.random.Generator, spread: float, factor: float = 1.0, rounds: int = ROUNDS) -> Estimate:
    """Two trials over some rounds: what a neighbour does to a round hits both, what it does to a process one.

    The noise has the heavy upper tail that neighbours on a shared machine cause.
    """
    shared = np.exp(generator.normal(0, 5 * spread, rounds))
    first, second = (
        shared * np.exp(spread * (generator.normal(size=rounds) + 0.5 * generator.exponential(size=rounds)))
        for _ in range(2)
    )
    return paired_ratio(factor * first, second, samples=rounds)


@pytest.mark.parametrize("spread", [0.005, 0.02, 0.1, 0.4])
def test_the_same_thing_twice_is_hardly_ever_called_different(spread: float) -> None:
    generator = np.random.default_rng(1)
    different = sum(judge(pair(generator, spread)).is_different for _ in range(1000))
    assert different <= 60  # 5 % and the chance of 1000 draws


def test_a_family_of_pairs_raises_no_more_alarms_than_one() -> None:
    generator = np.random.default_rng(2)
    families = [[pair(generator, 0.3) for _ in range(10)] for _ in range(300)]
    together = sum(any(verdict.is_different for verdict in judge_family(family)) for family in families)
    alone = sum(any(judge(ratio).is_different for ratio in family) for family in families)
    assert together <= 24
    assert alone > 2 * together


@pytest.mark.parametrize(("factor", "expected"), [(1.1, Verdict.FASTER), (1 / 1.1, Verdict.SLOWER)])
def test_ten_percent_are_found_in_eight_rounds(factor: float, expected: Verdict) -> None:
    generator = np.random.default_rng(3)
    verdicts = [judge(pair(generator, 0.02, factor)) for _ in range(200)]
    assert verdicts.count(expected) >= 190
    assert sum(one.is_different for one in verdicts) == verdicts.count(expected)


def test_a_real_difference_below_the_minimum_effect_is_none() -> None:
    generator = np.random.default_rng(4)
    verdicts = [judge(pair(generator, 0.001, 1.02)) for _ in range(200)]
    assert set(verdicts) == {Verdict.EQUIVALENT}
    assert {judge(pair(generator, 0.001, 1.02), minimum_effect=0.01) for _ in range(50)} == {Verdict.FASTER}


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (interval(1.0, 0.98, 1.02), Verdict.EQUIVALENT),
        (interval(1.0, 0.9, 1.1), Verdict.INCONCLUSIVE),
        (interval(1.5, None, None), Verdict.INCONCLUSIVE),
        (interval(1.5, 1.5, 1.5), Verdict.FASTER),
        (interval(0.5, 0.5, 0.5), Verdict.SLOWER),
        (interval(1.0, 1.0, 1.0), Verdict.EQUIVALENT),
    ],
)
def test_the_interval_decides(ratio: Estimate, expected: Verdict) -> None:
    assert judge(ratio) is expected


@pytest.mark.parametrize("centre", [0.5, 0.9, 1.0, 1.1, 2.0])
@pytest.mark.parametrize("width", [1.01, 1.05, 1.2, 3.0])
def test_different_means_that_the_interval_lies_outside_of_the_minimum_effect(centre: float, width: float) -> None:
    low, high = centre / width, centre * width
    assert judge(interval(centre, low, high)).is_different == (low > 1.03 or high < 1 / 1.03)


def test_in_a_family_the_clear_difference_stays_and_the_doubtful_one_goes() -> None:
    clear, doubtful, same = interval(2.0, 1.9, 2.1), interval(1.1, 1.031, 1.174), interval(1.0, 0.99, 1.01)
    assert judge(doubtful) is Verdict.FASTER
    verdicts = judge_family([same, doubtful, clear, doubtful])
    assert verdicts == (Verdict.EQUIVALENT, Verdict.INCONCLUSIVE, Verdict.FASTER, Verdict.INCONCLUSIVE)


def test_a_family_without_members_has_no_verdicts() -> None:
    assert judge_family([]) == ()


def test_an_unpaired_ratio_is_judged_by_its_own_degrees_of_freedom() -> None:
    then, now = np.array([1.10, 1.00, 1.30]), np.array([1.00, 1.001, 0.999, 1.0, 1.0, 1.002, 0.998])
    ratio = unpaired_ratio(then, now, samples=10)
    assert ratio.degrees == pytest.approx(2, abs=0.01)
    assert ratio.low is not None
    assert judge(ratio).is_different == (ratio.low > 1.03)
    generator = np.random.default_rng(6)
    judged = [judge(unpaired_ratio(*generator.lognormal(0, 0.05, (2, 3)), samples=1)) for _ in range(1000)]
    assert sum(one.is_different for one in judged) <= 60


def test_each_ratio_may_have_a_minimum_effect_of_its_own() -> None:
    ratio = interval(1.1, 1.06, 1.14)
    assert judge_family([ratio, ratio], [0.03, 0.2]) == (Verdict.FASTER, Verdict.EQUIVALENT)
    with pytest.raises(ValueError, match="zip"):
        judge_family([ratio], [0.03, 0.2])
