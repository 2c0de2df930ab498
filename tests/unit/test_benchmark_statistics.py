"""The fast form of `python -m benchmarks.statistics`: intervals hold the truth, and nothing is called a difference."""

import numpy as np
import pytest

from benchmarks.statistics.__main__ import page
from benchmarks.statistics.coverage import INTERVALS, covered
from benchmarks.statistics.simulating import Campaign, Noise, samples_of, true_median, verdicts_of
from orchestrator.analysis.verdict import Verdict


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize(("rounds", "cv"), [(3, 0.03), (5, 0.1), (10, 0.01)])
def test_intervals_hold_the_truth(name: str, rounds: int, cv: float) -> None:
    runs = 500 if "bootstrap" in name and rounds > 5 else 1500
    share = covered(INTERVALS[name], np.random.default_rng(11), Noise(cv), rounds, runs)
    slack = 3 * (0.95 * 0.05 / runs) ** 0.5
    assert 0.93 - slack < share < 0.97 + slack


@pytest.mark.parametrize("is_paired", [True, False])
@pytest.mark.parametrize(("rounds", "cv"), [(3, 0.1), (10, 0.01)])
def test_campaigns_without_a_difference_raise_hardly_an_alarm(rounds: int, cv: float, is_paired: bool) -> None:
    random, runs = np.random.default_rng(12), 200
    campaign = Campaign(rounds=rounds, paired=is_paired)
    alarms = sum(any(one.is_different for one in verdicts_of(random, Noise(cv), campaign)) for _ in range(runs))
    bare = Campaign(rounds=rounds, paired=is_paired, twins=0)
    strict = sum(any(one.is_different for one in verdicts_of(random, Noise(cv), bare, 1e-9)) for _ in range(runs))
    assert alarms <= 0.05 * runs
    assert strict <= 0.05 * runs + 3 * (0.05 * 0.95 * runs) ** 0.5


def test_a_clear_difference_is_found_where_it_is() -> None:
    random = np.random.default_rng(13)
    campaign = Campaign(rounds=10, effect=1.15)
    found = [verdicts_of(random, Noise(0.01), campaign) for _ in range(50)]
    assert sum(one[0] is Verdict.SLOWER for one in found) >= 48
    assert sum(verdict.is_different for one in found for verdict in one[1:]) <= 2


def test_processes_scatter_as_they_are_told_to() -> None:
    noise = Noise(0.1, sample_sigma=1e-9, burst_share=0.0)
    medians = np.median(samples_of(np.random.default_rng(1), noise, 20_000), axis=-1)
    assert medians.std() / medians.mean() == pytest.approx(0.1, rel=0.03)
    assert true_median(noise) == pytest.approx(1, rel=0.01)


def test_the_page_tells_what_does_not_hold() -> None:
    problems: list[str] = []
    text = page(runs=4, campaigns=2, seed=1, problems=problems)
    assert problems
    assert all("covers" in one or "alarm" in one for one in problems)
    assert text.count("| median over processes |") == 3
