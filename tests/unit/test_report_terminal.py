"""The table, as text."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator.analysis import (
    AaPair,
    Cell,
    Estimate,
    FailureGroup,
    Flagged,
    Latency,
    Line,
    Pairing,
    Ratio,
    Setting,
    SettingSummary,
    Shape,
    Summary,
    Verdict,
)
from orchestrator.analysis.ratios import Witness, judged
from orchestrator.report import render
from orchestrator.report.wording import duration_text, value_text
from runners.contract import Status

SETTING = Setting("lab1", "cpu", "process", "e1", "", "s1", 1, "r1")
SHAPE = Shape("bert_base", 128, 0, "", "float32", "cpu", 2, 0, "{}")


def estimate(value: float, processes: int = 3) -> Estimate:
    return Estimate(value, value * 0.9, value * 1.1, processes, 30 * processes)


def against(found: Estimate, session_s: float | None = None) -> Ratio:
    [ratio] = judged([Ratio(found, Pairing.TURNS, session_s)])
    return ratio


def cell(backend: str, latency_s: float | None, ratio: float | None = None, **more: object) -> Cell:
    values = {"fastest": None, "floor": None, "floor_proven": False, "unsteady": 0, "failures": {}, **more}
    return Cell(
        backend=backend,
        latency=None if latency_s is None else estimate(latency_s),
        ratio=None if ratio is None else against(estimate(ratio)),
        **values,  # type: ignore[arg-type]
    )


def summary(*cells: Cell, setting: Setting = SETTING, **more: object) -> Summary:
    one = SettingSummary(setting, "no Docker engine answers", "EPYC", None, (Line(SHAPE, 4, cells),), ())
    values = {"settings": (one,), "failures": (), "totals": {Status.OK: 3}, "retried": 0, **more}
    return Summary(Latency.SYNC, **values)


def text(found: Summary, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render(found))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_cell_has_the_median_its_interval_and_the_ratio() -> None:
    shown = text(summary(cell("eager", 0.0122), cell("onnxruntime", 0.0084, 1.5)))
    assert "12.2 ms [11.0, 13.4]" in shown
    assert "8.40 ms [7.56, 9.24]" in shown
    assert "x1.50 [1.35, 1.65]" in shown
    assert "bert_base, 128 tokens, float32, cpu with 2 threads" in shown
    assert "over 3 processes" in shown


def test_the_floor_has_its_share_and_says_when_it_is_not_proven() -> None:
    proven = cell("eager", 0.010, floor=estimate(0.002), floor_proven=True)
    doubtful = cell("onnxruntime", 0.010, floor=estimate(0.001))
    shown = text(summary(proven))
    assert "floor ≥ 2.00 ms [1.80, 2.20], 20 %\n" in shown.replace(" \n", "\n").replace(" \n", "\n")
    assert "? where" not in shown
    shown = text(summary(proven, doubtful))
    assert "floor ≥ 1.00 ms [0.90, 1.10], 10 % ?" in " ".join(shown.split())
    assert "? where that is not proven" in shown


@pytest.mark.parametrize("width", [80, 100])
def test_nothing_is_cut_or_broken_within_a_cell(width: int) -> None:
    cells = [cell(name, 0.0122, 1.5) for name in ("onnxruntime", "torch_compile", "torchscript", "openvino")]
    shown = text(summary(cell("eager", 0.155), *cells), width)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert shown.count("12.2 ms [11.0, 13.4]") == 4
    assert shown.count("x1.50 [1.35, 1.65]") == 4
    assert "\x1b" not in shown
    assert "…" not in shown


def test_an_interval_that_reaches_below_0_is_shown() -> None:
    assert value_text(Estimate(-3.196e-5, -4.62e-5, -8.3e-6, 5, 5), "s") == "-32.0 us [-46.2, -8.30]"
    assert value_text(Estimate(1e-6, -1e-6, 3e-6, 5, 5), "s") == "1.00 us [-1.00, 3.00]"
    assert value_text(Estimate(1e-3, 1e-5, 1e-2, 2, 2), "s") == "1.00 ms [too wide: more rounds]"


def test_isolation_is_said() -> None:
    assert "NOT in containers (isolation=process)" in text(summary(cell("eager", 1.0)))
    docker = Setting("lab1", "cpu", "docker", "e1", "sha256:0123456789abcdef", "s1", 1, "r1")
    assert "in containers (isolation=docker, image sha256:0123456789ab)" in text(
        summary(cell("eager", 1.0), setting=docker)
    )


def test_what_is_missing_in_a_cell_is_said() -> None:
    few = cell("onnxruntime", None, unsteady=1, failures={Status.WRONG_OUTPUT: 1})
    few = replace(few, latency=estimate(0.01, processes=2))
    shown = text(summary(cell("eager", 0.01), few, cell("torchscript", None, failures={Status.OOM: 3})))
    assert "n=2" in shown
    assert "1 not steady" in shown
    assert "1 wrong_output" in shown
    assert "3 oom" in shown


def test_verdicts_have_their_words_what_could_have_been_found_and_what_a_decision_takes() -> None:
    faster, open_ = cell("onnxruntime", 0.0084, 1.5), cell("openvino", 0.0122, 1.01)
    [ratio] = judged([Ratio(Estimate(1.01, 0.94, 1.085, 5, 50), Pairing.TURNS, 20.0)])
    shown = text(summary(cell("eager", 0.0122), faster, replace(open_, ratio=ratio)), width=200)
    assert "x1.50 [1.35, 1.65]" in shown
    assert "Verdicts: 1 faster, 1 undecided." in shown
    assert "all 2 judged together (Holm)" in shown
    assert re.search(r"Smallest difference that could have been found: \d+(\.\d)? % in the middle, ", shown)
    assert f"1 undecided: a decision takes about {ratio.sessions} sessions more (" in shown


def test_cpu_time_that_says_otherwise_is_told() -> None:
    wall = Ratio(estimate(1.5), Pairing.TURNS, None, cpu=Witness(estimate(1.0), Verdict.UNDECIDED))
    [ratio] = judged([wall])
    shown = text(summary(cell("eager", 1.0), replace(cell("onnxruntime", 1.0), ratio=ratio)), width=200)
    assert "batch 4, onnxruntime: CPU time says x1.00 [0.90, 1.10]: undecided" in shown
    [ratio] = judged([replace(wall, cpu=Witness(estimate(1.4), Verdict.UNDECIDED))])
    shown = text(summary(cell("eager", 1.0), replace(cell("onnxruntime", 1.0), ratio=ratio)), width=200)
    assert "CPU time" not in shown


def test_the_10th_percentile_is_shown_where_it_differs() -> None:
    assert "p10 10.0 ms [9.00, 11.0]" in text(summary(cell("eager", 0.0122, fastest=estimate(0.010))))
    assert "p10" not in text(summary(cell("eager", 0.0122, fastest=estimate(0.0119))))


def test_aa_pairs_are_a_calibration() -> None:
    found = summary(cell("eager", 1.0))
    assert "No A/A pair ran" in text(found)
    (one,) = found.settings
    ratios = (Estimate(1.0, 0.99, 1.01, 8, 80), Estimate(0.9, 0.7, 1.2, 8, 80), Estimate(1.5, 1.4, 1.6, 8, 80))

    def shown(*ratios: Estimate) -> str:
        pairs = tuple(AaPair("eager", SHAPE, 2**number, against(ratio)) for number, ratio in enumerate(ratios))
        with_pairs = SettingSummary(one.setting, None, None, None, one.lines, pairs)
        return text(Summary(Latency.SYNC, (with_pairs,), (), {}, 0), width=200)

    assert "x1.00 [0.99, 1.01] over 8 sessions: bert_base, 128 tokens" in shown(*ratios)
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
    assert text(Summary(Latency.SYNC, (), (), {}, 0)).strip() == "Total: 0 trials: none"


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
    assert "Flagged by guards: 2 of 3 trials (load 2, throttling 1)." in shown
    assert "guard_flags" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
