"""Parts of explanations: how processes pair, what an overhead loses, and what counts as free."""

from collections.abc import Iterable
from typing import Any

import pytest

from orchestrator.analysis.explanation.explain import removed_share
from orchestrator.analysis.explanation.larger import free_batch, is_free
from orchestrator.analysis.frame import Frame
from orchestrator.analysis.metrics import METRICS
from orchestrator.analysis.ratios import Visit, shared_visits
from orchestrator.analysis.statistics import Estimate
from tests.results import known


def values(rounds: Iterable[int], centre: float = 1.0, campaign: str = "c") -> dict[Visit, float]:
    return {(campaign, "h", number): centre * (1 + 0.01 * (number % 3)) for number in rounds}


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [
        (range(5), range(5), 5),
        (range(5), range(3, 8), 0),  # 2 of 5 on either side
        (range(4), range(2, 6), 2),
        (range(2), range(10), 2),
        (range(1), range(1), 0),
        (range(5), range(4, 9), 0),
        (range(3), range(5, 8), 0),
    ],
)
def test_rounds_pair_if_two_at_least_and_half_of_a_side_are_shared(ours: range, theirs: range, shared: int) -> None:
    assert len(shared_visits(values(ours), values(theirs))) == shared


def test_without_shared_rounds_the_removed_share_has_no_interval() -> None:
    found = removed_share(values(range(5), 4.0), values(range(5), 1.0, "other"))
    assert (known(found).value, known(found).low) == (pytest.approx(0.75), None)
    assert removed_share({("c", "h", 1): -1.0}, values(range(3))) is None


@pytest.mark.parametrize(
    ("interval", "free"),
    [((0.9, 1.1), True), ((0.9, 1.11), None), ((1.11, 1.3), False), ((0.5, 4.0), None), ((None, None), None)],
)
def test_what_is_free_has_its_whole_interval_below_the_limit(
    interval: tuple[float | None, float | None], free: bool | None
) -> None:
    assert is_free(Estimate(1.1, *interval, 3, 6)) is free


STEADY, NOISY = (1.0, 1.01, 1.02, 1.0, 1.01), (0.6, 1.0, 1.7, 1.0, 0.8)


def rows(cost: float, factors: Iterable[float]) -> list[dict[str, Any]]:
    shared = {
        **dict.fromkeys(("session_id", "interleaving", "finished_at", "cpu_time_per_call_s")),
        "campaign_id": "c", "host": "h", "status": "ok", "device": "cpu", "latency_sync_samples": 10,
    }  # fmt: skip
    latencies = ("latency_sync_median_s", "latency_sync_p10_s")
    return [
        {**shared, "round": number, **dict.fromkeys(latencies, cost * factor)} for number, factor in enumerate(factors)
    ]


@pytest.mark.parametrize(
    ("costs", "batch", "following", "is_decided"),
    [
        ({1: (1, STEADY), 2: (1.05, STEADY), 4: (1.5, STEADY)}, 2, 4, True),
        ({1: (1, STEADY), 2: (1.05, STEADY), 4: (1.06, STEADY)}, 4, None, True),
        ({1: (1, STEADY), 2: (1.0, NOISY), 4: (1.5, STEADY)}, 1, 2, False),
        ({1: (1, STEADY), 2: (1.0, NOISY), 4: (1.05, STEADY)}, 4, None, True),  # 4 examples cost no less than 2
        ({1: (1, STEADY), 2: (1.5, STEADY), 4: (1.05, STEADY)}, 1, 2, True),
    ],
)
def test_the_free_batch_is_the_largest_that_is_shown_to_be(
    costs: dict[int, tuple[float, tuple[float, ...]]], batch: int, following: int | None, is_decided: bool
) -> None:
    found = known(free_batch({size: rows(*cost) for size, cost in costs.items()}, Frame((), METRICS["latency_sync"])))
    assert (found.batch, found.next_batch, found.is_decided) == (batch, following, is_decided)
