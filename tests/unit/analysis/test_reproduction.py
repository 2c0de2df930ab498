"""Then and now, from rows to the printed page: which side a ratio favours."""

import io
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from rich.console import Console

from orchestrator.analysis import Comparison, Sides, TrialPlace, Verdict, compare_sides
from orchestrator.report import render_reproduction
from orchestrator.store import TRIALS
from runners.contract import Status

SIDES = [Sides(TrialPlace("old", "lab1", "k1"), TrialPlace("new", "lab2", "k2"))]


def trials(campaign: str, host: str, key: str, latency_s: float, **more: object) -> pa.Table:
    """Five rounds whose medians scatter by 1 %."""
    rows = [
        {
            "trial_id": f"{campaign}-{number}", "trial_key": key, "campaign_id": campaign, "round": number, "order": 1,
            "replicate": 0, "attempt": 1, "status": "ok", "started_at": datetime(2026, 11, 20, tzinfo=UTC),
            "workload": "bert-base", "batch": 1, "sequence_length": 128, "workload_options": "{}", "backend": "eager",
            "backend_options": "{}", "dtype": "float32", "device": "cpu", "threads": 2, "seed": 0, "protocol": "{}",
            "method_version": 1, "contract_version": 1, "environment": "cpu", "isolation": "docker", "host": host,
            "latency_sync_median_s": latency_s * (1 + (number - 3) / 400), "latency_sync_samples": 3,
            "latency_sync_p10_s": latency_s * (1 + (number - 3) / 400), **more,
        }
        for number in range(1, 6)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TRIALS)


def compared(then_s: float, now_s: float) -> Comparison:
    [one] = compare_sides(trials("old", "lab1", "k1", then_s), trials("new", "lab2", "k2", now_s), SIDES)
    return one


def shown(one: Comparison) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(render_reproduction([one], (), ()))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("then_s", "now_s", "ratio", "verdict", "words"),
    [
        (0.2, 0.1, 2.0, Verdict.FASTER, "faster now"),
        (0.1, 0.2, 0.5, Verdict.SLOWER, "slower now"),
        (0.1, 0.1, 1.0, Verdict.EQUIVALENT, "reproduced within 3%"),
    ],
)
def test_a_ratio_is_then_over_now(then_s: float, now_s: float, ratio: float, verdict: Verdict, words: str) -> None:
    one = compared(then_s, now_s)
    [mode] = one.modes
    assert mode.then is not None
    assert mode.now is not None
    assert mode.ratio is not None
    assert (mode.then.value, mode.now.value) == (pytest.approx(then_s), pytest.approx(now_s))
    assert (mode.ratio.estimate.value, mode.ratio.verdict) == (pytest.approx(ratio), verdict)
    text = shown(one)
    assert f"x{ratio:.3f} [" in text
    assert words in text
    assert text.index(f"{then_s * 1000:.0f} ms") < text.rindex(f"{now_s * 1000:.0f} ms")


def test_a_failure_of_now_leaves_the_latency_of_then_alone() -> None:
    now = trials("new", "lab2", "k2", 0.1, status="oom", reason="killed", latency_sync_median_s=None)
    [one] = compare_sides(trials("old", "lab1", "k1", 0.1), now, SIDES)
    [mode] = one.modes
    assert (mode.now, mode.ratio) == (None, None)
    assert (one.statuses_now, one.reasons_now) == ({Status.OOM: 5}, ("killed",))
