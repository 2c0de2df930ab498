"""One set of rows, all front ends: the same ratios, intervals and verdicts to the last digit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from orchestrator.analysis import Ratio, columns, summarise
from orchestrator.analysis.comparison import compare, compare_selections, gate
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.report.page import make_report
from orchestrator.report.page.cells import Against, Mode
from orchestrator.store import Results, open_store
from tests.machines import CPU_ONLY, System
from tests.results import taxmeter
from tests.systems import FIRST, World, make_systems
from tests.world import BACKENDS, spec, times

BATCHES = (1, 8)
OTHERS = [name for name in BACKENDS if name not in ("eager", "cuda_graphs")]
WORK = "workload=bert-base"
Key = tuple[int, str]


def design(system: System) -> tuple:  # type: ignore[type-arg]
    return tuple(
        spec(name, batch, backend, "float32", system.device)
        for name in ("bert-base", "resnet50")
        for backend in ("eager", *OTHERS)
        for batch in BATCHES
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Results:
    world = World(systems=(CPU_ONLY,), updated=(), effects=(), design=design)
    return open_store(make_systems(tmp_path_factory.mktemp("front-ends") / "results", world).directory)


@pytest.fixture(scope="module")
def compared(store: Results) -> Mapping[tuple[str, int, str], Ratio]:
    """Of the whole store, so that as many ratios are judged together as in the summary and on the page."""
    table = compare(store, ["workload", "batch"], ["backend"], "backend=eager")
    names = [where.name for where in table.axes]
    places = [names.index(name) for name in ("workload", "batch", "backend")]
    return {tuple(entry.key[place] for place in places): entry.ratio for entry in table.ratios}  # type: ignore[misc]


def test_the_injected_effects_are_found(compared: Mapping[tuple[str, int, str], Ratio]) -> None:
    assert len(compared) == 2 * len(BATCHES) * len(OTHERS)
    for (workload, batch, backend), ratio in compared.items():
        sides = [times(CPU_ONLY, spec(workload, batch, name, "float32", "cpu")).sync_s for name in ("eager", backend)]
        assert ratio.estimate.value == pytest.approx(sides[0] / sides[1], rel=0.05)
        assert ratio.estimate.low is not None


def test_the_terminal_says_the_same(store: Results, compared: Mapping[tuple[str, int, str], Ratio]) -> None:
    found = summarise(store.trials(pc.field("campaign_id") == FIRST, columns()).arrow())
    cells = [(line, cell) for setting in found.settings for line in setting.lines for cell in line.cells]
    said = {(line.shape.workload, line.batch, cell.backend): cell.ratio for line, cell in cells if cell.ratio}
    assert said == compared


def test_the_page_says_the_same_whatever_its_filter(
    store: Results, compared: Mapping[tuple[str, int, str], Ratio]
) -> None:
    for conditions in ((), parse_conditions(WORK)):
        page = make_report(store, conditions).page
        said = {
            (
                str(page.at.shapes[cell.shape].values["workload"]),
                cell.batch,
                page.at.backends[cell.backend].label,
            ): ratio
            for cell in page.cells
            if (ratio := cell.ratios.get((Against.BACKEND, Mode.SYNC))) is not None
        }
        assert said
        for key, ratio in said.items():
            assert ratio.estimate == compared[key].estimate
        if not conditions:
            assert said == compared


@pytest.mark.parametrize("backend", OTHERS)
def test_two_selections_and_the_gate_say_the_same(
    store: Results, compared: Mapping[tuple[str, int, str], Ratio], backend: str
) -> None:
    table = compare_selections(store, "backend=eager", f"backend={backend}", where=WORK)
    decision = gate(store, "backend=eager", f"backend={backend}", where=WORK)
    sides = {entry.key[0]: entry.ratio for entry in table.ratios}
    gated = {cell.entry.key[0]: cell.entry.ratio for cell in decision.cells}
    assert sides == gated
    assert {batch: ratio.estimate for batch, ratio in sides.items() if ratio} == {
        batch: compared["bert-base", batch, backend].estimate for batch in BATCHES
    }


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """What a command prints as JSON."""
    assert taxmeter(*arguments, "--format", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_an_explanation_says_the_same(
    store: Results, compared: Mapping[tuple[str, int, str], Ratio], capsys: pytest.CaptureFixture[str]
) -> None:
    for batch in BATCHES:
        asked = said(capsys, "explain", WORK, "backend=eager", f"batch={batch}", "--results", store.place)
        speedups = {other["backend"]: other["speedup"] for other in asked["backends"]}
        for backend in OTHERS:
            estimate = compared["bert-base", batch, backend].estimate
            assert [speedups[backend][name] for name in ("value", "low", "high")] == [
                estimate.value, estimate.low, estimate.high,
            ]  # fmt: skip


def test_claims_say_the_same(
    store: Results,
    compared: Mapping[tuple[str, int, str], Ratio],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    claims = tmp_path / "claims.yaml"
    claims.write_text(
        "version: 1\nclaims:\n"
        + "".join(
            f"  - {{id: {name.replace('_', '-')}-{batch}, text: It is so., source: a test, paraphrase: so, measured_by: "
            f"sweeps/quickstart.yaml, where: {WORK} batch={batch}, "
            f"ratio: {{of: backend={name}, against: backend=eager, above: 0.001}}}}\n"
            for name in OTHERS
            for batch in BATCHES
        )
    )
    asked = said(capsys, "claims", "--claims", claims, "--results", store.place)
    decisions = {decision["id"]: decision for decision in asked}
    for name in OTHERS:
        for batch in BATCHES:
            [case] = decisions[f"{name.replace('_', '-')}-{batch}"]["cases"]
            estimate = compared["bert-base", batch, name].estimate
            assert [case["figure"][end] for end in ("value", "low", "high")] == [
                estimate.value, estimate.low, estimate.high,
            ]  # fmt: skip
