"""When a series ends."""

import random
from pathlib import Path

import pytest

from runners.contract import Stop
from runners.protocol.pressure import PressureGauge, parse_total_ns
from runners.protocol.stopping import StoppingRule, is_checkpoint, median_interval


def test_checkpoints_are_powers_of_two_from_32() -> None:
    assert [count for count in range(300) if is_checkpoint(count)] == [32, 64, 128, 256]


def test_the_interval_of_a_median_covers_it_about_as_often_as_it_says() -> None:
    generator = random.Random(1)
    covered = 0
    for _ in range(1000):
        low, high = median_interval([generator.expovariate(1.0) for _ in range(64)])
        covered += low <= 0.6931 <= high
    assert 930 <= covered <= 985


def test_a_narrow_interval_ends_a_series_and_a_wide_one_does_not() -> None:
    rule = StoppingRule(budget_ns=1e12, min_samples=10, max_samples=1000, precision_permille=10)
    narrow = [1000 + i % 5 for i in range(32)]
    wide = [1000 + 100 * (i % 5) for i in range(32)]
    assert rule.verdict(narrow, 0) is Stop.PRECISION
    assert rule.verdict(narrow[:-1], 0) is None
    assert rule.verdict(wide, 0) is None


@pytest.mark.parametrize(
    ("samples", "elapsed_ns", "expected"),
    [
        (5, 99, None),
        (5, 100, Stop.BUDGET),
        (4, 299, None),
        (4, 300, Stop.OVERRUN),
        (2, 900, None),
        (9, 0, Stop.SAMPLES),
    ],
)
def test_budget_overrun_and_samples(samples: int, elapsed_ns: int, expected: Stop | None) -> None:
    rule = StoppingRule(budget_ns=100, min_samples=5, max_samples=9)
    assert rule.verdict([1] * samples, elapsed_ns) is expected


def test_pressure_is_read_in_nanoseconds(tmp_path: Path) -> None:
    text = "some avg10=0.00 avg60=0.01 avg300=0.21 total=2233158\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    assert parse_total_ns(text.encode()) == 2_233_158_000
    path = tmp_path / "cpu"
    path.write_text(text)
    gauge = PressureGauge(str(path))
    assert gauge.total_ns() == 2_233_158_000
    gauge.close()


def test_a_kernel_without_pressure_gives_none(tmp_path: Path) -> None:
    gauge = PressureGauge(str(tmp_path / "absent"))
    assert gauge.total_ns() is None
    gauge.close()
