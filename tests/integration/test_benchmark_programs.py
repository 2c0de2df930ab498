"""The programs that the benchmark of taxmeter runs in an environment, beside the runner, run there."""

import pytest

from benchmarks.performance.sweeping import contained
from orchestrator.environments import BuiltImage


@pytest.mark.engine
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("performance/by_hand.py", ["distilbert:eager:1"]),
        pytest.param("performance/beside.py", ["bert-base", "eager"], marks=pytest.mark.long),
    ],
)
def test_a_program_says_a_number(cpu_image: BuiltImage, program: str, arguments: list[str]) -> None:
    assert contained(cpu_image.reference, program, *arguments) > 0
