"""The made-up store is what it says: coherent, repeatable, with its effects in it."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from orchestrator.analysis.tax import VIEWS
from orchestrator.store import open_store
from runners.contract import Status
from tests.machines import A100, CPU_ONLY, SYSTEMS, V100, System
from tests.results import taxmeter
from tests.systems import FIRST, NEW_DRIVER, SECOND, Made, World, make_systems
from tests.world import Effect, design, failure, spec, times, transition_batch


def few(system: System) -> tuple:  # type: ignore[type-arg]
    half = "float16" if system.is_gpu else "float32"
    return tuple(
        spec("bert-base", batch, backend, half, system.device)
        for backend in ("eager", "onnxruntime", "cuda_graphs")
        for batch in (1, 8, 128)
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_systems(
        tmp_path_factory.mktemp("systems") / "results", World(systems=(V100, A100, CPU_ONLY), design=few)
    )


def medians(made: Made, column: str, condition: pc.Expression) -> float:
    ok = (pc.field("status") == "ok") & (pc.field("replicate") == 0)
    return float(np.median(made.store.trials([column], filter=condition & ok)[column].to_numpy()))


def test_the_store_is_whole(small: Made) -> None:
    assert taxmeter("results", "verify", "--results", small.directory) == 0
    assert len(small.store.trials(["trial_id"])) == small.rows
    assert open_store(small.directory).sql("SELECT count(*) FROM systems").fetchall() == [(4,)]


def test_equal_worlds_give_equal_rows(tmp_path: Path, small: Made) -> None:
    again = make_systems(tmp_path / "results", World(systems=(V100, A100, CPU_ONLY), design=few))
    columns = ["trial_id", "status", "samples_sync_s", "busy_s"]
    first, second = (made.store.trials(columns).sort_by("trial_id") for made in (small, again))
    assert first.equals(second)


@pytest.mark.parametrize("batch", [1, 8, 128])
def test_times_are_those_of_the_model(small: Made, batch: int) -> None:
    truth = times(V100, spec("bert-base", batch))
    here = (pc.field("host") == "v100-01") & (pc.field("batch") == batch) & (pc.field("backend") == "eager")
    assert medians(small, "latency_pipelined_median_s", here) == pytest.approx(truth.pipelined_s, rel=0.03)
    assert medians(small, "dispatch_s", here) == pytest.approx(truth.dispatch_s, rel=0.03)
    assert medians(small, "busy_s", here) == pytest.approx(truth.busy_s, rel=0.03)


def test_on_a_processor_the_floor_adds_up(small: Made) -> None:
    truth = times(CPU_ONLY, spec("bert-base", 1, "eager", "float32", "cpu"))
    query = "SELECT DISTINCT dispatch_floor_s FROM tax WHERE host = 'epyc-01' AND batch = 1 AND backend = 'eager'"
    [(floor_s,)] = open_store(small.directory).sql(query, VIEWS).fetchall()
    assert floor_s == pytest.approx(truth.dispatch_s, rel=0.05)
    assert truth.sync_s == pytest.approx(truth.dispatch_s + truth.busy_s)


def test_the_driver_changes_and_does_what_it_is_said_to(small: Made) -> None:
    here = (pc.field("host") == "a100-01") & (pc.field("batch") == 1) & (pc.field("backend") == "eager")
    before, after = (
        medians(small, "latency_pipelined_median_s", here & (pc.field("campaign_id") == one)) for one in (FIRST, SECOND)
    )
    assert after / before == pytest.approx(1.1, rel=0.03)
    drivers = small.store.trials(["driver_version"], campaign_id=SECOND)["driver_version"].unique().to_pylist()
    assert drivers == [NEW_DRIVER]


def test_what_a_processor_cannot_do_is_skipped_once(small: Made) -> None:
    graphs = small.store.trials(["status", "reason"], filter=pc.field("host") == "epyc-01").to_pylist()
    skipped = [row for row in graphs if row["status"] == "skipped"]
    assert len(skipped) == 3
    assert "device cpu is not served" in skipped[0]["reason"]


def test_effects_change_what_they_name() -> None:
    one = spec("bert-base", 1)
    slower = Effect(2.0, "dispatch", {"backend": ("eager", "torchscript"), "host": "v100-01"})
    assert times(V100, one, (slower,)).dispatch_s == pytest.approx(2 * times(V100, one).dispatch_s)
    assert times(V100, one, (slower,)).busy_s == times(V100, one).busy_s
    assert times(A100, one, (slower,)) == times(A100, one)
    assert transition_batch(V100, one, (slower,)) > 2 * transition_batch(V100, one)


def test_faster_gpus_change_later() -> None:
    speeds = sorted((system for system in SYSTEMS if system.is_gpu), key=lambda one: one.tflops["float16"])
    batches = [transition_batch(system, spec("bert-base", 1)) for system in speeds]
    assert batches == sorted(batches)


def test_the_whole_design_has_cells_that_fail() -> None:
    ends = {
        system.host: {found.status for one in design(system) if (found := failure(system, one))} for system in SYSTEMS
    }
    assert ends["2080ti-01"] == {Status.OOM, Status.UNSUPPORTED, Status.WRONG_OUTPUT}
    assert ends["epyc-01"] == {Status.SKIPPED, Status.UNSUPPORTED, Status.WRONG_OUTPUT}


def test_it_grows_by_repetition(tmp_path: Path) -> None:
    made = make_systems(tmp_path / "results", World(systems=(V100,), design=few, updated=(), rounds=2, trials=100))
    assert made.rows == 100
    assert len(made.campaigns) == 5
    rows = made.store.trials(["trial_id", "latency_sync_median_s", "samples_sync_s", "status"]).to_pylist()
    assert len({row["trial_id"] for row in rows}) == 100
    for row in rows:
        assert np.median(row["samples_sync_s"]) == pytest.approx(row["latency_sync_median_s"], rel=1e-6)
    assert taxmeter("results", "verify", "--results", made.directory) == 0
