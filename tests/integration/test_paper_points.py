"""Which trials a point of the paper's figures is made of: one setting, one protocol, one procedure."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis.paper import (
    PUBLISHED,
    Setting,
    State,
    Trials,
    load_published,
    read_trials,
    wanted_of,
)
from orchestrator.config import load_sweep
from orchestrator.report.figures.canvas import drawing
from orchestrator.report.figures.catalogue import FIGURES
from orchestrator.report.figures.compose import Material, compose
from orchestrator.store import open_store
from runners.contract.catalogue import WORKLOADS
from tests.machines import A100, CPU_ONLY, RTX_8000
from tests.paper_world import SWEEPS, add_models, paper_design
from tests.systems import World, make_systems

PROJECT = Path(__file__).parents[2]
LATENCY = "latency_pipelined_median_s"
FIGURE_3 = wanted_of(load_sweep(SWEEPS / "figure_3.yaml"))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    add_models()
    world = World(
        systems=(RTX_8000, A100, CPU_ONLY), rounds=3, effects=(), updated=(),
        design=lambda system: [one for one in paper_design(system) if one.workload.name in ("bert", "bert-base")],
    )  # fmt: skip
    return read_trials(open_store(make_systems(tmp_path_factory.mktemp("paper") / "store", world).directory))


def on(trials: Trials, gpu: str) -> Setting:
    (found,) = [one for one in trials.settings if gpu in one.gpu]
    return found


def later(trials: Trials, rows: list[dict[str, Any]], **changes: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of a campaign that started a day later, and when each campaign started."""
    again = [{**row, "campaign_id": "later", "trial_id": f"later-{row['trial_id']}", **changes} for row in rows]
    return again, {**trials.started, "later": max(trials.started.values()) + timedelta(days=1)}


def test_the_papers_gpu_comes_first_unless_it_has_much_less(trials: Trials) -> None:
    assert trials.choose(FIGURE_3, "RTX 8000") == on(trials, "RTX 8000")
    assert trials.choose(FIGURE_3, "A100") == on(trials, "A100")
    cells = dict(trials.settings)
    points = set(FIGURE_3.configurations)
    kept = [one for one in cells[on(trials, "RTX 8000")] if one in points][:8]
    cells[on(trials, "RTX 8000")] = {one: cells[on(trials, "RTX 8000")][one] for one in kept}
    assert replace(trials, settings=cells).choose(FIGURE_3, "RTX 8000") == on(trials, "A100")


def test_processors_are_drawn_where_there_is_nothing_else(trials: Trials) -> None:
    cells = {one: rows for one, rows in trials.settings.items() if one.device == "cpu"}
    found = replace(trials, settings=cells).choose(FIGURE_3, "RTX 8000")
    assert found is not None
    assert found.device == "cpu"
    assert replace(trials, settings={}).choose(FIGURE_3, "RTX 8000") is None


def test_a_longer_look_and_a_shorter_one_are_not_pooled(trials: Trials) -> None:
    setting = on(trials, "RTX 8000")
    one = FIGURE_3.configurations[0]
    whole = trials.settings[setting][one]
    rows = [row for row in whole if row["protocol"] == whole[0]["protocol"]]
    assert len(rows) == 3
    short, started = later(
        trials, rows[:1], protocol='{"procedure": "standard", "sync_budget_ms": 1}', **{LATENCY: 9.0}
    )
    cells = {setting: {**trials.settings[setting], one: rows + short}}
    point = replace(trials, settings=cells, started=started).gather(setting, FIGURE_3).points[one]
    assert [row["campaign_id"] for row in point.rows] == ["later"]
    same, started = later(trials, rows[:1], **{LATENCY: 9.0})
    cells = {setting: {**trials.settings[setting], one: rows + same}}
    pooled = replace(trials, settings=cells, started=started).gather(setting, FIGURE_3).points[one].estimate(LATENCY)
    assert pooled is not None
    assert pooled.processes == len(rows) + 1


def test_another_driver_is_another_setting(tmp_path: Path) -> None:
    world = World(
        systems=(A100,), rounds=1, effects=(),
        design=lambda system: [point for point in paper_design(system) if point.workload.name == "bert-base"][:1],
    )  # fmt: skip
    first, second = read_trials(open_store(make_systems(tmp_path / "store", world).directory)).settings
    differing = {name for name in Setting._fields if getattr(first, name) != getattr(second, name)}
    assert "system" in differing
    assert differing.isdisjoint({"hw", "gpu", "cpu"})


def test_a_skip_is_not_measured_and_a_failure_says_why(trials: Trials) -> None:
    setting = on(trials, "RTX 8000")
    first, second, third = FIGURE_3.configurations[:3]
    rows = trials.settings[setting]
    cells = {
        setting: {
            first: [{**rows[first][0], "status": "skipped", "reason": "no driver"}],
            second: [{**rows[second][0], "status": "oom", "reason": "11 GiB"}],
            third: [*rows[third], {**rows[third][0], "status": "oom", "reason": "11 GiB"}],
        }
    }
    points = replace(trials, settings=cells).gather(setting, FIGURE_3).points
    assert (points[first].state, points[first].reason) == (State.ABSENT, "no driver")
    assert (points[second].state, points[second].reason) == (State.FAILED, "oom: 11 GiB")
    assert points[third].state is State.MEASURED
    assert points[third].estimate(LATENCY) is not None


def test_what_the_paper_timed_stands_in_columns_of_its_own(trials: Trials) -> None:
    setting = on(trials, "RTX 8000")
    legacy = {
        one: [{**row, "latency_legacy_s": 0.0123, LATENCY: None} for row in rows]
        for one, rows in trials.settings[setting].items()
    }
    both = replace(trials, legacy={setting: legacy})
    with drawing():
        sheet = compose(FIGURES["table-1"], Material(both, load_published(PROJECT / PUBLISHED), SWEEPS, {}))
    assert sheet.table is not None
    names = [name for name, span in sheet.table.groups for _ in range(span)]
    column = names.index("float32, as the paper timed, ms")
    assert [row[column].split()[0] for row in sheet.table.rows] == ["12.30"] * 4
    assert sheet.table.rows[0][names.index("float32, ms")] != sheet.table.rows[0][column]
    assert "As the paper timed: mean of 100 passes after 10 warm-ups" in "\n".join(sheet.small_print)


def test_a_size_that_is_written_out_is_its_default(trials: Trials) -> None:
    table_1 = wanted_of(load_sweep(SWEEPS / "table_1.yaml"))
    assert {one.get("intermediate_size") for one in table_1.configurations} == {0}
    assert {one.get("hidden_size") for one in table_1.configurations} == {768, 1536}
    assert "intermediate_size" in WORKLOADS["bert"].options
