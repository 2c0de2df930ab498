"""A project of its own, in whose directory the commands run that a test is about, and the sweeps that it runs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from orchestrator.files import ProjectFiles
from orchestrator.store import Store
from tests.conftest import PROJECT

TAXMETER = (sys.executable, "-m", "orchestrator")


def sweep_text(name: str, workload: str, backends: str, rounds: int = 1, turn_ms: int = 50) -> str:
    """A sweep with short budgets."""
    return f"""
version: 1
name: {name}
environments: [cpu]
workloads: [{workload}]
backends: {backends}
threads: [1]
rounds: {rounds}
protocol:
  {{warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, turn_ms: {turn_ms}, cycles: 1, min_cycles: 1,
   floor_budget_ms: 0}}
"""


def models(backends: str) -> str:
    """A trial of a real model for each backend, once, on every host."""
    return sweep_text("models", "{name: tiny-bert, batch: 1}", backends)


def sleeps(rounds: int, turn_ms: int = 1000, batches: str = "[1, 2]") -> str:
    """Trials of a second each: two in each round, on every host."""
    return sweep_text("sleeps", f"{{name: synthetic-sleep, batch: {batches}}}", "[python]", rounds, turn_ms)


class Project:
    """A directory with a store in `results`; its commands run as processes of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = ProjectFiles(root)
        self.results = root / "results"
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """Of its commands."""
        return {**os.environ, "PYTHONPATH": str(PROJECT)}

    @classmethod
    def here(cls, directory: Path) -> "Project":
        """One whose only host is this machine, with the environments of this project."""
        (directory / ".taxmeter").mkdir(parents=True)
        (directory / ".taxmeter" / "environments").symlink_to(PROJECT / ".taxmeter" / "environments")
        (directory / "docker").symlink_to(PROJECT / "docker")
        (directory / "hostinventory.yaml").write_text("version: 1\nhosts: {bench: {connection: local}}\n")
        return cls(directory)

    def write(self, sweep: str) -> str:
        """The path of a file with this sweep."""
        path = self.root / "sweep.yaml"
        path.write_text(sweep)
        return str(path)

    def taxmeter(
        self, *arguments: object, code: int | None = None, timeout_s: float = 240, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a command to its end; where a code is given it must end with that."""
        command, variables = [*TAXMETER, *map(str, arguments)], {**self.environment, **environment}
        done = subprocess.run(
            command, cwd=self.root, env=variables, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    def start(self, log: Path, *arguments: object) -> "subprocess.Popen[bytes]":
        """Starts a command in a session of its own."""
        with log.open("wb") as stream:
            started = subprocess.Popen(
                [*TAXMETER, *map(str, arguments)], cwd=self.root, env=self.environment, stdout=stream, stderr=stream,
                # A shell starts what runs in its background deaf to Ctrl-C, and children inherit that
                start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        self._started.append(started)
        return started

    def end(self) -> None:
        """Nothing that a failed test started runs on."""
        for started in self._started:
            if started.poll() is None:
                started.terminate()
                started.wait(60)

    def rows(self) -> list[dict[str, Any]]:
        """All that is stored, as any reader of Parquet finds it."""
        rows: list[dict[str, Any]] = ds.dataset(self.results / "trials", partitioning="hive").to_table().to_pylist()
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
        """Returns when it holds; the command must run until then."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
