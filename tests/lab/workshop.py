"""A project of its own for tests of whole sweeps on the lab, and the sweeps that it runs."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.dataset as ds

from orchestrator.campaign import ProjectFiles
from orchestrator.campaign.control import CampaignProgressState, ControlFiles, HostProgress
from orchestrator.environments import connect
from orchestrator.execution.docker import LABEL
from orchestrator.hosts.cluster import Cluster, load
from orchestrator.store import Store
from tests.lab.clusters import free_ports
from tests.lab.image import PROJECT
from tests.lab.lab import Lab

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
"""Two trials of a second in each of two rounds, on every host."""


class Workshop:
    """A project of its own, from whose directory sweeps run on the lab."""

    def __init__(self, directory: Path, lab: Lab) -> None:
        self.files = ProjectFiles(directory)
        self.lab = lab
        self.results = directory / "results"
        self.edit: Callable[[str], str] = str
        """What its inventory is beside that of the lab."""
        # other ports than those of a cluster that somebody may have up on this machine
        self.environment = {**os.environ, "TAXMETER_FIRST_PORT": str(free_ports()), "PYTHONPATH": str(PROJECT)}

    @classmethod
    def make(cls, directory: Path, lab: Lab) -> "Workshop":
        """With what a sweep needs of a project: the catalogue, with what is recorded as built, the agents' recipe."""
        for name in ("docker", "requirements"):
            shutil.copytree(PROJECT / name, directory / name, ignore=shutil.ignore_patterns("*.whl"))
        return cls(directory, lab)

    def forget_results(self) -> None:
        """A project as if nothing had been measured."""
        shutil.rmtree(self.results, ignore_errors=True)
        shutil.rmtree(self.files.campaigns, ignore_errors=True)

    def inventory(self) -> Path:
        """That of the lab as it is now, edited."""
        path = self.files.root / "hosts.yaml"
        path.write_text(self.edit(self.lab.inventory().read_text(encoding="utf-8")), encoding="utf-8")
        return path

    def command(self, sweep: str, *options: str) -> list[str]:
        path = self.files.root / "sweep.yaml"
        path.write_text(sweep)
        places = ["--inventory", str(self.inventory()), "--results", str(self.results)]
        return ["sweep", "run", str(path), *places, *options]

    def taxmeter(self, *arguments: str, timeout_s: float = 240) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "orchestrator", *arguments],
            cwd=self.files.root,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=self.environment,
        )

    def run(self, sweep: str, *options: str) -> "subprocess.CompletedProcess[str]":
        return self.taxmeter(*self.command(sweep, *options))

    def start(self, sweep: str, log: Path, *options: str) -> "subprocess.Popen[bytes]":
        with log.open("wb") as stream:
            return subprocess.Popen(
                [sys.executable, "-m", "orchestrator", *self.command(sweep, *options)],
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

    def stored(self) -> set[str]:
        """Ids of the trials that have a row by now, also while a sweep runs."""
        if not (self.results / "STORE.json").exists():
            return set()
        return set(Store.open(self.results).trials(["trial_id"])["trial_id"].to_pylist())

    def wait_for_rows(self, at_least: int, driver: "subprocess.Popen[bytes]", log: Path) -> set[str]:
        self.wait_for(lambda: len(self.stored()) >= at_least, driver, log)
        return self.stored()

    def wait_for(
        self, condition: Callable[[], bool], driver: "subprocess.Popen[bytes]", log: Path, timeout_s: float = 120
    ) -> None:
        """Returns when it holds; the sweep must run until then."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def progress(self) -> CampaignProgressState | None:
        """What the driver said last."""
        return ControlFiles(self.files.control).state()

    def progress_of(self, host: str) -> HostProgress | None:
        state = self.progress()
        return None if state is None else next((one for one in state.hosts if one.name == host), None)

    def cluster(self) -> Cluster:
        found = load(self.files)
        assert found is not None
        return found

    def trial_containers(self) -> list[str]:
        """Containers of trials on any of the hosts that run."""
        found = []
        for host in self.lab.hosts():
            host.container.reload()
            if host.container.status == "running":
                with host.engine() as engine:
                    found += [
                        str(one.name)
                        for one in engine.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
                    ]
        return found

    def left_containers(self, within_s: float = 30) -> list[str]:
        """Those that are still there after some time."""
        deadline = time.monotonic() + within_s
        while (left := self.trial_containers()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left

    def remove_head(self) -> None:
        """Kills the container in which the driver runs."""
        with closing(connect()) as client:
            client.containers.get(self.cluster().head_container).kill()
