"""Whole sweeps on three lab hosts at once: through SSH, agents and containers, into one store on this machine."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from docker.errors import NotFound

from orchestrator.campaign import ProjectFiles
from orchestrator.cluster import load
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import LABEL
from orchestrator.images import BuiltImage, connect
from orchestrator.store import Store
from tests.lab.clusters import free_ports
from tests.lab.host import LabHost
from tests.lab.image import PROJECT
from tests.lab.lab import Lab

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]

HOSTS = ("h1", "h2", "h3")
QUICK = """
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, sync_budget_ms: 50, sync_min_samples: 3,
   pipelined_budget_ms: 50, pipelined_min_samples: 2, pipelined_block_ms: 10, floor_budget_ms: 0}
"""
MODELS = (
    """
version: 1
name: models
environments: [cpu]
workloads: [{name: tiny-bert, batch: 1}]
backends: [eager, torchscript, python]
threads: [1]
rounds: 1
"""
    + QUICK
)
SLEEPS = (
    """
version: 1
name: sleeps
environments: [cpu]
workloads: [{name: synthetic-sleep, batch: [1, 2]}]
backends: [python]
threads: [1]
rounds: 2
"""
    + QUICK
).replace("sync_budget_ms: 50", "precision_permille: 0, sync_budget_ms: 1000")


class Workshop:
    """A project of its own, from whose directory sweeps run on the lab."""

    def __init__(self, directory: Path, lab: Lab) -> None:
        self.files = ProjectFiles(directory)
        self.lab = lab
        self.results = directory / "results"
        # other ports than those of a cluster that somebody may have up on this machine
        self.environment = {**os.environ, "TAXMETER_FIRST_PORT": str(free_ports()), "PYTHONPATH": str(PROJECT)}

    def command(self, sweep: str) -> list[str]:
        path = self.files.root / "sweep.yaml"
        path.write_text(sweep)
        return ["sweep", "run", str(path), "--inventory", str(self.lab.inventory()), "--results", str(self.results)]

    def taxmeter(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "orchestrator", *arguments],
            cwd=self.files.root,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env=self.environment,
        )

    def run(self, sweep: str) -> "subprocess.CompletedProcess[str]":
        return self.taxmeter(*self.command(sweep))

    def start(self, sweep: str, log: Path) -> "subprocess.Popen[bytes]":
        with log.open("wb") as stream:
            return subprocess.Popen(
                [sys.executable, "-m", "orchestrator", *self.command(sweep)],
                cwd=self.files.root,
                stdout=stream,
                stderr=stream,
                env=self.environment,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def rows(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = ds.dataset(self.results / "trials", partitioning="hive").to_table().to_pylist()
        return rows

    def wait_for_rows(self, at_least: int, driver: "subprocess.Popen[bytes]", log: Path) -> set[str]:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert driver.poll() is None, log.read_text()
            if (self.results / "STORE.json").exists():
                seen = set(Store.open(self.results).trials(["trial_id"])["trial_id"].to_pylist())
                if len(seen) >= at_least:
                    return seen
            time.sleep(0.1)
        raise AssertionError(log.read_text())

    def trial_containers(self) -> list[str]:
        """Containers of trials on any of the hosts that run."""
        found = []
        for host in self.lab.hosts():
            host.container.reload()
            if host.container.status == "running":
                with host.engine() as engine:
                    found += [str(one.name) for one in engine.containers.list(all=True, filters={"label": LABEL})]
        return found


@pytest.fixture(scope="module")
def project(seeded_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """What a sweep needs of a project: the catalogue, with what is recorded as built, and the agents' recipe."""
    directory = tmp_path_factory.mktemp("project")
    for name in ("docker", "requirements"):
        shutil.copytree(PROJECT / name, directory / name, ignore=shutil.ignore_patterns("*.whl"))
    found = Workshop(directory, seeded_lab)
    yield found
    found.taxmeter("cluster", "down")


@pytest.fixture
def workshop(project: Workshop, lab: Lab) -> Iterator[Workshop]:
    """A project without results, and three hosts that are ready."""
    yield project
    shutil.rmtree(project.results, ignore_errors=True)
    shutil.rmtree(project.files.campaigns, ignore_errors=True)


@pytest.fixture
def with_cluster(workshop: Workshop) -> Workshop:
    """The same with a cluster that was up before, and that sweeps therefore leave as it is."""
    done = workshop.taxmeter("cluster", "up", "--inventory", str(workshop.lab.inventory()))
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    return workshop


