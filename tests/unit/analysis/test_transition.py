"""The transition batch: recovered from noise, with intervals that hold, censored at both ends."""

import math

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from orchestrator.analysis.transition import Interval, Side, Transition, monotone, transition

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def simulated(
    random: np.random.Generator, batch: float, noise: float, rounds: int, least: float
) -> dict[int, dict[int, float]]:
    """Loads: kernels that take `least` of a constant dispatch and grow in proportion, over that dispatch."""
    slope = (1 - least) / batch
    return {
        size: {
            number: float((least + slope * size) * np.exp(random.normal(0, noise)) / np.exp(random.normal(0, noise)))
            for number in range(rounds)
        }
        for size in BATCHES
    }


def covers(found: Transition, batch: float) -> bool:
    assert found.interval is not None
    low, high = found.interval.low, found.interval.high
    return (low is None or low <= batch) and (high is None or high >= batch)


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.05])
@pytest.mark.parametrize("rounds", [3, 5, 10])
def test_the_transition_is_found_without_bias_and_its_interval_holds_it_95_times_in_100(
    noise: float, rounds: int
) -> None:
    random = np.random.default_rng(7)
    errors, covered = [], 0
    tries = 1000
    for number in range(tries):
        batch = float(2 ** random.uniform(1, 6))
        found = transition(simulated(random, batch, noise, rounds, (0.0, 0.15, 0.5)[number % 3]))
        assert found.batch is not None
        errors.append(math.log(found.batch / batch))
        covered += covers(found, batch)
    assert abs(np.mean(errors)) < 0.004
    # three standard errors of a proportion to either side
    assert 0.929 < covered / tries < 0.971


def test_pooling_adjacent_violators_agrees_with_scipy() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        values, weights = random.normal(size=9) + np.arange(9) / 3, random.integers(1, 9, 9)
        expected = isotonic_regression(values, weights=weights).x
        assert monotone(list(values), list(weights)) == pytest.approx(list(expected))


@pytest.mark.parametrize(
    ("batch", "least", "side", "interval"),
    [(0.3, 0.0, Side.BELOW, Interval(None, 1)), (900, 0.1, Side.ABOVE, Interval(128, None))],
)
def test_a_transition_beyond_the_measured_batches_is_censored_and_one_near_the_end_open_there(
    batch: float, least: float, side: Side, interval: Interval
) -> None:
    found = transition(simulated(np.random.default_rng(0), batch, 0.02, 5, least))
    assert (found.side, found.batch, found.interval) == (side, None, interval)
    near = transition(simulated(np.random.default_rng(1), 126, 0.05, 5, 0.1))
    assert covers(near, 126)
    assert near.interval is not None
    assert near.interval.high is None


def test_censored_intervals_hold_the_truth_too() -> None:
    random = np.random.default_rng(5)
    covered = [
        covers(transition(simulated(random, batch, 0.05, 5, 0.2)), batch)
        for batch in (0.9, 1.1, 115.0, 140.0)
        for _ in range(250)
    ]
    assert 0.93 < np.mean(covered) <= 1


def test_a_single_round_gives_a_number_even_if_noise_turns_two_batches_around_and_no_interval() -> None:
    found = transition(simulated(np.random.default_rng(2), 10, 0.01, 1, 0.1))
    assert found.batch == pytest.approx(10, rel=0.1)
    assert (found.interval, found.rounds) == (None, 1)
    assert transition({1: {1: 0.5}, 2: {1: 0.48}, 4: {1: 1.0}, 8: {1: 2.5}}).batch == pytest.approx(4)


def test_batches_may_have_different_numbers_of_sessions_and_the_interval_has_the_number_in_it() -> None:
    random = np.random.default_rng(2)
    covered = 0
    for _ in range(500):
        data = simulated(random, 10, 0.05, 20, 0.1)
        some = {batch: dict(list(rounds.items())[: 20 if batch == 8 else 3]) for batch, rounds in data.items()}
        found = transition(some)
        assert found.batch is not None
        assert covers(found, found.batch)
        covered += covers(found, 10)
    assert found.rounds == 3
    assert 0.92 < covered / 500 < 0.98


@pytest.mark.parametrize("data", [{1: {1: 2.0}}, {1: {1: 2.0}, 2: {}}, {1: {1: 2.0}, 2: {1: 0.0}}])
def test_what_is_no_series_is_refused(data: dict[int, dict[int, float]]) -> None:
    with pytest.raises(ValueError, match="batch"):
        transition(data)
