"""A project of its own for tests of whole sweeps on the lab."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from orchestrator.campaign.control import ControlFiles, HostProgress
from orchestrator.environments import connect
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import LABEL
from orchestrator.hosts.cluster import Cluster
from orchestrator.hosts.cluster.lifecycle import load
from tests.lab.image import PROJECT
from tests.lab.lab import Lab
from tests.project import Project, models

HOSTS = ("h1", "h2", "h3")
MODELS = models("[eager, torchscript, python]")


class Workshop(Project):
    """A project from whose directory sweeps run on the lab."""

    def __init__(self, directory: Path, lab: Lab) -> None:
        super().__init__(directory)
        self.lab = lab
        self.edit: Callable[[str], str] = str
        """What its inventory is beside that of the lab."""

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

    def sweep(self, sweep: str, *options: str) -> tuple[str, ...]:
        """The command for a sweep on the lab."""
        return ("sweep", "run", self.write(sweep), "--inventory", str(self.inventory()), *options)

    def run(self, sweep: str, *options: str, code: int | None = ExitCode.OK) -> "subprocess.CompletedProcess[str]":
        return self.taxmeter(*self.sweep(sweep, *options), code=code)

    def up(self, *options: str) -> None:
        """Brings up a cluster that stays until `cluster down`."""
        self.taxmeter("cluster", "up", "--inventory", self.inventory(), *options, code=ExitCode.OK)

    def progress_of(self, host: str) -> HostProgress | None:
        """What the driver said last of a host."""
        state = ControlFiles(self.files.control).state()
        return None if state is None else next((found for found in state.hosts if found.name == host), None)

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

    def driver_process(self) -> int:
        """The process, on this machine, that drives the campaign in the container of the head."""
        with closing(connect()) as client:
            processes = client.containers.get(self.cluster().head_container).top(ps_args="-eo pid,args")["Processes"]
        [found] = [
            int(pid) for pid, arguments in processes if re.match(r"\S*python -m orchestrator sweep drive", arguments)
        ]
        return found

    def remove_head(self) -> None:
        """Kills the container in which the driver runs."""
        with closing(connect()) as client:
            client.containers.get(self.cluster().head_container).kill()
