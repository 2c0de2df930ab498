"""Roofs of systems: which rows they are from, and that the page, its query and the store say the same."""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.report.page import Roof, make_report, roofs_of
from orchestrator.report.page.payload import payload
from orchestrator.store import open_store
from tests.machines import A100, CPU_ONLY, V100, System
from tests.results import CAMPAIGNS, SYSTEM, make_store, trial
from tests.systems import FIRST, ROOFS, Made, World, make_systems
from tests.world import REACHED, spec

Row = dict[str, Any]


def design(system: System) -> tuple:  # type: ignore[type-arg]
    dtypes = ("float16", "float32") if system.is_gpu else ("float32",)
    return tuple(spec("bert-base", batch, "eager", dtype, system.device) for batch in (1, 16) for dtype in dtypes)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Two systems with roofs and one without."""
    world = World(systems=(V100, A100, CPU_ONLY), rounds=3, design=design, updated=(), roofs=(A100, CPU_ONLY))
    return make_systems(tmp_path_factory.mktemp("roofs") / "results", world)


def rows_of(made: Made, workload: str, **where: object) -> list[Row]:
    """Plain rows of a workload in the campaign of the roofs."""
    found = open_store(made.directory).sql(f"SELECT * FROM trials WHERE workload = '{workload}' AND status = 'ok'")
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def by_hand(rows: list[Row], amount: float) -> float:
    return amount / median(row["busy_s"] or row["latency_pipelined_median_s"] for row in rows)


def roof(made: Made, host: str) -> Roof:
    (system,) = {row["system_id"] for row in rows_of(made, "op-triad", host=host)}
    (found,) = roofs_of(Snapshot.of(open_store(made.directory)), [system])
    return found


@pytest.mark.parametrize(("system", "dtype"), [(A100, "float16"), (A100, "float32"), (CPU_ONLY, "float32")])
def test_arithmetic_is_what_the_rows_of_the_dtype_say(made: Made, system: System, dtype: str) -> None:
    found = roof(made, system.host).arithmetic[dtype]
    products = rows_of(made, "op-gemm", host=system.host, dtype=dtype)
    large = [row for row in products if json.loads(row["workload_options"])["width"] == 8192]
    assert found.rate == pytest.approx(by_hand(large, 2 * 8192**3), rel=1e-12)
    # Small matrices are bound by the shortest time that a kernel takes, or by what a call costs
    assert (found.work, found.dtype, found.backend) == ("op-gemm, width=8192", dtype, "eager")
    assert (found.processes, found.campaign_id) == (3, ROOFS)
    # The truth of the made-up lab
    assert found.rate == pytest.approx(REACHED * system.tflops[dtype] * 1e12, rel=0.05)


@pytest.mark.parametrize("system", [A100, CPU_ONLY])
def test_memory_is_what_the_rows_of_the_fastest_dtype_say(made: Made, system: System) -> None:
    found = roof(made, system.host).bandwidth
    assert found is not None
    widths = {"float16": 2, "float32": 4} if system.is_gpu else {"float32": 4}
    rates = {
        dtype: by_hand(rows_of(made, "op-triad", host=system.host, dtype=dtype), 3 * 2**25 * width)
        for dtype, width in widths.items()
    }
    assert found.rate == pytest.approx(max(rates.values()), rel=1e-12)
    assert found.rate == pytest.approx(rates[found.dtype], rel=1e-12)
    assert (found.work, found.processes) == ("op-triad", 3)
    assert found.rate == pytest.approx(REACHED * system.gb_per_s * 1e9, rel=0.1)


def test_a_page_has_the_roofs_of_its_systems_from_the_whole_store(made: Made) -> None:
    results = open_store(made.directory)
    report = make_report(results, parse_conditions([f"campaign={FIRST}"]))
    assert {row["campaign_id"] for row in report.page.campaigns} == {FIRST}
    assert report.page.roofs == roofs_of(Snapshot.of(results))
    document = payload(report.page, report.samples)
    labels = {
        (document["systems"][one["system"]]["label"], document["shapes"][number]["axes"]["dtype"])
        for one in document["roofs"]
        for number in one["shapes"]
    }
    assert labels == {
        ("A100-PCIE-40GB", "float16"),
        ("A100-PCIE-40GB", "float32"),
        ("EPYC 7763", "float32"),
    }
    only = make_report(results, parse_conditions([f"campaign={FIRST}", "host=v100-01"]))
    assert only.page.roofs == ()


def test_the_query_of_the_chart_has_the_roofs(made: Made) -> None:
    results = open_store(made.directory)
    report = make_report(results, parse_conditions([f"campaign={FIRST}"]))
    query = payload(report.page, report.samples)["queries"]["roofline"]
    answer = results.sql(query.replace("{where}", report.page.sql))
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]
    assert len(rows) == 4 + 4 + 2
    known = {one.system_id: one for one in report.page.roofs}
    for row in rows:
        one = known.get(row["system_id"])
        if one is None:
            assert (row["roof_flop_per_s"], row["roof_bytes_per_s"], row["roof_here"]) == (None, None, None)
            continue
        arithmetic = one.arithmetic[row["dtype"]].rate
        assert one.bandwidth is not None
        assert row["roof_flop_per_s"] == pytest.approx(arithmetic, rel=1e-12)
        assert row["roof_bytes_per_s"] == pytest.approx(one.bandwidth.rate, rel=1e-12)
        assert (row["roof_flop_campaign"], row["roof_bytes_campaign"]) == (ROOFS, ROOFS)
        slanted = one.bandwidth.rate * row["flop_per_weight_byte"]
        assert row["roof_here"] == pytest.approx(min(arithmetic, slanted), rel=1e-12)
    assert sum(row["roof_here"] is not None for row in rows) == 6


def triad(name: str, latency_s: float | None, **more: Any) -> Row:
    options = json.dumps({"elements": more.pop("elements", 10**8)})
    columns = {"latency_pipelined_median_s": latency_s, "trial_key": "key-" + re.sub(r"\W+", "-", str(options)), **more}
    return trial(name, workload="op-triad", workload_options=options, **columns)


def product(name: str, latency_s: float, **more: Any) -> Row:
    columns = {"latency_pipelined_median_s": latency_s, "flops": 2 * 10**9, "trial_key": "key-of-products", **more}
    return trial(name, workload="op-gemm", workload_options='{"width": 1000}', **columns)


def roofs_in(tmp_path: Path, *rows: Row) -> dict[tuple[str, int | None], tuple[dict[str, float], float | None]]:
    make_store(tmp_path / "results", *rows)
    return {
        (one.device, one.threads): (
            {dtype: part.rate for dtype, part in one.arithmetic.items()},
            one.bandwidth and one.bandwidth.rate,
        )
        for one in roofs_of(Snapshot.of(open_store(tmp_path / "results")))
    }


def test_without_such_trials_there_is_no_roof(tmp_path: Path) -> None:
    assert roofs_in(tmp_path, trial("one")) == {}
    report = make_report(open_store(tmp_path / "results"))
    assert payload(report.page, report.samples)["roofs"] == []


def test_what_failed_was_doubled_has_no_time_or_fewer_bits_is_no_roof(tmp_path: Path) -> None:
    rows = (
        triad("wrong", 1e-3, status="wrong_output"),
        triad("doubled", 1e-3, replicate=1),
        triad("untimed", None),
        triad("nowhere", 1e-3, system_id=None),
        triad("in-a-cache", 1e-7, elements=65_536),
        product("narrower", 1e-3, backend="dynamic_int8"),
    )
    assert roofs_in(tmp_path, *rows) == {}


def test_processes_of_a_configuration_are_pooled_by_their_median_within_a_campaign(tmp_path: Path) -> None:
    times = {"a": 1e-3, "b": 3e-3, "c": 2e-3}
    rows = [triad(name, seconds) for name, seconds in times.items()]
    later = [triad(f"{name}-later", seconds * 1.5, campaign=CAMPAIGNS[1]) for name, seconds in times.items()]
    small = triad("small", 1e-7, elements=65_536)
    assert roofs_in(tmp_path, *rows, *later, small) == {("cpu", 2): ({}, pytest.approx(12e8 / 2e-3))}
    (found,) = roofs_of(Snapshot.of(open_store(tmp_path / "results")), [SYSTEM])
    assert found.bandwidth is not None
    assert (found.bandwidth.campaign_id, found.bandwidth.processes, found.bandwidth.flagged) == (CAMPAIGNS[0], 3, 0)
    assert roofs_of(Snapshot.of(open_store(tmp_path / "results")), ["another"]) == ()


def test_threads_of_a_processor_are_apart_and_those_beside_a_gpu_are_not(tmp_path: Path) -> None:
    found = roofs_in(
        tmp_path,
        triad("one-thread", 2e-3, threads=1),
        triad("two-threads", 1e-3),
        product("one-product", 1e-2, threads=1, flops=None),
        triad("first", 1e-4, device="cuda", threads=1, busy_s=0.5e-4),
        triad("second", 1e-4, device="cuda", threads=8, busy_s=0.4e-4),
    )
    assert found == {
        ("cpu", 1): ({"float32": pytest.approx(2e11)}, pytest.approx(6e11)),
        ("cpu", 2): ({}, pytest.approx(12e11)),
        ("cuda", None): ({}, pytest.approx(12e8 / 0.4e-4)),
    }


def test_arithmetic_is_by_dtype_and_memory_is_of_the_fastest(tmp_path: Path) -> None:
    found = roofs_in(
        tmp_path,
        trial("work", dtype="bfloat16"),
        *(product("single", 1e-2), product("half", 0.4e-2, dtype="float16")),
        *(triad("single-triad", 1e-3), triad("half-triad", 0.8e-3, dtype="float16")),
    )
    assert found == {
        ("cpu", 2): ({"float16": pytest.approx(5e11), "float32": pytest.approx(2e11)}, pytest.approx(12e11))
    }
    report = make_report(open_store(tmp_path / "results"))
    document = payload(report.page, report.samples)
    drawn = {
        one["dtype"]: (one["arithmetic"] and one["arithmetic"]["rate"], one["bandwidth"]["rate"])
        for one in document["roofs"]
    }
    assert drawn == {
        "bfloat16": (None, 12 * 10**11),
        "float16": (5 * 10**11, 12 * 10**11),
        "float32": (2 * 10**11, 12 * 10**11),
    }


def test_flagged_trials_are_counted_and_can_be_left_out(tmp_path: Path) -> None:
    rows = [triad("quiet", 2e-3, guard_flags=[]), *(triad(name, 1e-3, guard_flags=["load"]) for name in ("a", "b"))]
    assert roofs_in(tmp_path, trial("work"), *rows) == {("cpu", 2): ({}, pytest.approx(12e11))}
    results = open_store(tmp_path / "results")
    (found,) = roofs_of(Snapshot.of(results))
    assert found.bandwidth is not None
    assert found.bandwidth.flagged == 2
    report = make_report(results, parse_conditions(["workload=bert_base"]), without_flagged=True)
    (quiet,) = report.page.roofs
    assert quiet.bandwidth is not None
    assert quiet.bandwidth.rate == pytest.approx(6e11)
    query = payload(report.page, report.samples)["queries"]["roofline"].replace("{where}", report.page.sql)
    answer = results.sql(query)
    (row,) = answer.fetchall()
    assert dict(zip(answer.columns, row, strict=True))["roof_bytes_per_s"] == pytest.approx(6e11)
