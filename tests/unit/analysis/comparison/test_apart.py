"""What tables keep apart unasked: work and backend, CPUs and GPUs, and noise that hides a difference from none at all."""

import json
from pathlib import Path

import pytest

from orchestrator.analysis import Verdict
from orchestrator.analysis.comparison import Outcome, Policy, compare, compare_selections, gate
from orchestrator.analysis.metrics import METRICS
from orchestrator.errors import ConfigurationError
from orchestrator.store import Row
from tests.comparing import NEW, OLD, ratios_of, rounds, store_of, system_of

EAGER = [0.100, 0.110, 0.090, 0.105, 0.095]
FAST = [0.050, 0.056, 0.044, 0.053, 0.047]


def on_gpu(latencies_s: list[float], **more: object) -> list[Row]:
    """Rounds on a GPU, whose lone calls take ten times as long as one of many."""
    lone = [10 * value for value in latencies_s]
    return [
        {
            **row, "trial_id": f"{row['trial_id']}-gpu", "latency_pipelined_median_s": value,
            "latency_pipelined_samples": 2, "samples_pipelined_s": [value] * 2,
        }
        for row, value in zip(
            rounds(lone, device="cuda", gpu_name="NVIDIA A100", dtype="float16", **more), latencies_s, strict=True
        )
    ]  # fmt: skip


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
    bert = rounds(EAGER, workload="bert_base", sequence_length=128, image_size=None)
    resnet = rounds(FAST, workload="resnet50", sequence_length=None, image_size=224)
    assert compare(store_of(tmp_path / "sizes", *bert, *resnet), ["host"]).added == ("workload",)


def test_work_is_not_compared_with_other_work(tmp_path: Path) -> None:
    results = store_of(tmp_path, *rounds(EAGER), *rounds(FAST, backend="x", dtype="float16"))
    table = compare(results, ["workload"], ["backend"], "backend=eager")
    assert table.added == ("dtype",)
    assert [(one.problem, one.ratio) for one in table.entries if not one.is_baseline] == [("no baseline", None)]
    asked = compare(results, ["workload"], ["backend", "dtype"], "backend=eager dtype=float32")
    assert [ratio.verdict for ratio in ratios_of(asked)] == [Verdict.FASTER]


def test_sides_that_are_matched_on_too_little_are_split_and_other_work_has_nothing_in_common(tmp_path: Path) -> None:
    [old, old_8], [new, new_8] = (
        [
            rounds([factor * value for value in base], campaign=campaign, batch=batch)
            for batch, factor in ((1, 1), (8, 6))
        ]
        for campaign, base in ((OLD, EAGER), (NEW, FAST))
    )
    question = ("campaign=previous", "campaign=newest", ["workload"])
    table = compare_selections(store_of(tmp_path / "both", *old, *old_8, *new, *new_8), *question)
    assert (table.added, len(table.ratios)) == (("batch",), 2)
    with pytest.raises(ConfigurationError, match="nothing to compare: batch is 1 against 8"):
        compare_selections(store_of(tmp_path / "apart", *old, *new_8), *question)


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


def test_a_cpu_is_compared_with_a_gpu_by_a_metric_that_both_have(tmp_path: Path) -> None:
    results = store_of(tmp_path, *rounds(EAGER, dtype="float16"), *on_gpu([value / 100 for value in EAGER]))
    for question in (
        lambda policy: compare(results, ["workload"], ["device"], "device=cpu", policy=policy),
        lambda policy: compare_selections(results, "device=cpu", "device=cuda", match=["workload"], policy=policy),
    ):
        with pytest.raises(ConfigurationError, match="on a CPU and on a GPU, whose usual latencies .*--metric"):
            question(Policy())
        [ratio] = ratios_of(question(Policy(METRICS["latency_sync"])))
        assert ratio.estimate.value == pytest.approx(10)
    table = compare(results, ["workload"], ["gpu"], "gpu=A100", policy=Policy(METRICS["latency_sync"]))
    assert [ratio.estimate.value for ratio in ratios_of(table)] == pytest.approx([0.1])
    told = {(found.change.field, found.change.then, found.change.now) for found in table.differences}
    assert ("device", "cuda", "cpu") in told


def test_a_noisy_twin_makes_nothing_equivalent_and_hides_nothing(tmp_path: Path) -> None:
    shaken = [value * factor for value, factor in zip(EAGER, (1.2, 0.85, 1.18, 0.84, 1.0), strict=True)]
    slower = [1.2 * value * factor for value, factor in zip(EAGER, (1.1, 0.95, 1.0, 0.96, 1.0), strict=True)]
    bare = store_of(tmp_path / "a", *rounds(EAGER), *rounds(slower, backend="x"))
    noisy = store_of(tmp_path / "b", *rounds(EAGER), *rounds(shaken, replicate=1), *rounds(slower, backend="x"))
    alone, beside = (compare(one, ["backend"], baseline="backend=eager") for one in (bare, noisy))
    assert [one.ratio for one in alone.ratios] == [one.ratio for one in beside.ratios]
    assert [ratio.verdict for ratio in ratios_of(beside)] == [Verdict.SLOWER]
    [twin] = beside.twins
    assert (twin.row["backend"], twin.ratio.verdict) == ("eager", Verdict.UNDECIDED)
    assert alone.twins == ()
    found = gate(noisy, "backend=eager", "backend=x", max_slowdown=0.2)
    assert [one.outcome for one in found.cells] == [Outcome.UNDECIDED]
    wide = compare(noisy, ["backend"], baseline="backend=eager", policy=Policy(margin=0.4))
    assert [ratio.verdict for ratio in ratios_of(wide)] == [Verdict.SLIGHTLY_SLOWER]


