"""Then and now, from rows to the printed page: which side a ratio favours."""

from typing import Any

import pyarrow as pa
import pytest

from orchestrator.analysis import Sides, TrialPlace, Verdict, compare_sides
from orchestrator.report import render_reproduction
from orchestrator.store import TRIALS
from runners.contract import Status
from tests.printing import printed
from tests.storing import row

LATENCIES = ("latency_sync_median_s", "latency_sync_p10_s")
SIDES = [Sides(TrialPlace("old", "lab1", "k1"), TrialPlace("new", "lab2", "k2"))]


def trials(campaign: str, host: str, key: str, latency_s: float, **more: object) -> pa.Table:
    """Five rounds whose medians scatter by 1 %."""
    shared: dict[str, Any] = {
        "campaign_id": campaign, "host": host, "trial_key": key, "sequence_length": 128, "workload_options": "{}",
        "isolation": "docker", "latency_sync_samples": 3,
    }  # fmt: skip
    rows = [
        row(f"{campaign}-{number}", **{**shared, "round": number, **dict.fromkeys(LATENCIES, median_s), **more})
        for number in range(1, 6)
        for median_s in [latency_s * (1 + (number - 3) / 400)]
    ]
    return pa.Table.from_pylist(rows, schema=TRIALS)


@pytest.mark.parametrize(
    ("then_s", "now_s", "ratio", "verdict", "words"),
    [
        (0.2, 0.1, 2.0, Verdict.FASTER, "faster now"),
        (0.1, 0.2, 0.5, Verdict.SLOWER, "slower now"),
        (0.1, 0.1, 1.0, Verdict.EQUIVALENT, "reproduced within 3%"),
    ],
)
def test_a_ratio_is_then_over_now(then_s: float, now_s: float, ratio: float, verdict: Verdict, words: str) -> None:
    found = compare_sides(trials("old", "lab1", "k1", then_s), trials("new", "lab2", "k2", now_s), SIDES)
    [mode] = found[0].modes
    assert mode.then is not None
    assert mode.now is not None
    assert mode.ratio is not None
    assert (mode.then.value, mode.now.value) == (pytest.approx(then_s), pytest.approx(now_s))
    assert (mode.ratio.estimate.value, mode.ratio.verdict) == (pytest.approx(ratio), verdict)
    text = printed(render_reproduction(found, (), ()))
    assert f"x{ratio:.3f} [" in text
    assert words in text
    assert text.index(f"{then_s * 1000:.0f} ms") < text.rindex(f"{now_s * 1000:.0f} ms")


def test_a_failure_of_now_leaves_the_latency_of_then_alone() -> None:
    now = trials("new", "lab2", "k2", 0.1, status="oom", reason="killed", latency_sync_median_s=None)
    [one] = compare_sides(trials("old", "lab1", "k1", 0.1), now, SIDES)
    [mode] = one.modes
    assert (mode.now, mode.ratio) == (None, None)
    assert (one.statuses_now, one.reasons_now) == ({Status.OOM: 5}, ("killed",))
