"""What tables keep apart unasked: work and backend, CPUs and GPUs, and noise that hides a difference from none at all."""

from pathlib import Path

import pytest

from orchestrator.analysis import Verdict
from orchestrator.analysis.comparing import (
    Interval,
    Outcome,
    Policy,
    compare,
    compare_selections,
    gate,
)
from orchestrator.analysis.metrics import METRICS
from orchestrator.errors import ConfigurationError
from orchestrator.store import Row
from tests.comparing import NEW, OLD, rounds, store_of

EAGER = [0.100, 0.110, 0.090, 0.105, 0.095]
FAST = [0.050, 0.056, 0.044, 0.053, 0.047]


def on_gpu(latencies_s: list[float], **more: object) -> list[Row]:
    """Rounds on a GPU, whose lone calls take ten times as long as one of many."""
    found = []
    for number, value in enumerate(latencies_s, 1):
        pipelined = {
            "latency_pipelined_median_s": value, "latency_pipelined_samples": 2, "samples_pipelined_s": [value] * 2,
        }  # fmt: skip
        [one] = rounds([10 * value], device="cuda", gpu_name="NVIDIA A100", dtype="float16", **pipelined, **more)
        found.append({**one, "round": number, "trial_id": f"{one['trial_id']}-gpu-{number}"})
    return found


def test_work_that_differs_gets_axes_of_its_own(tmp_path: Path) -> None:
    results = store_of(
        tmp_path,
        *rounds(EAGER),
        *rounds([2 * value for value in EAGER], dtype="bfloat16"),
        *rounds(FAST, backend="x"),
        *rounds([2.2 * value for value in FAST], backend="x", dtype="bfloat16"),
    )
    table = compare(results, ["workload"], ["backend"], "backend=eager")
    assert [one.name for one in table.axes] == ["workload", "dtype", "backend"]
    assert table.added == ("dtype",)
    ratios = {entry.key[1]: entry.ratio.estimate.value for entry in table.ratios if entry.ratio}
    assert ratios == pytest.approx({"float32": ratios["float32"], "bfloat16": ratios["float32"] / 1.1})
    assert compare(results, ["workload", "dtype"], ["backend"], "backend=eager").added == ()


def test_work_is_not_compared_with_other_work(tmp_path: Path) -> None:
    results = store_of(tmp_path, *rounds(EAGER), *rounds(FAST, backend="x", dtype="float16"))
    table = compare(results, ["workload"], ["backend"], "backend=eager")
    assert table.added == ("dtype",)
    assert [(one.problem, one.ratio) for one in table.entries if not one.is_baseline] == [("no baseline", None)]
    asked = compare(results, ["workload"], ["backend", "dtype"], "backend=eager dtype=float32")
    assert [one.ratio.verdict for one in asked.ratios if one.ratio] == [Verdict.FASTER]


def test_what_a_named_axis_tells_apart_needs_no_other(tmp_path: Path) -> None:
    bert = rounds(EAGER, workload="bert_base", sequence_length=128, image_size=None)
    resnet = rounds(FAST, workload="resnet50", sequence_length=None, image_size=224)
    assert compare(store_of(tmp_path, *bert, *resnet), ["host"]).added == ("workload",)


def test_sides_that_are_matched_on_too_little_are_split(tmp_path: Path) -> None:
    sides = [
        row
        for batch, factor in ((1, 1.0), (8, 6.0))
        for campaign, base in ((OLD, EAGER), (NEW, FAST))
        for row in rounds([factor * value for value in base], campaign=campaign, batch=batch)
    ]
    results = store_of(tmp_path, *sides)
    table = compare_selections(results, "campaign=previous", "campaign=newest", match=["workload"])
    assert table.added == ("batch",)
    assert len(table.ratios) == 2


