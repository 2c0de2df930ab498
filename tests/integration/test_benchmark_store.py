"""The benchmark of the store does what it says; how fast is for `make bench-store` to tell."""

from pathlib import Path

import pytest

from benchmarks.store import acknowledging, building, queries, report
from benchmarks.store.fleet import BLOCKS, HOSTS_PER_CAMPAIGN, ROUNDS, ROWS_PER_CAMPAIGN, TRIAL_KEYS, Campaign
from benchmarks.store.rows import campaign_rows, campaigns
from orchestrator.store import TRIALS, Store
from orchestrator.store.storage.compaction import compact


def test_the_rows_of_a_campaign_are_valid_and_always_the_same() -> None:
    rows = campaign_rows(Campaign(3, 10))
    rows.validate(full=True)
    assert rows.schema == TRIALS
    assert rows.equals(campaign_rows(Campaign(3, 10)))
    assert all(not rows[field.name].null_count for field in TRIALS if not field.nullable)
    assert len(rows["trial_id"].unique()) == ROWS_PER_CAMPAIGN
    assert len(rows["trial_key"].unique()) == ROWS_PER_CAMPAIGN // ROUNDS // HOSTS_PER_CAMPAIGN
    ok = [row for row in rows.to_pylist() if row["status"] == "ok"]
    assert 0.9 < len(ok) / ROWS_PER_CAMPAIGN < 1
    assert all(len(row["samples_sync_s"]) == 100 for row in ok)


def test_a_million_trials_visit_every_key_over_two_years() -> None:
    planned = campaigns(1_000_000)
    assert {campaign.block for campaign in planned} == set(range(BLOCKS))
    assert TRIAL_KEYS == 73_440
    assert (planned[-1].started_at - planned[0].started_at).days > 720


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, building.Built]:
    directory = tmp_path_factory.mktemp("bench") / "store"
    # The first six campaigns have every workload once.
    return directory, building.build(directory, 6 * ROWS_PER_CAMPAIGN, lambda text: None)


def test_building_writes_what_it_counts(built: tuple[Path, building.Built]) -> None:
    directory, figures = built
    store = Store.open(directory)
    assert figures.trials == 6 * ROWS_PER_CAMPAIGN == len(store.trials(["trial_id"]))
    assert figures.live_bytes == sum(path.stat().st_size for path in store.layout.parts())
    assert compact(store.layout, full=True).months == ()


def test_every_question_has_an_answer(built: tuple[Path, building.Built]) -> None:
    directory, _ = built
    trials = Store.open(directory).trials(
        ["workload", "status", "trial_key", "system_id", "gpu_name", "backend", "batch"]
    )
    rows = [row for row in trials.to_pylist() if row["workload"] == queries.MODEL and row["status"] == "ok"]
    assert queries.median_latencies(directory) == len({(row["gpu_name"], row["backend"], row["batch"]) for row in rows})
    assert queries.latest(directory) == len(trials["trial_key"].unique())
    keys = zip(trials["trial_key"].to_pylist(), trials["system_id"].to_pylist(), strict=True)
    assert queries.latest_by_system(directory) == len(set(keys))
    assert queries.of_one_driver(directory) == queries.of_one_driver_whole(directory) > 0
    ratios = queries.ratios(directory)
    assert set(ratios) == {row["gpu_name"] for row in rows}
    for ratio in ratios.values():
        assert ratio.low is not None
        assert ratio.high is not None
        assert ratio.low <= ratio.value <= ratio.high
        assert ratio.processes <= ROUNDS * HOSTS_PER_CAMPAIGN


@pytest.mark.cluster
def test_rows_of_tasks_are_acknowledged(tmp_path: Path) -> None:
    seen = acknowledging.acknowledge(tmp_path, tasks=2, rate=5.0, seconds=3.0)
    assert seen.rows > 0
    assert 0 < seen.median_s <= seen.p95_s
    assert seen.cpu_s > 0


def test_a_missed_target_is_named() -> None:
    held = report.at_most("files", 10, 200, report.count)
    missed = report.at_least("seal", 14_000, 15_000, report.per_second)
    assert (held.holds, missed.holds, report.told("a", "b").holds) == (True, False, None)
    lines = report.table([held, missed]).splitlines()
    assert "holds" in lines[2]
    assert "14,000 trials/s" in lines[3]
    assert "MISSED" in lines[3]
    assert len({len(line) for line in lines}) == 1
