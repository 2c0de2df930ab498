"""One set of rows, all front ends: the same ratios, intervals, verdicts and regimes to the last digit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from orchestrator.analysis import Ratio
from orchestrator.analysis.claims import claim_columns, configurations
from orchestrator.analysis.comparison import ComparisonTable, Outcome, Policy, compare, compare_selections, gate
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.metrics import METRICS
from orchestrator.analysis.paper import Gathered, read_trials, wanted_of
from orchestrator.analysis.reproduction import Sides, TrialPlace, compare_sides, reproduction_columns
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.verdict import judge_family
from orchestrator.config import load_sweep
from orchestrator.report.figures.catalogue import FIGURES, Y
from orchestrator.report.figures.lines import pair_panels
from orchestrator.report.figures.values import workload_label
from orchestrator.report.page import make_report
from orchestrator.report.page.build import Page
from orchestrator.report.page.cells import Against, Mode, PageCell
from orchestrator.report.palette import backend_label
from orchestrator.store import Results, open_store
from tests.conftest import Captured
from tests.machines import CPU_ONLY, System
from tests.paper_world import SWEEPS
from tests.results import known, taxmeter
from tests.systems import FIRST, SECOND, World, make_systems
from tests.world import BACKENDS, Effect, spec, times

BATCHES = (1, 8)
WORKLOADS = ("bert-base", "squeezebert")
OTHERS = [name for name in BACKENDS if name not in ("eager", "cuda_graphs")]
WORKLOAD = "workload=bert-base"
WORK = f"campaign={FIRST} {WORKLOAD}"
LATER = Effect(1.2, where={"backend": "torchscript"})
Key = tuple[str, int, str]


def design(system: System) -> tuple:  # type: ignore[type-arg]
    return tuple(
        spec(name, batch, backend, "float32", system.device)
        for name in WORKLOADS
        for backend in ("eager", *OTHERS)
        for batch in BATCHES
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two campaigns; the second has BERT-base alone."""
    world = World(systems=(CPU_ONLY,), updated=(CPU_ONLY,), effects=(), design=design)
    return open_store(make_systems(tmp_path_factory.mktemp("front-ends") / "results", world).directory)


@pytest.fixture(scope="module")
def compared(store: Results) -> Mapping[Key, Ratio]:
    return ratios_of(table_of(store))


def table_of(store: Results, policy: Policy | None = None) -> ComparisonTable:
    """Of a whole campaign, so that as many ratios are judged together as in the summary and on the page."""
    return compare(store, ["workload", "batch"], ["backend"], "backend=eager", f"campaign={FIRST}", policy)


def ratios_of(table: ComparisonTable) -> Mapping[Key, Ratio]:
    """By workload, batch and backend."""
    names = [where.name for where in table.axes]
    places = [names.index(name) for name in ("workload", "batch", "backend")]
    return {tuple(entry.key[place] for place in places): entry.ratio for entry in table.ratios}  # type: ignore[misc]


def test_the_injected_effects_are_found(compared: Mapping[Key, Ratio]) -> None:
    assert len(compared) == len(WORKLOADS) * len(BATCHES) * len(OTHERS)
    for (workload, batch, backend), ratio in compared.items():
        sides = [times(CPU_ONLY, spec(workload, batch, name, "float32", "cpu")).sync_s for name in ("eager", backend)]
        assert ratio.estimate.value == pytest.approx(sides[0] / sides[1], rel=0.05)
        assert ratio.estimate.low is not None


def key_of(page: Page, cell: PageCell) -> Key:
    return str(page.at.shapes[cell.shape].values["workload"]), cell.batch, page.at.backends[cell.backend].label


@pytest.mark.parametrize("mode", Mode)
def test_the_page_says_the_same_whatever_its_filter(store: Results, mode: Mode) -> None:
    table = table_of(store, Policy(mode.metric))
    compared = ratios_of(table)
    for conditions in (f"campaign={FIRST}", WORK):
        page = make_report(store, parse_conditions(conditions)).page
        assert [twin.ratio for twin in page.twins[mode]] == [twin.ratio for twin in table.twins] != []
        said = {
            key_of(page, cell): ratio
            for cell in page.cells
            if (ratio := cell.ratios.get((Against.BACKEND, mode))) is not None
        }
        assert said
        for key, ratio in said.items():
            assert ratio.estimate == compared[key].estimate
        if conditions != WORK:
            assert said == compared


@pytest.mark.parametrize("backend", OTHERS)
def test_two_selections_and_the_gate_say_the_same(store: Results, compared: Mapping[Key, Ratio], backend: str) -> None:
    table = compare_selections(store, "backend=eager", f"backend={backend}", where=WORK)
    decision = gate(store, "backend=eager", f"backend={backend}", where=WORK)
    sides = {entry.key[0]: entry.ratio for entry in table.ratios}
    gated = {cell.entry.key[0]: cell.entry.ratio for cell in decision.cells}
    assert sides == gated
    assert {batch: ratio.estimate for batch, ratio in sides.items() if ratio} == {
        batch: compared["bert-base", batch, backend].estimate for batch in BATCHES
    }
    for cell in decision.cells:
        assert cell.entry.ratio is not None
        assert (cell.outcome is Outcome.FASTER) == (cell.entry.ratio.verdict.direction > 0)


