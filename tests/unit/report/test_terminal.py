"""The table, as text."""

import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.analysis import (
    Estimate,
    FailureGroup,
    Flagged,
    Pairing,
    Ratio,
    SettingSummary,
    Shape,
    Summary,
    SummaryCell,
    Transition,
    Turning,
    Twin,
    Verdict,
)
from orchestrator.analysis.ratios import Witness, judged
from orchestrator.analysis.transition import Interval, Side
from orchestrator.config import load_sweep
from orchestrator.report import render
from orchestrator.report.sentences import sentences
from orchestrator.report.text import TOO_WIDE, duration_text, ratio_text, value_text, work_name
from runners.contract import Status

PROJECT = Path(__file__).parents[3]
FOOTER_LINES = 3
"""That `sweep run` prints below the table."""
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


def summary(*cells: SummaryCell, row: Mapping[str, object] = ROW, **more: object) -> Summary:
    one = SettingSummary(row, cells)
    values = {"settings": (one,), "failures": (), "totals": {Status.OK: 3}, "retried": 0, **more}
    return Summary(**values)


def text(found: Summary, width: int = 100, intervals: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render(found, intervals))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def table_line(shown: str, start: str) -> str:
    """The line of the table that begins so, with single spaces."""
    [line] = [" ".join(line.split()) for line in shown.splitlines() if line.startswith(start)]
    return line


def test_a_line_has_batch_processes_medians_ratios_and_marks() -> None:
    found = summary(cell("eager", 0.0122), cell("onnxruntime", 0.0084, 1.5))
    shown = text(found, 120)
    assert table_line(shown, "    4") == "4 3 12.2 ms ±11% 8.40 ms x1.50 +"
    shown = text(found, 120, intervals=True)
    assert table_line(shown, "    4") == "4 3 12.2 ms [11.0, 13.4] 8.40 ms [7.56, 9.24] x1.50 [1.35, 1.65] +"
    shown = " ".join(shown.split())
    assert "lab1: EPYC, float32, cpu with 2 threads, environment cpu" in shown
    assert "+ faster, - slower, = equal, ~ undecided" in shown


def test_sentences_come_before_the_table() -> None:
    proven = cell("eager", 0.010, floor=estimate(0.002), floor_proven=True)
    shown = " ".join(text(summary(proven, cell("onnxruntime", 0.0084, 1.5)), 120).split())
    sentence = (
        "bert_base, 128 tokens: onnxruntime 1.50 times faster than eager; eager's framework is at least 20 % of a call."
    )
    assert sentence in shown
    assert shown.index(sentence) < shown.index("batch n eager")


def test_a_sentence_names_the_batches_of_each_verdict_and_the_transition() -> None:
    verdicts = {1: 2.0, 8: 1.5, 64: 1.001}
    cells = [
        replace(found, batch=batch)
        for batch, ratio in verdicts.items()
        for found in (cell("eager", 0.01), cell("torchscript", 0.01, ratio))
    ]
    inside = Transition(Side.INSIDE, 7.31, Interval(5.2, None), (1, 8, 64), 3)
    beyond = Transition(Side.ABOVE, None, None, (1, 8, 64), 3)
    turnings = (Turning(SHAPE, "eager", inside), Turning(SHAPE, "torchscript", beyond))
    found = SettingSummary(ROW, tuple(cells), (), turnings)
    [said] = sentences(found, 0.03, work_name)
    assert said == (
        "bert_base, 128 tokens: torchscript 1.50 to 2.00 times faster than eager at batches 1, 8, undecided at "
        "batch 64; framework and arithmetic are even at batch 7.3 [5.2, above 64] (eager) or a larger one."
    )


def test_the_floor_is_told_once_and_says_when_it_is_not_proven() -> None:
    proven = cell("eager", 0.010, floor=estimate(0.002), floor_proven=True)
    doubtful = cell("onnxruntime", 0.010, floor=estimate(0.001))
    above = cell("torchscript", 0.010, floor=estimate(0.011), floor_proven=True)
    missing = cell("openvino", 0.010, floor_problem="the twin dispatches 287 operations, not 290")
    shown = text(summary(proven, doubtful, above), 200)
    assert table_line(shown, "floor  ") == "floor ≥2.00 ms ≥1.00 ms (not proven) disturbed"
    shown = text(summary(missing), 200)
    assert table_line(shown, "floor  ") == "floor unknown"
    reason = "the twin dispatches 287 operations, not 290"
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
    wide = against(Estimate(1.5, 0.9, 2.5, 3, 30))
    shown = text(summary(cell("eager", 1.0), replace(cell("onnxruntime", 1.0), ratio=wide)))
    assert "x1.50" not in shown
    assert "1.00 s ~" in shown
    far = against(Estimate(9.0, 5.0, 16.0, 3, 30))
    shown = text(summary(cell("eager", 1.0), replace(cell("onnxruntime", 1.0), ratio=far)))
    assert "9.00" not in shown
    assert "onnxruntime faster" in shown
    vague = replace(cell("eager", 1.0), latency=Estimate(0.03, 0.01, 0.09, 3, 30))
    assert table_line(text(summary(vague)), "    4") == "4 3 ?"
    assert "30.0 ms [10.0, 90.0]" in text(summary(vague), intervals=True)


