"""A Ray cluster on this machine that is none of ours, with somebody else's job on it."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RAY = Path(sys.executable).with_name("ray")

_BLOCKS = "This command will now block forever"

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


@dataclass(frozen=True)
class Node:
    """How a node is started."""

    labels: Mapping[str, str]
    resources: str = '{"bench_slot": 1}'


class ForeignCluster:
    """A head and nodes, each with an address of its own, and a token."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        # short, because of the paths of sockets
        self.directory = Path(tempfile.mkdtemp(prefix="tmf-", dir="/tmp"))
        self.token = self.directory / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))
        self.environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}
        self._net = f"127.77.{os.getpid() % 250}"
        self.address = f"{self._net}.1:{_free_port(f'{self._net}.1')}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        self._job: subprocess.Popen[bytes] | None = None
        port = self.address.rpartition(":")[2]
        head = ["--head", f"--port={port}", f"--temp-dir={self.directory / 'ray'}", "--labels=owner=somebody"]
        self._start(1, [*head, "--include-dashboard=false"])
        self._wait_for_head()
        for number, node in enumerate(nodes, start=2):
            labels = ",".join(f"{key}={value}" for key, value in node.labels.items())
            self._start(number, [f"--address={self.address}", f"--labels={labels}", f"--resources={node.resources}"])
            # one after the other: nodes that start at the same time on one machine take each other's ports
            self._wait(lambda: _BLOCKS in self._logs[-1].read_text(), "a node")
        self._counter = self.directory / "counter"
        self._job = subprocess.Popen(
            [sys.executable, "-c", JOB, self.address, str(self._counter)], env=self.environment, start_new_session=True
        )
        self._wait(self._counter.exists, "the job of somebody else")

    @property
    def job_goes_on(self) -> bool:
        """Whether the job still runs and gets on."""
        before = self._counter.read_text()
        time.sleep(1.5)
        return self._job is not None and self._job.poll() is None and self._counter.read_text() != before

    @property
    def lives(self) -> bool:
        """Whether every part of it that was started still runs."""
        return all(process.poll() is None for process in self._processes)

    def stop(self) -> None:
        """Ends it, and whatever is left of it."""
        if self._job is not None:
            self._job.kill()
            self._job.wait()
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self._left():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, number: int, options: Sequence[str]) -> None:
        command = [
            *(str(RAY), "start", "--block", f"--node-ip-address={self._net}.{number}", "--num-cpus=0"),
            *("--disable-usage-stats", "--object-store-memory=100000000", *options),
        ]
        self._logs.append(self.directory / f"node-{number}.log")
        with self._logs[-1].open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
            )

    def _wait_for_head(self) -> None:
        host, _, port = self.address.rpartition(":")

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) == 0

        self._wait(listens, "the head")

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 90
        while not ready():
            if time.monotonic() > deadline or not self.lives:
                said = "\n".join(log.read_text() for log in self._logs)
                self.stop()
                raise RuntimeError(f"{what} does not start:\n{said}")
            time.sleep(0.1)

    def _left(self) -> list[int]:
        """Processes that name the cluster's directory or token."""
        mark = str(self.directory).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
                except (FileNotFoundError, ProcessLookupError, PermissionError):
                    continue
        return found


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        port: int = server.getsockname()[1]
        return port
