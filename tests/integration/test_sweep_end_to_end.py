"""The main job through the command line: real models, Ray, both isolations, and what a user may do to it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest

from orchestrator.environments import connect
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import LABEL
from orchestrator.store import Store

pytestmark = pytest.mark.cluster

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


def command(sweep: Path, results: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator", "sweep", "run", str(sweep), "--results", str(results), *more]


def run(sweep: Path, results: Path, project: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(sweep, results, *more), cwd=project, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_sweep_of_real_models(isolation: str, project: Path, tmp_path: Path) -> None:
    sweep, results = tmp_path / "models.yaml", tmp_path / "results"
    sweep.write_text(MODELS)
    done = run(sweep, results, project)
    assert done.returncode == ExitCode.TRIALS_FAILED, done.stdout + done.stderr

    table = ds.dataset(results / "trials", partitioning="hive").to_table()
    assert Counter(table["status"].to_pylist()) == {"ok": 2 * (2 * 3 + 1), "wrong_output": 2, "skipped": 5}
    files = f"'{results}/trials/**/*.parquet', hive_partitioning = true"
    assert duckdb.sql(f"select count(*) from read_parquet({files})").fetchall() == [(table.num_rows,)]

    ran = [row for row in table.to_pylist() if row["status"] != "skipped"]
    assert {row["isolation"] for row in ran} == {isolation}
    digests = {row["image_digest"] for row in ran}
    assert digests == {None} if isolation == "process" else all(str(d).startswith("sha256:") for d in digests)
    systems = set(Store.open(results).systems()["system_id"].to_pylist())
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

    assert "2 wrong_output" in done.stdout
    assert "backend python cannot run workload tiny-bert" in done.stdout
    assert f"isolation={isolation}" in done.stdout
    assert "tiny-bert, 16 tokens" in done.stdout


LONG, ENGINE = pytest.mark.long, pytest.mark.engine


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
    isolation: str, number: signal.Signals, expected: int, project: Path, tmp_path: Path
) -> None:
    sweep, results = tmp_path / "sleeps.yaml", tmp_path / "results"
    sweep.write_text(SLEEPS)
    with (tmp_path / "log").open("w") as log:
        # A shell starts what runs in its background deaf to Ctrl-C, and children inherit that
        driver = subprocess.Popen(
            command(sweep, results),
            cwd=project,
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

    waiting = sum(path.read_bytes().count(b'"type":"record"') for path in project.glob(UNSTORED))
    again = run(sweep, results, project)
    assert again.returncode == ExitCode.OK, again.stdout + again.stderr
    found = re.search(r"(\d+) are in the store already", again.stdout)
    assert found is not None, again.stdout
    # A killed driver's host may have measured on, and what it measured was waiting in its task's directory.
    late = int(found[1]) - len(before)
    assert 0 <= late <= (waiting if number == signal.SIGKILL else 0)
    rows = ds.dataset(results / "trials", partitioning="hive").to_table().to_pylist()
    assert Counter(row["status"] for row in rows) == {"ok": 12}
    assert len({row["trial_id"] for row in rows}) == 12
    assert before <= {row["trial_id"] for row in rows}

    nothing = run(sweep, results, project, "--resume", "always")
    assert nothing.returncode == ExitCode.OK
    assert "0 trials to run, 12 are in the store already" in nothing.stdout
    assert not (project / ".taxmeter" / "campaigns" / campaign).exists()


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
    if os.environ.get("DOCKER_HOST", "").startswith("unix:///nonexistent"):
        return found
    with closing(connect()) as client:
        containers = client.containers.list(all=True, filters={"label": f"{LABEL}={campaign}"}, ignore_removed=True)
        return found + [str(container.name) for container in containers]