def test_shapes_that_differ_in_dtype_are_told_apart_everywhere() -> None:
    other = replace(SHAPE, dtype="bfloat16")
    cells = (cell("eager", 0.0122), cell("onnxruntime", 0.0084, 1.5))
    found = SettingSummary(ROW, (*cells, *(replace(found, shape=other) for found in cells)))
    shown = " ".join(text(Summary((found,), (), {}, 0), width=200).split())
    assert "bert_base, 128 tokens, bfloat16, cpu with 2 threads: onnxruntime 1.50 times faster than eager." in shown
    assert "bert_base, 128 tokens, float32, cpu with 2 threads: onnxruntime 1.50 times faster than eager." in shown


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_of_the_default_sweep_has_at_most_45_lines(width: int) -> None:
    sweep = load_sweep(PROJECT / "sweeps" / "quickstart.yaml")
    lines = []
    for axis in sweep.workloads:
        for batch in axis.batch:
            shape = replace(SHAPE, workload=axis.name[0], sequence_length=0, image_size=224)
            cells = [cell("eager", 0.0956, fastest=estimate(0.0812), floor=estimate(0.00212), floor_proven=True)]
            cells += [
                replace(cells[0], backend=other.name, ratio=against(estimate(ratio), 20.0))
                for other, ratio in zip(sweep.backends[1:], (1.42, 1.07), strict=True)
            ]
            lines.append([replace(found, shape=shape, batch=batch) for found in cells])
    last = lines[-1][0].shape
    turnings = tuple(
        Turning(last, backend, Transition(Side.INSIDE, 9.1, Interval(7.6, 10.4), (1, 8, 64), 3))
        for backend in ("eager", "torchscript")
    )
    twins = (Twin(ROW, against(estimate(1.0))),)
    docker = {**ROW, "host": "this-machine", "isolation": "docker", "image_digest": "sha256:0123456789abcdef"}
    found = SettingSummary(docker, tuple(found for line in lines for found in line), twins, turnings)
    shown = text(Summary((found,), (), {Status.OK: 60}, 0, Flagged(57, 60, {"load": 57})), width)
    assert "undecided: a decision takes about" in " ".join(shown.split())
    assert len(shown.splitlines()) <= 45 - FOOTER_LINES
    assert len(lines) >= 6


def test_an_interval_that_reaches_below_0_is_shown() -> None:
    assert value_text(Estimate(-3.196e-5, -4.62e-5, -8.3e-6, 5, 5), "s") == "-32.0 us [-46.2, -8.30]"
    assert value_text(Estimate(1e-6, -1e-6, 3e-6, 5, 5), "s") == "1.00 us [-1.00, 3.00]"


def test_where_an_interval_says_nothing_words_stand_and_no_number() -> None:
    assert value_text(Estimate(1e-3, 1e-5, 1e-2, 2, 2), "s") == TOO_WIDE
    assert value_text(Estimate(-1e-3, -1e-2, -1e-5, 2, 2), "s") == TOO_WIDE
    assert ratio_text(Estimate(620.38, 3.1, 124_000.0, 2, 2)) == TOO_WIDE
    assert duration_text(Estimate(1e-5, -1e-3, 1e-3, 2, 2), whole=5e-4) == TOO_WIDE


def test_a_part_is_shown_where_its_interval_is_narrower_than_the_whole() -> None:
    assert duration_text(Estimate(1e-5, -1e-4, 1e-4, 2, 2), whole=5e-4) == "10.0 us [-100, 100]"


def test_isolation_is_said() -> None:
    shown = " ".join(text(summary(cell("eager", 1.0))).split())
    assert "NOT in containers (isolation=process: no Docker engine answers)" in shown
    docker = {**ROW, "isolation": "docker", "image_digest": "sha256:0123456789abcdef"}
    shown = " ".join(text(summary(cell("eager", 1.0), row=docker)).split())
    assert "in containers (isolation=docker, image sha256:0123456789ab)" in shown


def test_what_is_missing_in_a_cell_is_said() -> None:
    few = cell("onnxruntime", None, unsteady=1, failures={Status.WRONG_OUTPUT: 1})
    few = replace(few, latency=estimate(0.01, processes=2))
    shown = text(summary(cell("eager", 0.01), few, cell("torchscript", None, failures={Status.OOM: 3})))
    shown = " ".join(shown.split())
    assert "n=2" in shown
    assert "1 not steady" in shown
    assert "1 wrong_output" in shown
    assert "3 oom" in shown


