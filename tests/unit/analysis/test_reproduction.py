"""Then and now, from rows to the printed page: which side a ratio favours, what is told of it, and what differs."""

from typing import Any

import pyarrow as pa
import pytest

from orchestrator.analysis import Change, Verdict
from orchestrator.analysis.reproduction import Comparison, Sides, TrialPlace, compare_sides
from orchestrator.report.reproduction import render_reproduction
from orchestrator.store import TRIALS
from runners.contract import Status
from tests.printing import printed
from tests.results import known
from tests.storing import row

LATENCIES = ("latency_sync_median_s", "latency_sync_p10_s")
STEADY = (0.995, 0.9975, 1.0, 1.0025, 1.005)


def trials(campaign: str, *medians_s: float, key: str = "k1", **more: object) -> pa.Table:
    """A round for each median; `then` ran on lab1 and `now` on lab2."""
    shared: dict[str, Any] = {
        "campaign_id": campaign, "host": {"then": "lab1", "now": "lab2"}[campaign], "trial_key": key,
        "sequence_length": 128, "workload_options": "{}", "isolation": "docker", "latency_sync_samples": 3,
    }  # fmt: skip
    rows = [
        row(f"{campaign}-{key}-{number}", **{**shared, "round": number, **dict.fromkeys(LATENCIES, median_s), **more})
        for number, median_s in enumerate(medians_s)
    ]
    return pa.Table.from_pylist(rows, schema=TRIALS)


def times(factor: float, scatter: tuple[float, ...] = STEADY) -> list[float]:
    return [0.1 * factor * share for share in scatter]


def compared(*sides: tuple[pa.Table, pa.Table]) -> list[Comparison]:
    keys = [[table["trial_key"][0].as_py() for table in tables] for tables in sides]
    places = [Sides(TrialPlace("then", "lab1", then), TrialPlace("now", "lab2", now)) for then, now in keys]
    then, now = (pa.concat_tables(tables) for tables in zip(*sides, strict=True))
    return list(compare_sides(then, now, places))


def text(found: list[Comparison], *more: Any) -> str:
    """In one line."""
    return " ".join(printed(render_reproduction(found, *(more or ((), ()))), 160).split())


NOISY = (0.8, 1.2, 0.9, 1.1, 1.0)


@pytest.mark.parametrize(
    ("then_s", "now_s", "verdict", "words"),
    [
        (times(2), times(1), Verdict.FASTER, ("x2.000 [", "faster now")),
        (times(1), times(2), Verdict.SLOWER, ("x0.500 [", "slower now")),
        (times(1), times(1), Verdict.EQUIVALENT, ("x1.000 [", "reproduced within 3%")),
        (times(1), times(1.015), Verdict.SLIGHTLY_SLOWER, ("reproduced within 3%, slightly slower now",)),
        (times(1), times(1, NOISY), Verdict.UNDECIDED, ("undecided: neither a difference nor equality",)),
        (times(1)[:1], times(1)[:1], Verdict.UNDECIDED, ("one process only",)),
    ],
)
def test_a_ratio_is_then_over_now_and_its_verdict_has_words(
    then_s: list[float], now_s: list[float], verdict: Verdict, words: tuple[str, ...]
) -> None:
    found = compared((trials("then", *then_s), trials("now", *now_s)))
    [mode] = found[0].modes
    assert (known(mode.then).value, known(mode.now).value) == pytest.approx(
        (then_s[len(then_s) // 2], sorted(now_s)[len(now_s) // 2])
    )
    assert known(mode.ratio).verdict is verdict
    shown = text(found)
    assert all(word in shown for word in words)


def test_then_and_now_stand_side_by_side_and_what_differs_by_group() -> None:
    found = compared((trials("then", *times(1)), trials("now", *times(2)[:4])))
    changed = (Change("system", "kernel.release", "6.1", "6.2"), Change("conditions", "load_1m", "0.1", "4"))
    shown = text(found, changed, ("h1: environment cpu is identical",))
    for words in (
        "bert_base, 128 tokens, float32, cpu with 2 threads, batch 1, eager", "100 ms [", "5 rounds, 15 samples",
        "200 ms [", "4 rounds, 12 samples", "latency then over latency now, above 1 is faster now",
        "then: then on lab1, trial key k1, 5 ok", "now: now on lab2, the same trial key, 4 ok",
        "What else differs between then and now: System kernel.release: 6.1 → 6.2 Conditions, medians before the",
        "h1: environment cpu is identical",
    ):  # fmt: skip
        assert words in shown
    assert shown.index("100 ms [") < shown.index("200 ms [")
    assert "Nothing else that is known differs" in text(found)


def test_verdicts_are_judged_together_and_told_with_what_a_decision_takes() -> None:
    found = compared(
        *(
            (trials("then", *times(1), key=key), trials("now", *times(factor, scatter), key=key))
            for key, factor, scatter in (("a", 1.0, STEADY), ("b", 2.0, STEADY), ("c", 1.0, NOISY))
        )
    )
    shown = text(found)
    for words in (
        "1 reproduced within 3%, 1 slower now, 1 undecided", "(of 3 ratios)", "all 3 judged together (Holm)",
        "Smallest difference that could have been found: ", "1 undecided: a decision takes about ",
    ):  # fmt: skip
        assert words in shown


def test_where_a_side_has_no_latency_it_says_why() -> None:
    failed: dict[str, Any] = {"status": "oom", "reason": "killed at 4 GiB", **dict.fromkeys(LATENCIES)}
    [gone] = compared((trials("then", *times(1)), trials("now", *times(1), **failed)))
    [mode] = gone.modes
    assert (known(mode.then).value, mode.now, mode.ratio) == (pytest.approx(0.1), None, None)
    assert (gone.statuses_now, gone.reasons_now) == ({Status.OOM: 5}, ("killed at 4 GiB",))
    shown = text([gone])
    assert all(words in shown for words in ("5 oom", "killed at 4 GiB", "no latency now"))
    before = trials("then", *times(1), **failed)
    assert "no latency then" in text(compared((before, trials("now", *times(1)))))
    neither = text(compared((before, trials("now", *times(1), key="k2", **failed))))
    assert "now: now on lab2, trial key k2, 5 oom" in neither
    assert "no side has a latency" in neither
