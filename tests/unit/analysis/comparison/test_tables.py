"""Tables of a small store: cells, pairing, verdicts, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from orchestrator.analysis import Pairing, Verdict
from orchestrator.analysis.comparison import Policy, Pool, compare, compare_selections
from orchestrator.analysis.metrics import METRICS
from orchestrator.errors import ConfigurationError
from runners.statistics.moderation import BETWEEN_CAMPAIGNS
from tests.comparing import NEW, OLD, by_backend, measured, ratios_of, rounds, store_of
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


def test_between_campaigns_a_ratio_is_unpaired_and_that_of_welch(tmp_path: Path) -> None:
    results = store_of(tmp_path, *rounds(EAGER, campaign=OLD), *rounds(FAST[:3], campaign=NEW))
    [ratio] = ratios_of(compare_selections(results, "campaign=previous", "campaign=newest"))
    welch = scipy.stats.ttest_ind(np.log(EAGER), np.log(FAST[:3]), equal_var=False)
    assert ratio.pairing is Pairing.UNPAIRED
    expected = (*np.exp(welch.confidence_interval()), welch.df)
    assert (ratio.estimate.low, ratio.estimate.high, ratio.estimate.degrees) == pytest.approx(expected)


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
    found = [(ratio.pairing, ratio.estimate.processes) for ratio in ratios_of(table)]
    assert found == [(Pairing.UNPAIRED, 10)] * 2


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