def test_the_scatter_of_a_campaign_is_that_of_all_its_cells(tmp_path: Path) -> None:
    """Also of those that are not asked for, and of A/A pairs unless flagged; a table does not depend on its question."""
    shaken = [value * factor for value, factor in zip(EAGER, (1.5, 0.6, 1.45, 0.65, 1.0), strict=True)]
    twins = [{**one, "guard_flags": ["load"]} for one in rounds(shaken, replicate=1)]
    others = [[0.5 * value * factor for value in EAGER[:4]] + [0.5 * EAGER[4]] for factor in (1.01, 0.99)]
    rows = [*rounds(EAGER), *twins, *rounds(FAST, backend="x")]
    rows += [row for number, one in enumerate(others) for row in rounds(one, backend=f"y{number}")]
    results = store_of(tmp_path, *rows)
    asked = compare(results, ["backend"], baseline="backend=eager", where="backend=eager,x")
    whole, quiet = (
        compare(results, ["backend"], baseline="backend=eager", policy=Policy(without_flagged=one))
        for one in (False, True)
    )
    estimates = [table.entry(backend="x").ratio.estimate for table in (asked, whole, quiet)]  # type: ignore[union-attr]
    assert estimates[0] == estimates[1]
    assert estimates[0].degrees != 4
    assert (estimates[1].half_width or 0) > (estimates[2].half_width or 1)


def renamed(rows: list[Row], mark: object) -> list[Row]:
    """Rows whose ids say more than `rounds` knows."""
    return [{**row, "trial_id": f"{row['trial_id']}-{mark}"} for row in rows]


def deep(layers: int, latencies_s: list[float], hidden_size: int = 768) -> list[Row]:
    options = json.dumps({"layers": layers, "hidden_size": hidden_size})
    return renamed(rounds(latencies_s, workload="bert", workload_options=options), f"{layers}-{hidden_size}")


def test_an_option_can_be_what_is_compared(tmp_path: Path) -> None:
    deeper = ((12, EAGER), (24, [2 * value for value in EAGER]))
    wider: tuple[dict[str, int], ...] = ({}, {"hidden_size": 1536})
    rows = [row for more in wider for layers, times_s in deeper for row in deep(layers, times_s, **more)]
    results = store_of(tmp_path, *rows)
    table = compare(results, ["workload", "layers"], [], "layers=24")
    assert table.added == ("other_options",)
    assert [ratio.estimate.value for ratio in ratios_of(table)] == pytest.approx([2, 2])
    assert {(row["layers"], row["other_options"]) for row in table.arrow().to_pylist()} == {
        (12, "defaults"), (24, "defaults"), (12, "hidden_size=1536"), (24, "hidden_size=1536"),
    }  # fmt: skip
    sides = compare_selections(results, "layers=24", "layers=12")
    assert [ratio.estimate.value for ratio in ratios_of(sides)] == pytest.approx([2, 2])
    with pytest.raises(ConfigurationError, match="write layers=VALUE"):
        compare(results, ["workload"], where="layers")


def test_threads_follow_the_processor_and_are_told(tmp_path: Path) -> None:
    small = rounds(EAGER, host="a", cpu_model="Small", threads=2, system_id="s", hw_id="s")
    large = rounds(FAST, host="b", cpu_model="Large", threads=16, system_id="l", hw_id="l")
    results = store_of(tmp_path, *small, *large, systems=[system_of("s"), system_of("l")])
    for table in (
        compare(results, ["workload"], ["cpu"], "cpu=Small"),
        compare_selections(results, "cpu=Small", "cpu=Large"),
        compare_selections(results, "cpu=Small", "cpu=Large", match=["workload"]),
    ):
        assert table.added == ()
        assert len(table.ratios) == 1
        told = {one.change.field: (one.change.then, one.change.now) for one in table.differences}
        assert told["threads"] == ("2", "16")
    lone = renamed(rounds(EAGER, host="a", cpu_model="Small", threads=1, system_id="s", hw_id="s"), "lone")
    both = store_of(tmp_path / "both", *small, *large, *lone, systems=[system_of("s"), system_of("l")])
    table = compare(both, ["workload"], ["cpu"], "cpu=Small")
    assert (table.added, table.ratios) == (("threads",), ())


def test_sizes_follow_the_workload_unless_one_has_several(tmp_path: Path) -> None:
    speech = rounds(EAGER, workload="wavlm", sequence_length=16000)
    text = rounds(FAST, workload="bert", sequence_length=128)
    results = store_of(tmp_path, *speech, *text)
    assert len(compare(results, ["workload"], [], "workload=wavlm").ratios) == 1
    several = renamed(rounds(FAST, workload="bert", sequence_length=16000), "long")
    table = compare(store_of(tmp_path / "b", *speech, *text, *several), ["workload"], [], "workload=wavlm")
    assert table.added == ("sequence_length",)
    assert [table.text(one) for one in table.ratios] == ["workload=bert sequence_length=16000"]
