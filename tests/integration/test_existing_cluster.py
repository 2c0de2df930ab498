"""Sweeps on a Ray cluster that others keep: asked and made ready through Ray alone, and left as it was."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.environments import connect, engine_problem
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import LABEL
from tests.conftest import PROJECT
from tests.project import Project, models, sleeps
from tests.ray_nodes import ForeignCluster

pytestmark = [pytest.mark.cluster, pytest.mark.environment, pytest.mark.long, pytest.mark.timeout(1200)]

MODELS, SLEEPS = models("[eager, python]"), sleeps(rounds=3)


class Workshop(Project):
    """A project from whose directory sweeps run on the cluster."""

    def __init__(self, directory: Path, cluster: ForeignCluster, python: Path) -> None:
        super().__init__(directory)
        self.cluster = cluster
        shutil.copytree(PROJECT / "docker", directory / "docker", ignore=shutil.ignore_patterns("*.whl"))
        for host in ("a", "b"):
            # made already, so that no test waits for a package index
            place = directory / host / "environments"
            place.mkdir(parents=True)
            (place / python.parents[1].name).symlink_to(python.parents[1])

    @property
    def environment(self) -> dict[str, str]:
        # Only the token's place: that a token is wanted follows from it.
        others = {name: value for name, value in super().environment.items() if not name.startswith("RAY_")}
        return {**others, "RAY_AUTH_TOKEN_PATH": str(self.cluster.token)}

    def inventory(self, address: str, **hosts: str) -> Path:
        """An inventory with these hosts, by name with further settings."""
        lines = [f"version: 1\nray_address: {address}\ndefaults: {{connection: ray}}\nhosts:"]
        for name, more in hosts.items():
            lines.append(f"  {name}: {{work_directory: {self.root / name}{more}}}")
        path = self.root / "hostinventory.yaml"
        path.write_text("\n".join(lines) + "\n")
        return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignCluster]:
    """Hosts a and b, and one without the resource."""
    with ForeignCluster(["a", "b"], tmp_path_factory.mktemp("cluster"), slotless=["slotless"]) as found:
        yield found


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
    workshop.inventory(workshop.cluster.address, **hosts)

    planned = workshop.taxmeter("sweep", "plan", workshop.write(MODELS), code=ExitCode.OK)
    assert "1 trials in one task on b, cpu" in planned.stdout
    assert not (workshop.root / "a" / "campaigns").exists()

    # real models; a busy machine takes some times the minute and a half of a quiet one
    done = workshop.taxmeter("sweep", "run", workshop.write(MODELS), code=ExitCode.OK, timeout_s=900)
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
    workshop.inventory(workshop.cluster.address, a=", executor: process", b="", nowhere="")
    checked = workshop.taxmeter("hosts", "check", "--format", "json", code=ExitCode.TRIALS_FAILED)
    hosts = {host["host"]: host for host in json.loads(checked.stdout)["hosts"]}
    assert {name: host["checks"]["ssh"]["shown"] for name, host in hosts.items()} == {
        "a": "ray",
        "b": "ray",
        "nowhere": "no",
    }
    assert hosts["a"]["checks"]["engine"]["shown"] == "not used"
    assert hosts["b"]["reading"]["host_name"] == os.uname().nodename
    assert hosts["nowhere"]["checks"]["ssh"]["problem"].startswith("no living node of the cluster has the label")
    compared = workshop.taxmeter("hosts", "diff", "a", "b", code=ExitCode.OK)
    assert "a: read on its node of Ray, by Python 3.11" in compared.stdout
    assert "the same hardware, and nothing else differs" in compared.stdout
    refused = workshop.taxmeter("hosts", "key", "a", code=ExitCode.USAGE)
    assert "with ray_address there is nothing to reach" in refused.stderr


def refusal(workshop: Workshop, code: ExitCode, **environment: str) -> str:
    """The one line that a sweep ends with."""
    done = workshop.taxmeter("sweep", "run", workshop.write(MODELS), code=code, **environment)
    [line] = done.stderr.splitlines()
    assert workshop.cluster.lives
    assert not workshop.results.exists()
    return line


def test_what_cannot_be_used_is_one_line(workshop: Workshop) -> None:
    address = workshop.cluster.address
    workshop.inventory("127.0.0.1:1", a="")
    expected = ":2: ray_address: no Ray cluster answers at 127.0.0.1:1 (Connection refused): start it, or correct the"
    assert expected in refusal(workshop, ExitCode.NO_USABLE_HOST)

    workshop.inventory(address, a="")
    expected = "does not take the token in RAY_AUTH_TOKEN: write that of the cluster into a file"
    assert expected in refusal(workshop, ExitCode.USAGE, RAY_AUTH_TOKEN="wrong")
    expected = "wants a token: write that of the cluster"
    assert expected in refusal(workshop, ExitCode.USAGE, RAY_AUTH_TOKEN_PATH="")

    workshop.inventory(address, nowhere="", slotless="")
    line = refusal(workshop, ExitCode.NO_USABLE_HOST)
    expected = "no living node of the cluster has the label taxmeter-host=nowhere (there is: a, b, slotless)"
    assert f"nowhere: {expected}" in line
    assert "has no resource bench_slot, by which one trial runs at a time; start Ray there with --resources=" in line

    wrong = {"a": ", executor: docker, engine: 'unix:///nonexistent.sock'", "b": ", expect: {gpu_count: 4}"}
    workshop.inventory(address, **wrong)
    line = refusal(workshop, ExitCode.NO_USABLE_HOST)
    assert "a: executor is docker, but no Docker engine answers at unix:///nonexistent.sock" in line
    assert "b: expected 4 GPUs, found " in line


def test_a_killed_driver_leaves_the_cluster_and_the_next_run_goes_on(workshop: Workshop, tmp_path: Path) -> None:
    workshop.inventory(workshop.cluster.address, a=", executor: process", b=", executor: process")
    log, command = tmp_path / "log", ("sweep", "run", workshop.write(SLEEPS))
    driver = workshop.start(log, *command)
    before = workshop.wait_for_rows(3, driver, log)
    driver.kill()
    driver.wait()

    workshop.taxmeter(*command, code=ExitCode.OK)
    rows = workshop.rows()
    assert Counter((row["host"], row["status"]) for row in rows) == {("a", "ok"): 6, ("b", "ok"): 6}
    assert len({row["campaign_id"] for row in rows}) == 1
    assert before <= {row["trial_id"] for row in rows}
    assert workshop.cluster.lives
    assert workshop.cluster.job_goes_on


def left_containers() -> list[str]:
    if engine_problem() is not None:
        return []
    with closing(connect()) as client:
        containers = client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    return [container.name for container in containers if container.labels[LABEL].startswith("models-")]
