"""Clusters of Ray on this machine, whose nodes are processes with an address of their own: to kill, or of somebody else."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.hosts.cluster import HOST_LABEL, SLOT

UP_S = 120.0
"""For a node to be up; alone on a machine it takes 5 s."""


class RayNodes:
    """A head, and a node for each host; use it as a context manager."""

    def __init__(self, hosts: Sequence[str], directory: Path, slotless: Sequence[str] = ()) -> None:
        """Starts nothing yet; nodes of `slotless` hosts take no tasks of ours."""
        self.token = directory / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))
        self.address = f"127.0.0.1:{_free_port()}"
        self._directory = directory
        self._hosts = [*hosts, *slotless]
        self._slotless = slotless
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        # A short name: the paths of sockets have a limit.
        options = ["--head", f"--port={self.address.partition(':')[2]}", f"--temp-dir={self._temporary}"]
        options += ["--labels=owner=somebody", "--num-cpus=0", "--include-dashboard=false"]
        self._start("head", options, "127.0.0.1")
        self.wait("head")
        for host in self._hosts:
            self.start(host)
        for host in self._hosts:
            self.wait(host)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._processes):
            self.kill(name)
        subprocess.run(["rm", "-rf", str(self._temporary)], check=True)

    def start(self, host: str) -> None:
        """Starts the node of a host; one that was killed gets a new one."""
        number = self._hosts.index(host) + 2
        options = [f"--address={self.address}", "--num-cpus=1", f"--labels={HOST_LABEL}={host}"]
        resources = {} if host in self._slotless else {SLOT: 1}
        self._start(host, [*options, f"--resources={json.dumps(resources)}"], f"127.0.0.{number}")

    def kill(self, name: str) -> None:
        """Kills a node and all that it has started, frozen or not."""
        self.signal(name, signal.SIGKILL)
        self._processes.pop(name).wait()

    def signal(self, name: str, number: int) -> None:
        """Sends a signal to every process of a node."""
        for pid in _session(self._processes[name].pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def log(self, name: str) -> str:
        """What a node printed."""
        return (self._directory / f"{name}.log").read_text()

    @property
    def lives(self) -> bool:
        """Whether every part of it that was started still runs."""
        return all(process.poll() is None for process in self._processes.values())

    @property
    def _environment(self) -> dict[str, str]:
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("RAY_")},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_worker_niceness": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    @property
    def _temporary(self) -> Path:
        return Path("/tmp") / f"tmr-{os.getpid()}"

    def _start(self, name: str, options: list[str], address: str) -> None:
        ray = Path(sys.executable).with_name("ray")
        command = [str(ray), "start", "--block", f"--node-ip-address={address}", "--object-store-memory=100000000"]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*command, "--disable-usage-stats", *options],
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, name: str) -> None:
        """Waits until a node is up. On a busy machine one may take longer than Ray itself waits: then it gets another."""
        deadline = time.monotonic() + UP_S
        while "Ray runtime started" not in self.log(name):
            assert time.monotonic() < deadline, self.log(name)
            if name != "head" and self._processes[name].poll() is not None:
                self.start(name)
            time.sleep(0.1)


JOB = """
import sys, time
import ray

@ray.remote(num_cpus=0)
def count(path):
    number = 0
    while True:
        number += 1
        with open(path, "w") as file:
            file.write(str(number))
        time.sleep(0.2)

ray.init(sys.argv[1], log_to_driver=False, logging_level="error")
ray.get(count.options(label_selector={"owner": "somebody"}).remote(sys.argv[2]))
"""


class ForeignCluster(RayNodes):
    """One that is none of ours, with somebody else's job on it."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._counter = self._directory / "counter"
        command = [sys.executable, "-c", JOB, self.address, str(self._counter)]
        self._processes["job"] = subprocess.Popen(command, env=self._environment, start_new_session=True)
        deadline = time.monotonic() + UP_S
        while not self._counter.exists():
            assert self.lives
            assert time.monotonic() < deadline, "somebody else's job does not start"
            time.sleep(0.1)
        return self

    @property
    def job_goes_on(self) -> bool:
        """Whether the job still runs and gets on."""
        before = self._counter.read_text()
        time.sleep(1.5)
        return self._processes["job"].poll() is None and self._counter.read_text() != before


def _free_port() -> int:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port: int = reserved.getsockname()[1]
        return port


def _session(leader: int) -> list[int]:
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader:
            found.append(int(directory.name))
    return found