def test_a_reproduction_says_the_same(store: Results) -> None:
    metrics = ("latency_sync", "latency_pipelined")
    sides = f"campaign={FIRST}", f"campaign={SECOND}"
    tables = [compare_selections(store, *sides, where=WORKLOAD, policy=Policy(METRICS[name])) for name in metrics]
    first = [entry.cell.measured[0] for entry in tables[0].ratios]
    then, now = (
        store.trials(pc.field("campaign_id") == name, reproduction_columns()).arrow() for name in (FIRST, SECOND)
    )
    places = [[TrialPlace(name, row["host"], row["trial_key"]) for name in (FIRST, SECOND)] for row in first]
    found = compare_sides(then, now, [Sides(*pair) for pair in places])
    for number, table in enumerate(tables):
        ratios = [comparison.modes[number].ratio for comparison in found]
        assert [ratio and ratio.estimate for ratio in ratios] == [
            entry.ratio.estimate for entry in table.ratios if entry.ratio
        ]
    said = [mode.ratio for comparison in found for mode in comparison.modes if mode.ratio is not None]
    assert [ratio.judgement for ratio in said] == [*judge_family([ratio.estimate for ratio in said])]


def said(capsys: Captured, *arguments: object) -> Any:
    """What a command prints as JSON."""
    assert taxmeter(*arguments, "--format", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_an_explanation_says_the_same(store: Results, capsys: Captured) -> None:
    table = compare(store, ["batch"], ["backend"], "backend=eager", WORKLOAD)
    for batch in BATCHES:
        asked = said(capsys, "explain", WORKLOAD, "backend=eager", f"batch={batch}", "--results", store.place)
        speedups = {other["backend"]: other["speedup"] for other in asked["backends"]}
        for backend in OTHERS:
            assert ends(speedups[backend]) == of(known(table.entry(batch=batch, backend=backend).ratio))


def test_claims_say_the_same(store: Results, compared: Mapping[Key, Ratio], tmp_path: Path, capsys: Captured) -> None:
    claims = tmp_path / "claims.yaml"
    claims.write_text(
        "version: 1\nclaims:\n"
        + "".join(
            f"  - {{id: {name.replace('_', '-')}-{batch}, text: It is so., source: a test, paraphrase: so, measured_by: "
            f"sweeps/quickstart.yaml, where: {WORK} batch={batch}, "
            f"ratio: {{of: backend={name}, against: backend=eager, above: 1}}}}\n"
            for name in OTHERS
            for batch in BATCHES
        )
    )
    asked = said(capsys, "claims", "--claims", claims, "--results", store.place)
    decisions = {decision["id"]: decision for decision in asked}
    findings = {1: "holds", -1: "fails", 0: "not enough data"}
    for name in OTHERS:
        for batch in BATCHES:
            [case] = decisions[f"{name.replace('_', '-')}-{batch}"]["cases"]
            ratio = compared["bert-base", batch, name]
            assert ends(case["figure"]) == of(ratio)
            assert case["finding"] == findings[judge_family([ratio.estimate])[0].verdict.direction]


def test_a_figure_says_the_same(store: Results, figure_8: Gathered) -> None:
    table = compare(store, ["batch", "backend"], ["workload"], "workload=bert-base", f"campaign={FIRST}")
    found = {
        (panel.title, int(mark.x)): mark.estimate
        for row, specs in zip(pair_panels(FIGURES["8"], figure_8, "-"), FIGURES["8"].rows, strict=True)
        for panel, panel_spec in zip(row, specs, strict=True)
        if panel_spec.y is Y.RATIO
        for line in panel.lines
        if line.label == workload_label("squeezebert")
        for mark in line.marks
        if mark.estimate is not None
    }
    assert len(found) == 3 * len(BATCHES)
    for backend in ("eager", *OTHERS):
        for batch in BATCHES:
            ratio = known(table.entry(workload="squeezebert", batch=batch, backend=backend).ratio)
            assert found[f"float32, {backend_label(backend)}", batch] == ratio.estimate


def test_all_say_the_same_regimes(store: Results, figure_8: Gathered, capsys: Captured) -> None:
    page = make_report(store).page
    rows = Snapshot.of(store).rows(claim_columns(), None)
    proven = {
        (found.row["workload"], found.row["batch"], found.row["backend"]): found.regime
        for found in configurations(rows)
    }
    cells = {key_of(page, cell): cell.tax.load for cell in page.cells}
    drawn = {
        (where.workload, where.batch, where.backend): point.regime
        for where, point in figure_8.points.items()
        if point.rows
    }
    assert cells.keys() == proven.keys() == drawn.keys()
    for (workload, batch, backend), proof in cells.items():
        where = f"workload={workload}", f"backend={backend}", f"batch={batch}"
        asked = said(capsys, "explain", *where, "--results", store.place)
        load = known(proof)
        assert asked["regime"] == load.regime.value == drawn[workload, batch, backend].value
        assert ends(asked["load"]) == [load.estimate.value, load.estimate.low, load.estimate.high]
        assert load.proven is proven[workload, batch, backend]


@pytest.fixture(scope="module")
def figure_8(store: Results) -> Gathered:
    """The points of a figure of the paper."""
    wanted = wanted_of(load_sweep(SWEEPS / "figure_8.yaml"))
    trials = read_trials(store)
    return trials.gather(trials.choose(wanted, None), wanted)


def ends(document: Mapping[str, float]) -> list[float]:
    """A value and its interval in a document."""
    return [document[name] for name in ("value", "low", "high")]


def of(ratio: Ratio) -> list[float | None]:
    """The same of a ratio."""
    return [ratio.estimate.value, ratio.estimate.low, ratio.estimate.high]
