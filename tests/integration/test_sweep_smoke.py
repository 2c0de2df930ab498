"""The main job in half a minute: a sweep through Ray into a store, in an environment of one small package."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from orchestrator.environments import EnvironmentEntry
from orchestrator.errors import ExitCode
from tests.project import Project, sleeps

SLEEP_S = 0.05

pytestmark = [pytest.mark.cluster, pytest.mark.smoke]


@pytest.fixture
def bench(tiny: EnvironmentEntry, project: Path) -> Project:
    """A project whose environment `cpu` is a lock of one wheel, which lies beside it."""
    root = tiny.directory.parent
    yaml = YAML(typ="safe")
    entry = yaml.load(project / "docker/images.yaml")["environments"]["cpu"]
    del entry["wheel_index"]
    yaml.dump({"environments": {"cpu": entry | {"lock": tiny.lock}}}, tiny.directory / "images.yaml")
    (root / "hostinventory.yaml").write_text("version: 1\nhosts: {bench: {connection: local, executor: process}}\n")
    return Project(root)


def test_a_sweep_runs_through_ray_into_the_store_and_is_not_run_again(bench: Project) -> None:
    sweep = bench.write(sleeps(rounds=2, turn_ms=50))
    done = bench.taxmeter("sweep", "run", sweep, "--results", bench.results, code=ExitCode.OK)
    assert "Total: 4 trials: 4 ok" in done.stdout
    rows = bench.rows()
    assert [row["status"] for row in rows] == ["ok"] * 4
    assert {(row["host"], row["isolation"]) for row in rows} == {("bench", "process")}
    assert min(seconds for row in rows for seconds in row["samples_sync_s"]) >= SLEEP_S
    listed = bench.taxmeter("results", "ls", "--results", bench.results, code=ExitCode.OK)
    assert "sleeps-" in listed.stdout
