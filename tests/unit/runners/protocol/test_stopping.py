"""When a series ends."""

from pathlib import Path

import pytest

from runners.contract import Stop
from runners.protocol.pressure import PressureGauge, parse_total_ns
from runners.protocol.stopping import StoppingRule


@pytest.mark.parametrize(
    ("samples", "elapsed_ns", "expected"),
    [(5, 99, None), (5, 100, Stop.BUDGET), (4, 299, None), (4, 10_000, None), (9, 0, Stop.SAMPLES)],
)
def test_a_minimum_is_taken_whatever_it_costs(samples: int, elapsed_ns: int, expected: Stop | None) -> None:
    rule = StoppingRule(budget_ns=100, min_samples=5, max_samples=9)
    assert rule.verdict(samples, elapsed_ns) is expected


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
