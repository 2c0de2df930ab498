"""The main job through the command line: real models, Ray, both isolations, once more, and what a user may do to it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow.dataset as ds
import pytest

from orchestrator.environments import connect
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import LABEL
from orchestrator.store import Store
from tests.conftest import PROJECT

pytestmark = pytest.mark.cluster

NO_ENGINE = "unix:///nonexistent/docker.sock"
UNSTORED = ".taxmeter/campaigns/*/*/records.jsonl"

MODELS = """
version: 1
name: models
environments: [cpu]
workloads: [{name: tiny-bert, batch: [1, 2]}, {name: synthetic-wrong, batch: 1}]
backends: [eager, torchscript, onnxruntime, python]
rounds: 2
duplicate: {workload: tiny-bert, backend: eager, batch: 1}
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, sync_budget_ms: 50, sync_min_samples: 3,
   pipelined_budget_ms: 50, pipelined_min_samples: 2, pipelined_block_ms: 10}
"""

SLEEPS = """
version: 1
name: sleeps
environments: [cpu]
workloads: [{name: synthetic-sleep, batch: [1, 2, 3, 4]}]
backends: [python]
rounds: 3
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, sync_budget_ms: 500, sync_min_samples: 3,
   pipelined_budget_ms: 100, pipelined_min_samples: 1, pipelined_block_ms: 10, precision_permille: 0,
   floor_budget_ms: 0}
