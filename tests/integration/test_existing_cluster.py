"""Sweeps on a Ray cluster that others keep: asked and made ready through Ray alone, and left as it was."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from orchestrator.environments import connect, engine_problem
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import LABEL
from orchestrator.hosts.cluster import HOST_LABEL
from orchestrator.store import Store
from tests.conftest import PROJECT
from tests.foreign_ray import ForeignCluster, Node

pytestmark = [pytest.mark.cluster, pytest.mark.environment, pytest.mark.long]

QUICK = """
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, sync_budget_ms: 50, sync_min_samples: 3,
   pipelined_budget_ms: 50, pipelined_min_samples: 2, pipelined_block_ms: 10, floor_budget_ms: 0}
"""
MODELS = (
    "version: 1\nname: models\nenvironments: [cpu]\nworkloads: [{name: tiny-bert, batch: 1}]\n"
    f"backends: [eager, python]\nthreads: [1]\nrounds: 1\n{QUICK}"
)
SLEEPS = (
    "version: 1\nname: sleeps\nenvironments: [cpu]\nworkloads: [{name: synthetic-sleep, batch: [1, 2]}]\n"
    f"backends: [python]\nthreads: [1]\nrounds: 3\n{QUICK}"
).replace("sync_budget_ms: 50", "precision_permille: 0, sync_budget_ms: 1000")


class Workshop:
    """A project of its own, from whose directory sweeps run on the cluster."""

    def __init__(self, directory: Path, cluster: ForeignCluster, python: Path) -> None:
        self.root = directory
        self.cluster = cluster
        self.results = directory / "results"
        shutil.copytree(PROJECT / "docker", directory / "docker", ignore=shutil.ignore_patterns("*.whl"))
        for host in ("a", "b"):
            # made already, so that no test waits for a package index
            place = directory / host / "environments"
            place.mkdir(parents=True)
            (place / python.parents[1].name).symlink_to(python.parents[1])

    def inventory(self, address: str, **hosts: str) -> Path:
        """An inventory with these hosts, by name with further settings."""
        lines = [f"version: 1\nray_address: {address}\ndefaults: {{connection: ray}}\nhosts:"]
        for name, more in hosts.items():
            lines.append(f"  {name}: {{work_directory: {self.root / name}{more}}}")
        path = self.root / "hostinventory.yaml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def command(self, kind: str, sweep: str, inventory: Path) -> list[str]:
        path = self.root / "sweep.yaml"
        path.write_text(sweep)
        whole = [sys.executable, "-m", "orchestrator", "sweep", kind, str(path), "--inventory", str(inventory)]
        return [*whole, "--results", str(self.results)] if kind == "run" else whole

    def run(
        self, kind: str, sweep: str, inventory: Path, *, timeout_s: float = 240, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(kind, sweep, inventory),
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**self.environment, **environment},
        )

    def hosts(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "orchestrator", "hosts", *arguments]
        return subprocess.run(
            command, cwd=self.root, capture_output=True, text=True, timeout=240, check=False, env=self.environment
        )

    @property
    def environment(self) -> dict[str, str]:
        # Only the token's place: that a token is wanted follows from it.
        others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return {**others, "RAY_AUTH_TOKEN_PATH": str(self.cluster.token), "PYTHONPATH": str(PROJECT)}

    def rows(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = ds.dataset(self.results / "trials", partitioning="hive").to_table().to_pylist()
        return rows


@pytest.fixture(scope="module")
def cluster() -> Iterator[ForeignCluster]:
    """Hosts a and b, and one without the resource."""
    found = ForeignCluster([Node({HOST_LABEL: "a"}), Node({HOST_LABEL: "b"}), Node({HOST_LABEL: "slotless"}, "{}")])
    yield found
    found.stop()


@pytest.fixture
def workshop(cluster: ForeignCluster, cpu_python: Path, tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, cluster, cpu_python)


def test_a_sweep_of_real_models_on_two_nodes_beside_somebody_elses_job(
    workshop: Workshop, request: pytest.FixtureRequest
) -> None:
    isolation = "process" if engine_problem() else "docker"
    if isolation == "docker":
        request.getfixturevalue("cpu_image")
    hosts = {"a": ", labels: {rack: x}", "b": ", executor: process", "nowhere": ""}
    inventory = workshop.inventory(workshop.cluster.address, **hosts)

    planned = workshop.run("plan", MODELS, inventory)
    assert planned.returncode == ExitCode.OK, planned.stdout + planned.stderr
    assert "1 trials in one task on b, cpu" in planned.stdout
    assert not (workshop.root / "a" / "campaigns").exists()

    done = workshop.run("run", MODELS, inventory)
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    rows = workshop.rows()
    assert Counter((row["host"], row["status"]) for row in rows) == {
        (host, status): 1 for host in ("a", "b") for status in ("ok", "skipped")
    }
    ran = {row["host"]: row for row in rows if row["status"] == "ok"}
    assert {host: row["isolation"] for host, row in ran.items()} == {"a": isolation, "b": "process"}
    assert ran["b"]["executor_reason"] == "chosen in the inventory"
    assert all(row["verified"] and row["latency_sync_median_s"] for row in ran.values())
    assert len({row["system_id"] for row in rows}) == 1  # what never ran on a host refers to the same system
    last = done.stdout.splitlines()[-1]
    assert last.startswith("not measured: nowhere: no living node of the cluster has the label taxmeter-host=nowhere")

    assert workshop.cluster.lives
    assert workshop.cluster.job_goes_on
    assert left_containers() == []
    assert list((workshop.root / "a" / "campaigns").iterdir()) == []


def test_nodes_are_checked_and_compared_as_other_hosts_are(workshop: Workshop) -> None:
    inventory = workshop.inventory(workshop.cluster.address, a=", executor: process", b="", nowhere="")
    checked = workshop.hosts("check", "--format", "json", "--inventory", str(inventory))
    assert checked.returncode == ExitCode.TRIALS_FAILED, checked.stderr
    assert checked.stdout, checked.stderr
    hosts = {host["host"]: host for host in json.loads(checked.stdout)["hosts"]}
    assert {name: host["checks"]["ssh"]["shown"] for name, host in hosts.items()} == {
        "a": "ray",
        "b": "ray",
        "nowhere": "no",
    }
    assert hosts["a"]["checks"]["engine"]["shown"] == "not used"
    assert hosts["b"]["reading"]["host_name"] == os.uname().nodename
    assert hosts["nowhere"]["checks"]["ssh"]["problem"].startswith("no living node of the cluster has the label")
    compared = workshop.hosts("diff", "a", "b", "--inventory", str(inventory))
    assert compared.returncode == ExitCode.OK, compared.stdout + compared.stderr
    assert "a: read on its node of Ray, by Python 3.11" in compared.stdout
    assert "the same hardware, and nothing else differs" in compared.stdout
    refused = workshop.hosts("key", "a", "--inventory", str(inventory))
    assert refused.returncode == ExitCode.USAGE
    assert "with ray_address there is nothing to reach" in refused.stderr


def test_no_cluster_is_one_line(workshop: Workshop) -> None:
    done = workshop.run("run", MODELS, workshop.inventory("127.0.0.1:1", a=""))
    assert done.returncode == ExitCode.NO_USABLE_HOST, done.stderr
    [line] = done.stderr.splitlines()
    expected = ":2: ray_address: no Ray cluster answers at 127.0.0.1:1 (Connection refused): start it, or correct the"
    assert expected in line


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"RAY_AUTH_TOKEN": "wrong"},
            "does not take the token in RAY_AUTH_TOKEN: write that of the cluster into a file",
        ),
        ({"RAY_AUTH_TOKEN_PATH": ""}, "wants a token: write that of the cluster"),
    ],
)
def test_a_token_that_is_not_the_clusters_is_one_line(
    workshop: Workshop, environment: dict[str, str], expected: str
) -> None:
    inventory = workshop.inventory(workshop.cluster.address, a="")
    done = workshop.run("run", MODELS, inventory, **environment)
    assert done.returncode == ExitCode.USAGE, done.stderr
    [line] = done.stderr.splitlines()
    assert expected in line
    assert workshop.cluster.lives


def test_hosts_that_cannot_be_used_are_named_in_one_line(workshop: Workshop) -> None:
    inventory = workshop.inventory(workshop.cluster.address, nowhere="", slotless="")
    done = workshop.run("run", MODELS, inventory)
    assert done.returncode == ExitCode.NO_USABLE_HOST, done.stderr
    [line] = done.stderr.splitlines()
    assert (
        "nowhere: no living node of the cluster has the label taxmeter-host=nowhere (there is: a, b, slotless)" in line
    )
    assert "has no resource bench_slot, by which one trial runs at a time; start Ray there with --resources=" in line

    wrong = {"a": ", executor: docker, engine: 'unix:///nonexistent.sock'", "b": ", expect: {gpu_count: 4}"}
    done = workshop.run("run", MODELS, workshop.inventory(workshop.cluster.address, **wrong))
    assert done.returncode == ExitCode.NO_USABLE_HOST, done.stderr
    [line] = done.stderr.splitlines()
    assert "a: executor is docker, but no Docker engine answers at unix:///nonexistent.sock" in line
    assert "b: expected 4 GPUs, found " in line
    assert not workshop.results.exists()
    assert workshop.cluster.lives


def test_a_killed_driver_leaves_the_cluster_and_the_next_run_goes_on(workshop: Workshop, tmp_path: Path) -> None:
    inventory = workshop.inventory(workshop.cluster.address, a=", executor: process", b=", executor: process")
    log = tmp_path / "log"
    with log.open("wb") as stream:
        driver = subprocess.Popen(
            workshop.command("run", SLEEPS, inventory),
            cwd=workshop.root,
            stdout=stream,
            stderr=stream,
            env=workshop.environment,
        )
    before = wait_for_rows(workshop.results, 3, driver, log)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()

    again = workshop.run("run", SLEEPS, inventory)
    assert again.returncode == ExitCode.OK, again.stdout + again.stderr
    rows = workshop.rows()
    assert Counter((row["host"], row["status"]) for row in rows) == {("a", "ok"): 6, ("b", "ok"): 6}
    assert len({row["campaign_id"] for row in rows}) == 1
    assert before <= {row["trial_id"] for row in rows}
    assert workshop.cluster.lives
    assert workshop.cluster.job_goes_on


def wait_for_rows(results: Path, at_least: int, driver: "subprocess.Popen[bytes]", log: Path) -> set[str]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert driver.poll() is None, log.read_text()
        if (results / "STORE.json").exists():
            seen = set(Store.open(results).trials(["trial_id"])["trial_id"].to_pylist())
            if len(seen) >= at_least:
                return seen
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def left_containers() -> list[str]:
    if engine_problem() is not None:
        return []
    with closing(connect()) as client:
        campaigns = [
            one.labels[LABEL] for one in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
        ]
    return [one for one in campaigns if one.startswith("models-")]
