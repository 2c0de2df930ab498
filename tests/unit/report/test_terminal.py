"""The table, as text."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from orchestrator.analysis import Estimate, Pairing, Ratio, Shape, Transition, Twin, Verdict
from orchestrator.analysis.ratios import Witness, judged
from orchestrator.analysis.summary import (
    FailureGroup,
    Flagged,
    SettingSummary,
    Summary,
    SummaryCell,
    Turning,
    summarise,
)
from orchestrator.analysis.transition import Interval, Side
from orchestrator.config import load_sweep
from orchestrator.report.sentences import sentences
from orchestrator.report.terminal import render
from orchestrator.report.text import TOO_WIDE, duration_text, ratio_text, value_text, work_name
from orchestrator.store import TRIALS
from runners.contract import Status
from tests.conftest import PROJECT
from tests.printing import printed

FOOTER_LINES = 3
"""That `sweep run` prints below the table."""
DOCKER = {"isolation": "docker", "image_digest": "sha256:0123456789abcdef"}
ROW = {
    "host": "lab1", "environment": "cpu", "isolation": "process", "image_digest": None, "cpu_model": "EPYC",
    "gpu_name": None, "executor_reason": "no Docker engine answers", "workload": "bert_base", "sequence_length": 128,
    "image_size": None, "workload_options": "{}", "dtype": "float32", "device": "cpu", "threads": 2, "seed": 0,
    "protocol": "{}", "backend": "eager", "backend_options": "{}", "batch": 4,
}  # fmt: skip
SHAPE = Shape("bert_base", 128, 0, "", "float32", "cpu", 2, 0, "{}")


def estimate(value: float, processes: int = 3) -> Estimate:
    return Estimate(value, value * 0.9, value * 1.1, processes, 30 * processes)


def against(found: Estimate, session_s: float | None = None) -> Ratio:
    [ratio] = judged([Ratio(found, Pairing.TURNS, session_s)])
    return ratio


def cell(backend: str, latency_s: float | None, ratio: float | None = None, **more: object) -> SummaryCell:
    return SummaryCell(
        *(SHAPE, 4, backend),
        latency=None if latency_s is None else estimate(latency_s),
        ratio=None if ratio is None else against(estimate(ratio)),
        **more,  # type: ignore[arg-type]
    )


def summary(*cells: SummaryCell, **more: Any) -> Summary:
    values = {"settings": (SettingSummary(ROW, cells),), "failures": (), "totals": {Status.OK: 3}, "retried": 0}
    return Summary(**{**values, **more})


def text(found: Summary, width: int = 100, intervals: bool = False) -> str:
    return printed(render(found, intervals), width)


def said(found: Summary, width: int = 200) -> str:
    """The same in one line."""
    return " ".join(text(found, width).split())


def beside_eager(ratio: Ratio) -> Summary:
    return summary(cell("eager", 1.0), replace(cell("onnxruntime", 1.0), ratio=ratio))


def table_line(shown: str, start: str) -> str:
    """The line of the table that begins so, with single spaces."""
    [line] = [" ".join(line.split()) for line in shown.splitlines() if line.startswith(start)]
    return line


def test_a_line_has_batch_processes_medians_ratios_and_marks_and_its_setting_the_isolation() -> None:
    found = summary(cell("eager", 0.0122), cell("onnxruntime", 0.0084, 1.5))
    shown = text(found, 120)
    assert table_line(shown, "    4") == "4 3 12.2 ms ±11% 8.40 ms x1.50 +"
    shown = text(found, 120, intervals=True)
    assert table_line(shown, "    4") == "4 3 12.2 ms [11.0, 13.4] 8.40 ms [7.56, 9.24] x1.50 [1.35, 1.65] +"
    for words in (
        "lab1: EPYC, float32, cpu with 2 threads, environment cpu",
        "NOT in containers (isolation=process: no Docker engine answers)",
        "+ faster, - slower, = equal, ~ undecided",
    ):
        assert words in said(found)
    docker = replace(found, settings=(replace(found.settings[0], row={**ROW, **DOCKER}),))
    assert "in containers (isolation=docker, image sha256:0123456789ab)" in said(docker)


def test_sentences_come_before_the_table() -> None:
    proven = cell("eager", 0.010, floor=estimate(0.002), floor_proven=True)
    sentences, table, _ = said(summary(proven, cell("onnxruntime", 0.0084, 1.5))).partition("batch n eager")
    assert table
    assert (
        "bert_base, 128 tokens: onnxruntime 1.50 times faster than eager; eager's framework is at least 20 % of a call."
    ) in sentences


def test_a_sentence_names_the_batches_of_each_verdict_and_the_transition() -> None:
    verdicts = {1: 2.0, 8: 1.5, 64: 1.001}
    cells = [
        replace(cell(backend, 0.01, ratio), batch=batch)
        for batch, found in verdicts.items()
        for backend, ratio in (("eager", None), ("torchscript", found))
    ]
    inside = Transition(Side.INSIDE, 7.31, Interval(5.2, None), (1, 8, 64), 3)
    beyond = Transition(Side.ABOVE, None, None, (1, 8, 64), 3)
    turnings = (Turning(SHAPE, "eager", inside), Turning(SHAPE, "torchscript", beyond))
    [sentence] = sentences(SettingSummary(ROW, tuple(cells), (), turnings), 0.03, work_name)
    assert sentence == (
        "bert_base, 128 tokens: torchscript 1.50 to 2.00 times faster than eager at batches 1, 8, undecided at "
        "batch 64; framework and arithmetic are even at batch 7.3 [5.2, above 64] (eager) or a larger one."
    )


def test_the_floor_is_told_once_and_says_when_it_is_not_proven() -> None:
    proven = cell("eager", 0.010, floor=estimate(0.002), floor_proven=True)
    doubtful = cell("onnxruntime", 0.010, floor=estimate(0.001))
    above = cell("torchscript", 0.010, floor=estimate(0.011), floor_proven=True)
    shown = text(summary(proven, doubtful, above), 200)
    assert table_line(shown, "floor  ") == "floor ≥2.00 ms ≥1.00 ms (not proven) disturbed"
    reason = "the twin dispatches 287 operations, not 290"
    shown = text(summary(cell("openvino", 0.010, floor_problem=reason)), 200)
    assert table_line(shown, "floor  ") == "floor unknown"
    assert f"Floor unknown of bert_base, 128 tokens, openvino: {reason}." in shown


@pytest.mark.parametrize("width", [80, 100])
def test_nothing_is_cut_or_broken_within_a_cell(width: int) -> None:
    cells = [cell(name, 0.0122, 1.5) for name in ("onnxruntime", "torch_compile", "torchscript", "openvino")]
    shown = text(summary(cell("eager", 0.155), *cells), width)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert shown.count("x1.50 +") == 4
    assert "\x1b" not in shown
    assert "…" not in shown


def test_a_number_whose_interval_says_nothing_is_not_printed() -> None:
    for wide, number, words in (
        ((1.5, 0.9, 2.5), "x1.50", "1.00 s ~"),
        ((9.0, 5.0, 16.0), "9.00", "onnxruntime faster"),
    ):
        shown = text(beside_eager(against(Estimate(*wide, 3, 30))))
        assert number not in shown
        assert words in shown
    vague = replace(cell("eager", 1.0), latency=Estimate(0.03, 0.01, 0.09, 3, 30))
    assert table_line(text(summary(vague)), "    4") == "4 3 ?"
    assert "30.0 ms [10.0, 90.0]" in text(summary(vague), intervals=True)


def test_shapes_that_differ_in_dtype_are_told_apart_everywhere() -> None:
    other = replace(SHAPE, dtype="bfloat16")
    cells = (cell("eager", 0.0122), cell("onnxruntime", 0.0084, 1.5))
    found = SettingSummary(ROW, (*cells, *(replace(found, shape=other) for found in cells)))
    shown = said(Summary((found,), (), {}, 0))
    for dtype in ("bfloat16", "float32"):
        assert f"bert_base, 128 tokens, {dtype}, cpu with 2 threads: onnxruntime 1.50 times faster than eager." in shown


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_of_the_default_sweep_has_at_most_45_lines(width: int) -> None:
    sweep = load_sweep(PROJECT / "sweeps" / "quickstart.yaml")
    image = replace(SHAPE, sequence_length=0, image_size=224)
    lines = [(replace(image, workload=axis.name[0]), batch) for axis in sweep.workloads for batch in axis.batch]
    eager = cell("eager", 0.0956, fastest=estimate(0.0812), floor=estimate(0.00212), floor_proven=True)
    ratios = (None, *(against(estimate(ratio), 20.0) for ratio in (1.42, 1.07)))
    cells = tuple(
        replace(eager, shape=shape, batch=batch, backend=axis.name, ratio=ratio)
        for shape, batch in lines
        for axis, ratio in zip(sweep.backends, ratios, strict=True)
    )
    turnings = tuple(
        Turning(cells[-1].shape, backend, Transition(Side.INSIDE, 9.1, Interval(7.6, 10.4), (1, 8, 64), 3))
        for backend in ("eager", "torchscript")
    )
    twins = (Twin(ROW, against(estimate(1.0))),)
    found = SettingSummary({**ROW, **DOCKER, "host": "this-machine"}, cells, twins, turnings)
    shown = text(Summary((found,), (), {Status.OK: 60}, 0, Flagged(57, 60, {"load": 57})), width)
    assert "undecided: a decision takes about" in " ".join(shown.split())
    assert len(shown.splitlines()) <= 45 - FOOTER_LINES
    assert len(lines) >= 6


in_seconds = partial(value_text, unit="s")
of_a_whole = partial(duration_text, whole=5e-4)


@pytest.mark.parametrize(
    ("shown", "value", "interval", "expected"),
    [
        (duration_text, 1.5, (None, None), "1.50 s"),
        (duration_text, 0.01234, (None, None), "12.3 ms"),
        (duration_text, 0.000999, (None, None), "999 us"),
        (duration_text, 2e-7, (None, None), "0.20 us"),
        (duration_text, 0.09999, (None, None), "100 ms"),
        (duration_text, 1234.0, (None, None), "1234 s"),
        (in_seconds, -3.196e-5, (-4.62e-5, -8.3e-6), "-32.0 us [-46.2, -8.30]"),
        (in_seconds, 1e-6, (-1e-6, 3e-6), "1.00 us [-1.00, 3.00]"),
        (in_seconds, 1e-3, (1e-5, 1e-2), TOO_WIDE),
        (in_seconds, -1e-3, (-1e-2, -1e-5), TOO_WIDE),
        (ratio_text, 620.38, (3.1, 124_000.0), TOO_WIDE),
        (of_a_whole, 1e-5, (-1e-3, 1e-3), TOO_WIDE),
        (of_a_whole, 1e-5, (-1e-4, 1e-4), "10.0 us [-100, 100]"),
    ],
)
def test_a_number_has_three_digits_and_a_unit_unless_its_interval_says_nothing(
    shown: Callable[[Estimate], str], value: float, interval: tuple[float | None, float | None], expected: str
) -> None:
    assert shown(Estimate(value, *interval, 2, 2)) == expected


def test_what_is_missing_in_a_cell_is_said() -> None:
    few = cell("onnxruntime", None, unsteady=1, failures={Status.WRONG_OUTPUT: 1})
    few = replace(few, latency=estimate(0.01, processes=2))
    shown = said(summary(cell("eager", 0.01), few, cell("torchscript", None, failures={Status.OOM: 3})))
    for words in ("n=2", "1 not steady", "1 wrong_output", "3 oom"):
        assert words in shown


def test_cpu_time_that_says_otherwise_is_told() -> None:
    otherwise, alike = judged(
        [Ratio(estimate(1.5), Pairing.TURNS, None, cpu=Witness(estimate(cpu), Verdict.UNDECIDED)) for cpu in (1.0, 1.4)]
    )
    words = "batch 4, onnxruntime: CPU time says x1.00 [0.90, 1.10]: undecided"
    assert words in text(beside_eager(otherwise), width=200)
    assert "CPU time" not in text(beside_eager(alike), width=200)


def test_the_10th_percentile_stands_behind_a_median_that_was_disturbed() -> None:
    disturbed = summary(cell("eager", 0.0122, fastest=estimate(0.010)))
    assert table_line(text(disturbed), "    4") == "4 3 12.2 (10.0) ms ±11%"
    assert table_line(text(disturbed, intervals=True), "    4") == "4 3 12.2 ms [11.0, 13.4] (10.0 ms)"
    assert "(980 us)" in text(summary(cell("eager", 0.00122, fastest=estimate(0.00098))))
    assert "(" not in table_line(text(summary(cell("eager", 0.0122, fastest=estimate(0.0119)))), "    4")
    vague = replace(cell("eager", 1.0, fastest=estimate(0.01)), latency=Estimate(0.03, 0.01, 0.09, 3, 30))
    assert table_line(text(summary(vague)), "    4") == "4 3 ? (10.0 ms)"


def test_aa_pairs_are_a_calibration() -> None:
    found = summary(cell("eager", 1.0))
    assert "No A/A pair ran" in text(found)
    (one,) = found.settings
    ratios = (Estimate(1.0, 0.99, 1.01, 8, 80), Estimate(0.9, 0.7, 1.2, 8, 80), Estimate(1.5, 1.4, 1.6, 8, 80))
    twins = tuple(Twin({**ROW, "batch": 2**number}, against(ratio)) for number, ratio in enumerate(ratios))
    shown = text(replace(found, settings=(replace(one, twins=twins),)), width=200)
    assert "x1.00 [0.99, 1.01] bert_base, 128 tokens" in shown
    for number, verdict in enumerate(("equivalent", "undecided", "faster")):
        assert f"batch {2**number}, eager: {verdict}" in shown
    assert "1 of 3 pairs called different." in shown


def test_a_campaign_without_results_still_renders() -> None:
    assert text(summarise(TRIALS.empty_table())).strip() == "Total: 0 trials: none"


NAMES = tuple(f"bert_base backend{number} batch 1" for number in range(5))
SKIPPED = FailureGroup("lab1", "cpu", "process", Status.SKIPPED, "no GPU [none]", 12, NAMES)
TOTALS, FLAGGED = {Status.SKIPPED: 12, Status.OK: 1}, Flagged(2, 3, {"load": 2, "throttling": 1})
APART = {("alone", "no room beside the others: 1.0 GiB free"): 2, ("pairs", "no room"): 1}


@pytest.mark.parametrize(
    ("told", "more"),
    [
        ("12 skipped (lab1, cpu, process): no GPU [none]", {"failures": (SKIPPED,)}),
        ("and 2 more", {"failures": (SKIPPED,)}),
        ("Total: 13 trials: 1 ok, 12 skipped; 1 attempt repeated", {"totals": TOTALS, "retried": 1}),
        ("Flagged by guards: 2 of 3 trials (load 2, throttling 1); docs/measurement.md", {"flagged": FLAGGED}),
        (
            "Measured alone, not in turns with the others: 2 trials; no room beside the others: 1.0 GiB free.",
            {"apart": APART},
        ),
        ("Measured in turns with eager alone: 1 trial; no room.", {"apart": APART}),
        ("Fewer turns than the least number: 1 trial, for lack of time (timeout_s).", {"short": 1}),
    ],
)
def test_what_else_is_to_be_known_of_trials_stands_below_the_table(told: str, more: dict[str, Any]) -> None:
    eager = cell("eager", 0.01)
    usual = said(summary(eager, flagged=Flagged(0, 3, {})))
    assert not any(words in usual for words in (told, "Flagged", "Measured", "Fewer turns"))
    assert told in said(summary(eager, **more), 80)
    assert max(len(line) for line in text(summary(eager, **more), 80).splitlines()) <= 80
