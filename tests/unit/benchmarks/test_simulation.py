"""The fast form of `python -m benchmarks.simulation`: intervals hold the truth, and differences are found."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulation.__main__ import CVS, Found, page, sentences, simulated
from benchmarks.simulation.coverage import INTERVALS, covered
from benchmarks.simulation.simulating import BUSY, QUIET, Campaign, Machine, Noise, ratios_of, samples_of, true_median
from orchestrator.analysis import Pairing

SMALL = Campaign(groups=3, backends=3)


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize(("processes", "cv"), [(3, 0.03), (5, 0.1), (6, 0.01), (7, 0.1), (8, 0.01), (10, 0.01)])
def test_intervals_without_sessions_hold_the_truth(name: str, processes: int, cv: float) -> None:
    runs = 1000
    share = covered(INTERVALS[name], np.random.default_rng(11), Noise(cv), processes, runs)
    slack = 3 * (0.95 * 0.05 / runs) ** 0.5
    assert 0.93 - slack < share < 0.97 + slack


@pytest.mark.parametrize("machine", [QUIET, BUSY])
def test_ratios_of_sessions_hold_the_truth_and_raise_few_alarms(machine: Machine) -> None:
    found = simulated(np.random.default_rng(12), machine, Noise(0.03), SMALL, 60)
    assert 0.9 < found.covered < 0.98
    assert found.alarmed <= 0.15
    assert 0.02 < found.half_width < 0.08


def test_a_clear_difference_is_found_and_a_small_one_seldom() -> None:
    found = simulated(np.random.default_rng(13), QUIET, Noise(0.005), SMALL, 30)
    assert found.slower[1.10] >= 0.9
    assert found.slower[1.10] >= found.slower[1.05] >= found.alarmed
    assert simulated(np.random.default_rng(14), QUIET, Noise(0.3), SMALL, 10).slower[1.05] <= 0.2


def test_a_campaign_is_one_of_sessions_in_turns() -> None:
    ratios, twins = ratios_of(np.random.default_rng(15), BUSY, Noise(0.02), SMALL)
    assert (len(ratios), len(twins)) == (6, 1)
    assert {(one.pairing, one.estimate.processes) for one in (*ratios, *twins)} == {(Pairing.TURNS, 3)}


def test_processes_scatter_as_they_are_told_to() -> None:
    noise = Noise(0.1, sample_sigma=1e-9, burst_share=0.0)
    medians = np.median(samples_of(np.random.default_rng(1), noise, 20_000), axis=-1)
    assert medians.std() / medians.mean() == pytest.approx(0.1, rel=0.03)
    assert true_median(noise) == pytest.approx(1, rel=0.01)


def test_the_page_tells_what_does_not_hold() -> None:
    problems: list[str] = []
    text = page(runs=4, campaigns=1, seed=1, problems=problems)
    assert problems
    assert all("covers" in one or "alarm" in one for one in problems)
    assert text.count("| median over processes |") == 2
    assert text.count("| quiet | 3 |") == 5


def test_the_page_says_which_targets_hold() -> None:
    some = [Found(0.95, 0.04, 0.07, 0.03, {1.05: 0.9 if cv < 0.02 else 0.7, 1.10: 0.5}) for cv in CVS]
    lines = list(sentences({(QUIET, "3"): some, (BUSY, "3"): [*some[1:], replace(some[0], covered=0.9)]}, 1000))
    told = (
        "11 of 12",
        "standard error of 0.20; 0 of 12",
        "12 of 12 numbers are above 5 %, 12 by more",
        "of 1.5 %",
        "no CV",
    )
    assert len(lines) == len(told)
    assert all(words in line for words, line in zip(told, lines, strict=True))
