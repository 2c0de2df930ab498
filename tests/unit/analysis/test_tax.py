"""The tax from what was measured: formulae of both kinds of device, and one floor for each structure of a campaign."""

import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from orchestrator.analysis.claims.configurations import Configuration
from orchestrator.analysis.frame import Frames
from orchestrator.analysis.paper import Point, State
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import DERIVED, SOURCES, VIEWS, Load, Regime, complete, tax_of
from orchestrator.store import TRIALS

SCHEMA = pa.schema([TRIALS.field(name) for name in SOURCES])
PLACE = {
    "campaign_id": "c", "system_id": "s1", "environment_id": "e1", "isolation": "process", "method_version": 2,
    "trial_id": "t", "attempt": 1, "status": "ok",
}  # fmt: skip
GPU = {
    "device": "cuda", "latency_sync_median_s": 0.012, "latency_pipelined_median_s": 0.010, "dispatch_s": 0.009,
    "graph_s": 0.004, "busy_s": 0.0035,
}  # fmt: skip


def row(small_s: float | None = 0.0011, large_s: float | None = 0.0014, **more: object) -> dict[str, object]:
    floor = {
        "dispatch_floor_structure": "bert", "dispatch_floor_valid": True, "dispatch_floor_small_s": small_s,
        "dispatch_floor_large_s": large_s,
    }  # fmt: skip
    return {**PLACE, "device": "cpu", "latency_sync_median_s": 0.004, **floor, **more}


