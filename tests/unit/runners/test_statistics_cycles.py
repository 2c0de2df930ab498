"""What a session says of two processes that took turns."""

import math

import numpy as np
import pytest

from runners.statistics.cycles import LEAST_CYCLES, session_log_ratio


def test_of_few_cycles_it_is_the_median_over_those_that_both_have() -> None:
    assert session_log_ratio([1.0, 2.0, 8.0, 5.0], [1.0, 1.0, 1.0]) == pytest.approx(math.log(2))
    assert session_log_ratio([math.nan, 3.0], [1.0, 1.0]) == pytest.approx(math.log(3))
    assert session_log_ratio([None, 3.0, 4.0], [1.0, 2.0, None]) == pytest.approx(math.log(1.5))
    for above in ([math.nan], [None], []):
        with pytest.raises(ValueError, match="no cycle in common"):
            session_log_ratio(above, [1.0])


@pytest.mark.parametrize("busy", [0, 10, 25])
def test_what_slows_one_program_more_than_the_other_does_not_move_it(busy: int) -> None:
    """Beside a neighbour one takes 1.8 times as long, the other 1.6 times; of 40 cycles so many are beside one."""
    slow = np.arange(40) < busy
    drift = np.linspace(1.0, 1.02, 40)
    above = 5.0 * drift * np.where(slow, 1.8, 1.0)
    below = 1.0 * drift * np.where(slow, 1.6, 1.0)
    assert session_log_ratio(list(above), list(below)) == pytest.approx(math.log(5))


def test_both_sides_count_alike() -> None:
    random = np.random.default_rng(3)
    found = []
    for _ in range(400):
        above, below = (list(np.exp(random.normal(0, 0.1, 40))) for _ in range(2))
        found.append(session_log_ratio(above, below))
        assert session_log_ratio(below, above) == pytest.approx(-found[-1])
    assert abs(np.mean(found)) < 3 * np.std(found) / 20


def test_it_is_of_a_quarter_of_the_cycles_and_of_five_at_least() -> None:
    below = [1.0] * 40
    # the quietest ten have the ratios 1.00 to 1.09
    assert session_log_ratio([1 + n / 100 for n in range(40)], below) == pytest.approx(math.log(1.045), abs=1e-4)
    few = [1 + n / 100 for n in range(8)]
    assert session_log_ratio(few, below) == pytest.approx(math.log(few[LEAST_CYCLES // 2]))