"""


LONG, ENGINE = pytest.mark.long, pytest.mark.engine


@pytest.fixture(
    scope="module",
    params=[
        # where containers are required the same in them is enough, but for one test that names both
        pytest.param("process", marks=LONG if os.environ.get("TAXMETER_REQUIRE_ENGINE") == "1" else ()),
        pytest.param("docker", marks=ENGINE),
    ],
)
def isolation(request: pytest.FixtureRequest) -> Iterator[str]:
    """The isolation that `executor: auto` takes, with its environment built."""
    kind = str(request.param)
    with pytest.MonkeyPatch.context() as patch:
        if kind == "docker":
            request.getfixturevalue("cpu_image")
        else:
            request.getfixturevalue("cpu_python")
            patch.setenv("DOCKER_HOST", NO_ENGINE)
        yield kind


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "orchestrator", *map(str, arguments)]


def taxmeter(*arguments: object, code: ExitCode = ExitCode.OK) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(command(*arguments), cwd=PROJECT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


class Swept(NamedTuple):
    """What a sweep of real models left."""

    results: Path
    said: str
    rows: list[dict[str, Any]]


@pytest.fixture(scope="module")
def swept(isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    directory = tmp_path_factory.mktemp("swept")
    sweep, results = directory / "models.yaml", directory / "results"
    sweep.write_text(MODELS)
    done = taxmeter("sweep", "run", sweep, "--results", results, code=ExitCode.TRIALS_FAILED)
    rows = ds.dataset(results / "trials", partitioning="hive").to_table().to_pylist()
    return Swept(results, done.stdout, rows)


def test_a_sweep_of_real_models(isolation: str, swept: Swept) -> None:
    assert Counter(row["status"] for row in swept.rows) == {"ok": 2 * (2 * 3 + 1), "wrong_output": 2, "skipped": 5}
    files = f"'{swept.results}/trials/**/*.parquet', hive_partitioning = true"
    assert duckdb.sql(f"select count(*) from read_parquet({files})").fetchall() == [(len(swept.rows),)]

    ran = [row for row in swept.rows if row["status"] != "skipped"]
    assert {row["isolation"] for row in ran} == {isolation}
    digests = {row["image_digest"] for row in ran}
    assert digests == {None} if isolation == "process" else all(str(d).startswith("sha256:") for d in digests)
    systems = set(Store.open(swept.results).systems()["system_id"].to_pylist())
    assert {row["system_id"] for row in ran} == systems
    for row in ran:
        if row["status"] == "ok":
            assert row["verified"]
            assert row["relative_l2"] < 1e-5
            assert len(row["samples_sync_s"]) >= 3
            assert row["latency_sync_median_s"] > 0
            assert row["torch_version"] == "2.13.0+cpu"
        else:
            assert row["latency_sync_median_s"] is None
            assert row["samples_sync_s"] is None

    assert "2 wrong_output" in swept.said
    assert "backend python cannot run workload tiny-bert" in swept.said
    assert f"isolation={isolation}" in swept.said
    assert "tiny-bert, 16 tokens" in swept.said


def test_a_trial_and_its_campaign_run_again(isolation: str, swept: Swept, monkeypatch: pytest.MonkeyPatch) -> None:
    results = ("--results", swept.results)
    [campaign] = {row["campaign_id"] for row in swept.rows}
    first, *_ = [row for row in swept.rows if (row["backend"], row["batch"], row["round"]) == ("eager", 2, 1)]
    done = taxmeter("reproduce", first["trial_id"][:20], *results)
    now = [row for row in Store.open(swept.results).trials().to_pylist() if row["reproduces"] == campaign]
    assert len(now) == 3
    same = ("trial_key", "environment_id", "isolation", "trial_cores", "memory_limit_bytes", "seed", "timeout_s")
    same += ("protocol", "image_id", "lock_sha256", "runner_sha256", "system_id", "host")
    for row in now:
        assert {name: row[name] for name in same} == {name: first[name] for name in same}
        assert (row["status"], row["reproduction_differs"]) == ("ok", None)
        assert row["reproduces_trial_key"] == first["trial_key"]
    assert "environment cpu is identical to the stored one" in done.stdout
    assert "trial keys: 1 of 1 are those of the stored trials" in done.stdout
    assert "Verdicts: " in done.stdout
    assert first["trial_key"] in done.stdout

    done = taxmeter("reproduce", campaign, "--rounds", 1, *results)
    assert "trial keys: 6 of 6 are those of the stored trials" in done.stdout
    # One process on a side gives no interval. The reason stands in a cell, which is folded as the others are wide.
    assert "inconclusive" in done.stdout.split("Verdicts: ")[1].splitlines()[0]

    if isolation == "docker":
        monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)
        refused = taxmeter("reproduce", campaign, *results, code=ExitCode.NO_USABLE_HOST)
        assert "the trials ran in containers, but no Docker engine answers" in refused.stderr
        assert "start it, or add --allow-different-image" in refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("isolation", "number", "expected"),
    [
        ("process", signal.SIGINT, 130),
        pytest.param("docker", signal.SIGKILL, -signal.SIGKILL, marks=ENGINE),
        # each takes half a minute, and differs from those above in one thing
        pytest.param("docker", signal.SIGINT, 130, marks=[ENGINE, LONG]),
        pytest.param("process", signal.SIGKILL, -signal.SIGKILL, marks=LONG),
        # the same way out as an interrupt
        pytest.param("process", signal.SIGTERM, 130, marks=LONG),
        pytest.param("docker", signal.SIGTERM, 130, marks=[ENGINE, LONG]),
    ],
    indirect=["isolation"],
)
def test_an_ended_sweep_leaves_nothing_and_goes_on(
    isolation: str, number: signal.Signals, expected: int, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    (tmp_path / "sleeps.yaml").write_text(SLEEPS)
    sweep = ("sweep", "run", tmp_path / "sleeps.yaml", "--results", results)
    with (tmp_path / "log").open("w") as log:
        # A shell starts what runs in its background deaf to Ctrl-C, and children inherit that
        driver = subprocess.Popen(
            command(*sweep),
            cwd=PROJECT,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    acknowledged = wait_for_rows(results, at_least=5, driver=driver)
    if number == signal.SIGKILL:
        driver.kill()
    else:
        os.killpg(driver.pid, number)  # as a terminal does: everyone in the group hears it
    assert driver.wait(60) == expected, (tmp_path / "log").read_text()

    [campaign] = Store.open(results).campaigns()["campaign_id"].to_pylist()
    assert wait_until_nothing_runs(campaign) == []
    before = set(Store.open(results).trials(["trial_id"])["trial_id"].to_pylist())
    assert acknowledged <= before
    assert len(before) < 12

    waiting = sum(path.read_bytes().count(b'"type":"record"') for path in PROJECT.glob(UNSTORED))
    again = taxmeter(*sweep)
    found = re.search(r"(\d+) are in the store already", again.stdout)
    assert found is not None, again.stdout
    # A killed driver's host may have measured on, and what it measured was waiting in its task's directory.
    late = int(found[1]) - len(before)
    assert 0 <= late <= (waiting if number == signal.SIGKILL else 0)
    rows = ds.dataset(results / "trials", partitioning="hive").to_table().to_pylist()
    assert Counter(row["status"] for row in rows) == {"ok": 12}
    assert len({row["trial_id"] for row in rows}) == 12
    assert before <= {row["trial_id"] for row in rows}

    assert not (PROJECT / ".taxmeter" / "campaigns" / campaign).exists()


def wait_for_rows(results: Path, at_least: int, driver: "subprocess.Popen[bytes]") -> set[str]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert driver.poll() is None, "the sweep ended before it could be interrupted"
        rows = set(Store.open(results).trials(["trial_id"])["trial_id"].to_pylist())
        if len(rows) >= at_least:
            return rows
        time.sleep(0.1)
    raise AssertionError("no rows within two minutes")


def wait_until_nothing_runs(campaign: str) -> list[str]:
    deadline = time.monotonic() + 30
    while (left := running(campaign)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def running(campaign: str) -> list[str]:
    """Containers of the campaign, and processes that name one of its task directories."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if campaign.encode() in (entry / "cmdline").read_bytes():
                    found.append(entry.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
    if os.environ.get("DOCKER_HOST") == NO_ENGINE:
        return found
    with closing(connect()) as client:
        containers = client.containers.list(all=True, filters={"label": f"{LABEL}={campaign}"}, ignore_removed=True)
        return found + [str(container.name) for container in containers]