def taxed(*rows: dict[str, object]) -> list[dict[str, Any]]:
    """What follows from rows, by the function and by the view, which must be the same."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    found = complete(table, DERIVED.names)
    with duckdb.connect() as connection:
        connection.register("trials", table.append_column("number", pa.array(range(len(rows)), pa.int64())))
        connection.execute(f"CREATE VIEW tax AS {VIEWS['tax']}")
        names = ", ".join(DERIVED.names)
        assert connection.sql(f"SELECT {names} FROM tax ORDER BY number").to_arrow_table().cast(DERIVED).equals(found)
    return list(found.to_pylist())


REGIMES = (Regime.FRAMEWORK_BOUND, Regime.MIXED, Regime.MIXED, Regime.COMPUTE_BOUND)


@pytest.mark.parametrize(
    ("floor_share", "boundedness", "expected"),
    list(zip((0.53, 0.52, 0.48, 0.47), (1.2, 1.05, 0.95, 0.8), REGIMES, strict=True)),
)
def test_regimes_are_of_the_floor_over_the_rest_on_a_cpu_and_of_dispatch_over_busy_on_a_gpu(
    floor_share: float, boundedness: float, expected: Regime
) -> None:
    assert Load("cpu", Estimate(1 / (2 * floor_share), None, None, 1, 1)).regime is expected
    assert Load("cuda", Estimate(1 / boundedness, None, None, 1, 1)).regime is expected
    on_gpu = {**PLACE, **GPU, "dispatch_s": boundedness * 0.0035}
    found = taxed(row(0.004 * floor_share, None), on_gpu)
    assert [tax["regime"] for tax in found] == [expected.value] * 2


def test_a_regime_needs_the_whole_interval() -> None:
    intervals = ((0.5, 0.95), (0.95, 4.0), (0.5, 4.0))
    assert {Load("cuda", Estimate(0.6, *ends, 5, 5)).regime for ends in intervals} == {Regime.MIXED}


class Sparse(dict[str, Any]):
    """A row that says nothing in all other columns."""

    def __missing__(self, column: str) -> None:
        return None


@pytest.mark.parametrize(
    ("boundedness", "expected", "proven"),
    [
        ((1.3, 1.32, 1.34), Regime.FRAMEWORK_BOUND, True),
        ((1.3, 1.3, 0.8), Regime.MIXED, True),  # most of its rounds are framework-bound
        ((0.7, 0.71, 0.72), Regime.COMPUTE_BOUND, True),
        ((1.3,), Regime.FRAMEWORK_BOUND, False),
        ((), None, False),
    ],
)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_figures_pages_explanations_and_claims_give_one_regime(
    boundedness: tuple[float, ...], expected: Regime | None, proven: bool, device: str
) -> None:
    """A floor is a lower bound: on a processor it proves framework-bound alone."""
    rows = [
        Sparse(
            PLACE, device=device, round=at, dispatch_floor_valid=True, boundedness=value,
            latency_floor_log_ratio=value and math.log(2 / value),
        )
        for at, value in enumerate(boundedness or (None,))
    ]  # fmt: skip
    assert Point(None, State.MEASURED, tuple(rows)).regime is expected  # type: ignore[arg-type]
    load = tax_of(rows, device).load
    assert (load and load.regime) is expected
    is_proven = proven and (device == "cuda" or expected is Regime.FRAMEWORK_BOUND)
    assert Configuration(tuple(rows), Frames(())).regime is (expected if is_proven else None)


def test_what_grows_with_the_twin_is_no_floor_and_what_is_below_the_floor_all_framework() -> None:
    [found] = taxed(row())
    assert found["dispatch_floor_s"] == found["exposed_overhead_s"] == pytest.approx(0.001)
    assert found["framework_fraction"] == pytest.approx(0.25)
    assert found["latency_floor_log_ratio"] == pytest.approx(math.log(4))
    assert (found["regime"], found["boundedness"], found["tax_ratio"]) == ("compute-bound", None, None)
    [arithmetic] = taxed(row(large_s=0.0044))
    floor = [arithmetic[f"dispatch_floor_{name}"] for name in ("s", "valid")]
    assert (floor, arithmetic["regime"]) == ([None, False], None)
    assert "all arithmetic" in arithmetic["dispatch_floor_problem"]
    [framework] = taxed(row(latency_sync_median_s=0.0009))
    assert (framework["framework_fraction"], framework["regime"]) == (1.0, "framework-bound")
    assert framework["latency_floor_log_ratio"] == pytest.approx(math.log(0.9))


@pytest.mark.parametrize("valid", [None, False])
def test_a_floor_of_another_structure_says_nothing_about_the_trial(valid: bool | None) -> None:
    [found] = taxed(row(dispatch_floor_valid=valid, dispatch_floor_problem="3 operations, not 4"))
    assert (found["dispatch_floor_s"], found["dispatch_floor_problem"]) == (pytest.approx(0.001), "3 operations, not 4")
    assert [found[name] for name in ("regime", "exposed_overhead_s", "framework_fraction")] == [None] * 3


ELSEWHERE = {
    "campaign_id": "d", "system_id": "s2", "environment_id": "e2", "isolation": "docker", "method_version": 3,
    "dispatch_floor_structure": "other",
}  # fmt: skip
LOW = row(0.0001, 0.0001)
UNPROVEN = {**LOW, "dispatch_floor_valid": False}


@pytest.mark.parametrize(
    ("rows", "floors"),
    [
        *(([row(large_s=large_s)], [0.0011]) for large_s in (None, 0.0010, 0.0011)),  # a larger twin that is no slower
        ([row(0.0011, 0.0020), row(0.0030, 0.0014)], [0.001, 0.001]),
        ([row(), row(0.0011, 0.0040)], [0.001, 0.001]),  # a disturbed large twin does not lower the floor
        ([row(), UNPROVEN], [0.001, 0.001]),
        ([UNPROVEN], [0.0001]),
        ([row(), {**LOW, "status": "wrong_output"}], [0.001, 0.001]),
        *(([row(), row(0.0005, None, **{column: value})], [0.001, 0.0005]) for column, value in ELSEWHERE.items()),
    ],
)
def test_the_least_proven_of_either_twin_makes_the_floor_of_a_structure_in_a_campaign_and_place(
    rows: list[dict[str, object]], floors: list[float]
) -> None:
    assert [found["dispatch_floor_s"] for found in taxed(*rows)] == pytest.approx(floors)


def test_a_floor_is_that_of_the_campaign_whichever_trials_are_chosen() -> None:
    chosen, whole = (pa.Table.from_pylist(rows, schema=SCHEMA) for rows in ([row(0.003)], [row(0.003), row()]))
    [found] = complete(chosen, DERIVED.names, whole).to_pylist()
    assert found["dispatch_floor_s"] == pytest.approx(0.001)


def test_the_tax_of_parallel_regions_is_what_threads_add_to_the_small_twin() -> None:
    threads = {"dispatch_floor_threads_s": 0.0016}
    found = taxed(row(**threads), row(**threads, dispatch_floor_valid=False), row())
    assert [row["parallel_region_tax_s"] for row in found] == [pytest.approx(0.0005), None, None]


def test_on_a_gpu_the_slower_of_host_and_device_decides_and_estimates_that_differ_are_flagged() -> None:
    gpu = {**PLACE, **GPU}
    found, far, alone, nothing = taxed(
        gpu, {**gpu, "busy_s": 0.0015}, {**gpu, "busy_s": None}, {**PLACE, "device": "cpu"}
    )
    assert found == {
        "dispatch_floor_valid": None, "dispatch_floor_problem": None, "dispatch_floor_s": None,
        "parallel_region_tax_s": None, "exposed_overhead_s": pytest.approx(0.0065),
        "exposed_overhead_graph_s": pytest.approx(0.006), "overhead_estimates_agree": True,
        "framework_fraction": pytest.approx(0.65), "latency_floor_log_ratio": None,
        "boundedness": pytest.approx(0.009 / 0.0035), "tax_ratio": pytest.approx(2.5), "regime": "framework-bound",
    }  # fmt: skip
    assert far["overhead_estimates_agree"] is False
    assert alone["exposed_overhead_graph_s"] == pytest.approx(0.006)
    assert [alone[name] for name in ("overhead_estimates_agree", "exposed_overhead_s", "regime")] == [None] * 3
    assert {*nothing.values()} == {None}