def test_verdicts_have_their_words_what_could_have_been_found_and_what_a_decision_takes() -> None:
    faster, open_ = cell("onnxruntime", 0.0084, 1.5), cell("openvino", 0.0122, 1.01)
    [ratio] = judged([Ratio(Estimate(1.01, 0.94, 1.085, 5, 50), Pairing.TURNS, 20.0)])
    shown = text(summary(cell("eager", 0.0122), faster, replace(open_, ratio=ratio)), width=200)
    assert "x1.50 +" in shown
    assert "Verdicts: 1 faster, 1 undecided." in shown
    assert "all 2 judged together (Holm)" in shown
    assert re.search(
        r"Smallest difference that could have been found: \d+(\.\d+)? % in the middle, ", " ".join(shown.split())
    )
    assert f"1 undecided: a decision takes about {ratio.sessions} sessions more (" in shown


def test_cpu_time_that_says_otherwise_is_told() -> None:
    wall = Ratio(estimate(1.5), Pairing.TURNS, None, cpu=Witness(estimate(1.0), Verdict.UNDECIDED))
    [ratio] = judged([wall])
    shown = text(summary(cell("eager", 1.0), replace(cell("onnxruntime", 1.0), ratio=ratio)), width=200)
    assert "batch 4, onnxruntime: CPU time says x1.00 [0.90, 1.10]: undecided" in shown
    [ratio] = judged([replace(wall, cpu=Witness(estimate(1.4), Verdict.UNDECIDED))])
    shown = text(summary(cell("eager", 1.0), replace(cell("onnxruntime", 1.0), ratio=ratio)), width=200)
    assert "CPU time" not in shown


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

    def shown(*ratios: Estimate) -> str:
        twins = tuple(Twin({**ROW, "batch": 2**number}, against(ratio)) for number, ratio in enumerate(ratios))
        return text(Summary((replace(one, twins=twins),), (), {}, 0), width=200)

    assert "x1.00 [0.99, 1.01] bert_base, 128 tokens" in shown(*ratios)
    assert "batch 1, eager: equivalent" in shown(*ratios)
    assert "batch 2, eager: undecided" in shown(*ratios)
    assert "batch 4, eager: faster" in shown(*ratios)
    assert "A/A, the same trial twice: 1 of 3 pairs called different." in shown(*ratios)
    assert "A/A, the same trial twice: 0 of 2 pairs called different." in shown(*ratios[:2])


def test_failures_and_totals_are_shown() -> None:
    names = tuple(f"bert_base backend{number} batch 1" for number in range(5))
    group = FailureGroup("lab1", "cpu", "process", Status.SKIPPED, "no GPU [none]", 12, names)
    totals = {Status.SKIPPED: 12, Status.OK: 1}
    shown = text(summary(cell("eager", 1.0), failures=(group,), totals=totals, retried=1))
    assert "12 skipped (lab1, cpu, process): no GPU [none]" in shown
    assert "and 2 more" in shown
    assert "Total: 13 trials: 1 ok, 12 skipped; 1 attempt repeated" in shown


def test_a_campaign_without_results_still_renders() -> None:
    assert text(Summary((), (), {}, 0)).strip() == "Total: 0 trials: none"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, "1.50 s"),
        (0.01234, "12.3 ms"),
        (0.000999, "999 us"),
        (2e-7, "0.20 us"),
        (0.09999, "100 ms"),
        (1234.0, "1234 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit(value: float, expected: str) -> None:
    assert duration_text(Estimate(value, None, None, 1, 1)) == expected


def test_flagged_trials_are_told_with_their_guards() -> None:
    assert "Flagged" not in text(summary(cell("eager", 0.01), flagged=Flagged(0, 3, {})))
    shown = text(summary(cell("eager", 0.01), flagged=Flagged(2, 3, {"load": 2, "throttling": 1})), width=80)
    assert "Flagged by guards: 2 of 3 trials (load 2, throttling 1); docs/measurement.md" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_what_was_measured_alone_or_had_few_turns_is_told_with_the_reason() -> None:
    assert "Measured alone" not in text(summary(cell("eager", 0.01)))
    shown = text(
        summary(
            cell("eager", 0.01),
            apart={("alone", "no room beside the others: 1.0 GiB free"): 2, ("pairs", "no room"): 1},
            short=1,
        )
    )
    assert "Measured alone, not in turns with the others: 2 trials; no room beside the others: 1.0 GiB free." in shown
    assert "Measured in turns with eager alone: 1 trial; no room." in shown
    assert "Fewer turns than the least number: 1 trial, for lack of time (timeout_s)." in shown