def test_a_sweep_of_real_models_on_three_hosts(workshop: Workshop, cpu_image: BuiltImage) -> None:
    workshop.taxmeter("cluster", "down")
    done = workshop.run(MODELS)
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    rows = workshop.rows()
    assert Counter((row["host"], row["status"]) for row in rows) == Counter(
        {(host, status): count for host in HOSTS for status, count in (("ok", 2), ("skipped", 1))}
    )
    ran = [row for row in rows if row["status"] == "ok"]
    assert {row["isolation"] for row in rows} == {"docker"}
    assert {row["image_id"] for row in ran} == {cpu_image.image_id}
    assert len({row["environment_id"] for row in ran}) == 1
    assert {host.hardware.cpu_model for host in workshop.lab.hosts()} == {row["cpu_model"] for row in ran}
    # what never ran on a host refers to the same system as what did
    assert len({(row["host"], row["system_id"]) for row in rows}) == 3
    assert len(Store.open(workshop.results).systems()) == 3
    assert all(row["verified"] and row["latency_sync_median_s"] for row in ran)

    assert "h2, environment cpu: in containers" in done.stdout
    assert load(workshop.files) is None
    for host in workshop.lab.hosts():
        with host.engine() as engine:
            assert engine.containers.list(all=True) == []
        assert host.run("ls", "/var/lib/taxmeter/campaigns").stdout == ""


@pytest.mark.long
def test_a_host_that_is_down_from_the_start_is_left_out_and_named(with_cluster: Workshop) -> None:
    workshop = with_cluster
    with ExitStack() as mend:
        dead = workshop.lab.host("h3")
        mend.callback(dead.start)
        dead.kill()
        done = workshop.run(MODELS)
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert Counter(row["host"] for row in workshop.rows() if row["status"] == "ok") == {"h1": 2, "h2": 2}
    last = done.stdout.splitlines()[-1]
    assert last.startswith("not measured: h3: "), done.stdout
    [campaign] = Store.open(workshop.results).campaigns().to_pylist()
    assert "h3: " in campaign["plan"]
    assert load(workshop.files) is not None


@pytest.mark.long
@pytest.mark.parametrize("ending", ["driver killed", "interrupted"])
def test_an_ended_sweep_leaves_nothing_and_goes_on(
    with_cluster: Workshop, cpu_image: BuiltImage, ending: str, tmp_path: Path
) -> None:
    workshop, log = with_cluster, tmp_path / "log"
    driver = workshop.start(SLEEPS, log)
    before = workshop.wait_for_rows(3, driver, log)
    if ending == "driver killed":
        os.kill(driver_in_head(workshop), signal.SIGKILL)
    else:
        os.killpg(driver.pid, signal.SIGINT)
    assert driver.wait(90) == (137 if ending == "driver killed" else ExitCode.INTERRUPTED), log.read_text()
    assert wait_until_gone(workshop) == []

    [campaign] = Store.open(workshop.results).campaigns()["campaign_id"].to_pylist()
    with left_over(workshop.lab.host("h2"), cpu_image, campaign, "another") as (ours, other):
        again = workshop.run(SLEEPS)
        assert again.returncode == ExitCode.OK, again.stdout + again.stderr
        assert f"h2: removed container {ours}, left by a run that was killed" in again.stdout
        assert workshop.trial_containers() == [other]
    found = re.search(r"(\d+) are in the store already", again.stdout)
    assert found is not None, again.stdout
    assert int(found[1]) >= len(before)
    rows = workshop.rows()
    assert Counter((row["host"], row["status"]) for row in rows) == {(host, "ok"): 4 for host in HOSTS}
    assert len({row["trial_id"] for row in rows}) == 12
    assert len({row["campaign_id"] for row in rows}) == 1
    assert before <= {row["trial_id"] for row in rows}


@contextmanager
def left_over(host: LabHost, image: BuiltImage, *campaigns: str) -> Iterator[list[str]]:
    """Containers on a host as trials of campaigns, whose names are yielded."""
    with host.engine() as engine:
        containers = [
            engine.containers.run(
                image.reference, ["sleep", "600"], labels={LABEL: one}, network_mode="none", init=True, detach=True
            )
            for one in campaigns
        ]
        try:
            yield [str(one.name) for one in containers]
        finally:
            for one in containers:
                with suppress(NotFound):
                    one.remove(force=True)


def driver_in_head(workshop: Workshop) -> int:
    """The process, on this machine, that drives the campaign in the container of the head."""
    cluster = load(workshop.files)
    assert cluster is not None
    with closing(connect()) as client:
        processes = client.containers.get(cluster.head_container).top(ps_args="-eo pid,args")["Processes"]
    [found] = [
        int(pid) for pid, arguments in processes if re.match(r"\S*python -m orchestrator sweep drive", arguments)
    ]
    return found


def wait_until_gone(workshop: Workshop) -> list[str]:
    deadline = time.monotonic() + 30
    while (left := workshop.trial_containers()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left
