"""Tables of a small store: cells, pairing, verdicts, what is kept apart unasked, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from orchestrator.analysis import Pairing, Verdict
from orchestrator.analysis.comparison import Outcome, Policy, Pool, compare, compare_selections, gate
from orchestrator.analysis.metrics import METRICS
from orchestrator.errors import ConfigurationError
from orchestrator.store import Row
from runners.statistics.moderation import BETWEEN_CAMPAIGNS
from tests.comparing import NEW, OLD, by_backend, measured, ratios_of, rounds, store_of, system_of
from tests.results import trial

EAGER = [0.100, 0.110, 0.090, 0.105, 0.095]
FAST = [0.050, 0.056, 0.044, 0.053, 0.047]
FLOOR = {"small_s": 0.01, "structure": "s", "valid": True}


def test_a_ratio_is_paired_by_round_and_is_that_of_scipy(tmp_path: Path) -> None:
    results = store_of(tmp_path, *rounds(EAGER), *rounds(FAST, backend="onnxruntime"))
    table = compare(results, ["workload"], ["backend"], "backend=eager")
    entry = table.entry(workload="bert_base", backend="onnxruntime")
    logs = np.log(np.divide(EAGER, FAST))
    error = math.hypot(scipy.stats.sem(logs), BETWEEN_CAMPAIGNS)
    degrees = 4 * (error / scipy.stats.sem(logs)) ** 4
    expected = scipy.stats.t.interval(0.95, degrees, loc=logs.mean(), scale=error)
    [found] = ratios_of(table)
    assert entry.ratio is found
    ratio = found.estimate
    assert (found.pairing, found.verdict) == (Pairing.ROUNDS, Verdict.FASTER)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((math.exp(logs.mean()), *map(math.exp, expected)))
    assert (ratio.processes, ratio.samples) == (5, 30)
    assert entry.cell.estimate is not None
    assert (entry.cell.estimate.value, entry.cell.estimate.samples) == (0.050, 15)
    assert table.entry(backend="eager").is_baseline


def test_above_1_is_better_also_where_more_is_better(tmp_path: Path) -> None:
    rows = [
        measured(None, number, backend=backend, throughput_examples_per_s=1 / value)
        for backend, latencies_s in (("eager", EAGER), ("onnxruntime", FAST))
        for number, value in enumerate(latencies_s, 1)
    ]
    [ratio] = ratios_of(by_backend(tmp_path, *rows, policy=Policy(METRICS["throughput"])))
    assert ratio.estimate.value == pytest.approx(float(scipy.stats.gmean(np.divide(EAGER, FAST))))
    assert ratio.verdict is Verdict.FASTER


def test_few_shared_rounds_and_rounds_of_different_hosts_do_not_pair_nor_throw_others_away(tmp_path: Path) -> None:
    later = [measured(value, number) for number, value in enumerate(FAST, 5)]
    there = rounds(FAST, host="lab2", backend="x")
    table = by_backend(tmp_path, *later, *rounds(EAGER, backend="onnxruntime"), *there)
    welch = scipy.stats.ttest_ind(np.log(FAST), np.log(EAGER), equal_var=False)
    assert [ratio.pairing for ratio in ratios_of(table)] == [Pairing.UNPAIRED] * 2
    shifted, elsewhere = (ratio.estimate for ratio in ratios_of(table))
    assert (shifted.low, shifted.high, shifted.degrees) == pytest.approx(
        (*np.exp(welch.confidence_interval()), welch.df)
    )
    assert (elsewhere.value, elsewhere.processes, shifted.processes) == (pytest.approx(1, rel=0.01), 10, 10)


def test_ratios_of_a_table_are_judged_together(tmp_path: Path) -> None:
    doubtful = [0.965 * value for value in (0.100, 0.112, 0.092, 0.103, 0.096)]
    rows = [
        row
        for batch in range(1, 17)
        for row in (*rounds(EAGER, batch=batch), *rounds(doubtful, backend="x", batch=batch))
    ]
    results = store_of(tmp_path, *rows)
    [alone] = ratios_of(compare(results, ["backend"], baseline="backend=eager", where="batch=1"))
    together = ratios_of(compare(results, ["batch"], ["backend"], "backend=eager"))
    assert alone.verdict is Verdict.FASTER
    assert [ratio.verdict for ratio in together] == [Verdict.UNDECIDED] * 16


def test_failed_cells_keep_their_reason(tmp_path: Path) -> None:
    failed = [measured(None, number, backend="x", status="oom", reason="no memory") for number in (1, 2)]
    retried = trial("again", backend="y", status="infrastructure_error", reason="the network", round=1)
    again = {"attempt": 2, "status": "ok", "latency_sync_median_s": 0.1, "latency_sync_p10_s": 0.1}
    table = by_backend(tmp_path, *rounds(EAGER), *failed, retried, {**retried, **again})
    assert (table.entry(backend="x").ratio, table.entry(backend="x").problem) == (None, "no memory")
    [ratio] = ratios_of(table)
    assert (ratio.estimate.low, ratio.verdict) == (None, Verdict.UNDECIDED)
    shown = {row["backend"]: (row["status"], row["reason"]) for row in table.arrow().to_pylist()}
    assert shown == {"eager": ("ok:5", None), "x": ("oom:2", "no memory"), "y": ("ok:1", None)}


def test_flagged_trials_count_unless_the_user_leaves_them_out(tmp_path: Path) -> None:
    flagged = measured(9.0, 6, guard_flags=["load"])
    results = store_of(tmp_path, *rounds(EAGER, guard_flags=[]), flagged)
    [entry] = compare(results, ["backend"]).entries
    assert (entry.cell.flagged, len(entry.cell.measured)) == (1, 6)
    [entry] = compare(results, ["backend"], policy=Policy(without_flagged=True)).entries
    assert (entry.cell.flagged, len(entry.cell.measured)) == (0, 5)


def test_a_floor_that_is_not_valid_is_no_value_and_of_what_is_not_above_0_there_is_no_ratio(tmp_path: Path) -> None:
    floor: dict[str, Any] = {f"dispatch_floor_{key}": value for key, value in FLOOR.items()}
    wrong = {"dispatch_floor_structure": "x", "dispatch_floor_valid": False, "dispatch_floor_problem": "287 ≠ 290"}
    rows = [measured(0.1, **floor), measured(0.1, backend="x", **{**floor, **wrong})]
    table = by_backend(tmp_path, *rows, policy=Policy(METRICS["floor"]))
    assert table.entry(backend="x").problem == "287 ≠ 290"
    assert table.entry(backend="eager").cell.estimate is not None
    shares = (("eager", 0.5), ("x", 0.0))
    idle = [measured(0.1, n, backend=name, utilisation_sm_active_share=share) for n in (1, 2) for name, share in shares]
    table = by_backend(tmp_path / "idle", *idle, policy=Policy(METRICS["sm_active"]))
    assert "not above 0" in str(table.entry(backend="x").problem)


MIXTURES = [
    ({"environment": "cpu-2022", "environment_id": "f" * 32}, "environment would be pooled: cpu, cpu-2022", "--pool environment", Pool.ENVIRONMENT),
    ({"environment_id": "f" * 32}, "differ in environment_id", "--where environment_id=ffffffffffff", Pool.ENVIRONMENT),
    ({"isolation": "process"}, "differ in isolation", "--pool isolation", Pool.ISOLATION),
    ({"method_version": 2}, "differ in method would be pooled: 1, 2", "--pool method", Pool.METHOD),
    ({"protocol": '{"a":1}'}, "differ in protocol", "--pool protocol", Pool.PROTOCOL),
    ({"seed": 7}, "differ in seed", "--pool seed", Pool.SEED),
    ({"system_id": "other"}, "differ in system", "--pool system", Pool.SYSTEM),
    ({"system_id": "other", "driver_version": "550"}, "differ in driver would be pooled: 550, no driver", "--where driver=", Pool.SYSTEM),
    ({"hw_id": "other", "system_id": "other"}, "differ in hw", "--pool hw", Pool.HARDWARE),
    ({"gpu_name": "T4", "hw_id": "o"}, "differ in gpu would be pooled: T4, no GPU", "--pool hw", Pool.HARDWARE),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message", "remedy", "pool"), MIXTURES)
def test_what_differs_is_not_pooled_unless_the_user_says_so(
    tmp_path: Path, changes: dict[str, object], message: str, remedy: str, pool: Pool
) -> None:
    other = rounds(EAGER, campaign=NEW, **changes)
    results = store_of(tmp_path, *rounds(EAGER, isolation=changes.get("isolation") and "docker"), *other)
    with pytest.raises(ConfigurationError, match=message) as caught:
        compare(results, ["workload"])
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)
    [entry] = compare(results, ["workload"], policy=Policy(pool=frozenset({pool}))).entries
    assert len(entry.cell.measured) == 10
    [newest] = compare(results, ["workload"], policy=Policy(latest=True)).entries
    assert newest.cell.campaigns == (NEW,)
    # Failed trials do not count as mixed
    failed = measured(None, 9, **{"isolation": None, **changes, "status": "oom"})
    [sound] = compare(store_of(tmp_path / "failed", *rounds(EAGER), failed), ["workload"]).entries
    assert len(sound.cell.rows) == 6


@pytest.mark.parametrize(("column", "values"), [("isolation", ("docker", "process")), ("method_version", (1, 2))])
def test_sides_whose_numbers_mean_different_things_are_not_compared(
    tmp_path: Path, column: str, values: tuple[object, object]
) -> None:
    rows = [*rounds(EAGER, **{column: values[0]}), *rounds(FAST, backend="x", **{column: values[1]})]
    results = store_of(tmp_path, *rows)
    name = "method" if column == "method_version" else column
    words = rf"with {name} {values[1]}, its baseline with {values[0]}, which are not"
    with pytest.raises(ConfigurationError, match=words):
        compare(results, ["backend"], baseline="backend=eager")
    pool = frozenset({Pool(name)})
    assert compare(results, ["backend"], baseline="backend=eager", policy=Policy(pool=pool)).ratios


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ((("backend",), (), "batch=1"), "batch is no axis of the table"),
        ((("backend",), (), "backend!=eager"), "expected one value, as backend=VALUE"),
        ((("backend",), (), "backend=eager", "backend=eager"), "every trial is the baseline"),
        ((("backend",), (), "backend=jax"), "no trial has backend=jax"),
        ((("backend",), (), None, "backend=x batch=8"), "no trial meets backend=x batch=8"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(tmp_path: Path, question: tuple[Any, ...], message: str) -> None:
    results = store_of(tmp_path, *rounds(EAGER, batch=8), *rounds(EAGER, backend="x"))
    with pytest.raises(ConfigurationError, match=message):
        compare(results, *question)


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
    assert ([axis.name for axis in table.axes], table.added) == (["workload", "dtype", "backend"], ("dtype",))
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