def test_cpus_and_gpus_stand_in_one_table_each_with_its_own_latency(tmp_path: Path) -> None:
    gpu = [value / 50 for value in EAGER]
    results = store_of(
        tmp_path, *rounds(EAGER), *rounds(FAST, backend="x"), *on_gpu(gpu), *on_gpu(EAGER[::-1], backend="x")
    )
    table = compare(results, ["gpu", "workload"], ["backend"], "backend=eager")
    rows = {(row["gpu"], row["backend"]): row for row in table.arrow().to_pylist()}
    assert {key: (row["metric"], row["value"], row["samples"]) for key, row in rows.items()} == {
        ("no GPU", "eager"): ("latency_sync", 0.100, 15),
        ("no GPU", "x"): ("latency_sync", 0.050, 15),
        ("NVIDIA A100", "eager"): ("latency_pipelined", pytest.approx(0.002), 10),
        ("NVIDIA A100", "x"): ("latency_pipelined", 0.100, 10),
    }
    assert rows["no GPU", "x"]["ratio"] == pytest.approx(2, rel=0.02)
    assert rows["NVIDIA A100", "x"]["verdict"] == "slower"
    drawn = compare(results, ["gpu"], ["backend"], "backend=eager", policy=Policy(interval=Interval.BOOTSTRAP))
    assert [one.ratio.estimate.value for one in drawn.ratios if one.ratio] == pytest.approx(
        [one.ratio.estimate.value for one in table.ratios if one.ratio], rel=0.05
    )


def test_a_cpu_is_compared_with_a_gpu_by_a_metric_that_both_have(tmp_path: Path) -> None:
    results = store_of(tmp_path, *rounds(EAGER, dtype="float16"), *on_gpu([value / 100 for value in EAGER]))
    for question in (
        lambda policy: compare(results, ["workload"], ["device"], "device=cpu", policy=policy),
        lambda policy: compare_selections(results, "device=cpu", "device=cuda", match=["workload"], policy=policy),
    ):
        with pytest.raises(ConfigurationError, match="on a CPU and on a GPU, whose usual latencies .*--metric"):
            question(Policy())
        [entry] = question(Policy(METRICS["latency_sync"])).ratios
        assert entry.ratio is not None
        assert entry.ratio.estimate.value == pytest.approx(10)


def test_noise_makes_nothing_equivalent(tmp_path: Path) -> None:
    """A difference of 20 % is within twice the noise floor; that is no proof that there is none."""
    shaken = [value * factor for value, factor in zip(EAGER, (1.2, 0.85, 1.18, 0.84, 1.0), strict=True)]
    slower = [1.2 * value for value in EAGER]
    results = store_of(tmp_path, *rounds(EAGER), *rounds(shaken, replicate=1), *rounds(slower, backend="x"))
    [entry] = compare(results, ["backend"], baseline="backend=eager").ratios
    assert entry.ratio is not None
    assert entry.ratio.minimum_effect > 0.3
    assert (entry.ratio.margin, entry.ratio.verdict) == (0.1, Verdict.UNDECIDED)
    same = store_of(tmp_path / "b", *rounds(EAGER), *rounds(shaken, replicate=1), *rounds(EAGER, backend="x"))
    [entry] = compare(same, ["backend"], baseline="backend=eager").ratios
    assert entry.ratio is not None
    assert entry.ratio.verdict is Verdict.EQUIVALENT
    wide = Policy(minimum_effect=0.25)
    [entry] = compare(results, ["backend"], baseline="backend=eager", policy=wide).ratios
    assert entry.ratio is not None
    assert (entry.ratio.margin, entry.ratio.verdict) == (0.25, Verdict.EQUIVALENT)


def test_noise_does_not_let_a_slow_down_pass_as_none(tmp_path: Path) -> None:
    shaken = [value * factor for value, factor in zip(EAGER, (1.2, 0.85, 1.18, 0.84, 1.0), strict=True)]
    slower = [1.2 * value for value in EAGER]
    results = store_of(tmp_path, *rounds(EAGER), *rounds(shaken, replicate=1), *rounds(slower, backend="x"))
    found = gate(results, "backend=eager", "backend=x")
    assert found.passed
    assert [one.outcome for one in found.cells] == [Outcome.UNDECIDED]
