"""Runs a task in a process of a virtual environment: for machines without a Docker engine."""

import os
import signal
import subprocess
import time
from pathlib import Path
from threading import Event

from orchestrator.errors import InfrastructureError
from orchestrator.execution.base import (
    POLL_INTERVAL_S,
    ProcessSettings,
    TaskOutcome,
    gpu_environment,
    log_tail,
    time_limit_s,
)
from orchestrator.planning import is_of_gpu
from runners.contract import Task, TaskFiles

MARK = "TAXMETER_TASK_DIRECTORY"
"""In the environment of every process of a task: it tells them from all others."""

GRACE_S = 10.0
"""Between closing the lifeline, or asking the supervisor to end, and killing it."""


class ProcessExecutor:
    """The `process` isolation."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings

    def run(self, task: Task, directory: Path, stop: Event) -> TaskOutcome:
        """See `Executor.run`."""
        scratch = directory / "tmp"
        scratch.mkdir(exist_ok=True)
        self._settings.cache.mkdir(parents=True, exist_ok=True)
        limit_s = time_limit_s(task)
        process = self._start(task, directory, scratch, limit_s)
        deadline = time.monotonic() + limit_s + 30
        ended_because = None
        try:
            while process.poll() is None and not stop.wait(POLL_INTERVAL_S):
                if time.monotonic() > deadline:
                    ended_because = f"the task outlived its own limit of {limit_s} s"
                    break
        finally:
            _end(process)
            _kill_marked(directory)
        exit_code = None if ended_because else process.returncode
        return TaskOutcome(exit_code, None, ended_because, log_tail(directory))

    def _start(self, task: Task, directory: Path, scratch: Path, limit_s: int) -> "subprocess.Popen[bytes]":
        files = TaskFiles(str(directory))
        python = self._settings.python
        cores = ",".join(map(str, self._settings.cores))
        try:
            with open(files.log, "ab") as log:
                return subprocess.Popen(
                    ["taskset", "--cpu-list", cores, str(python), "-m", "runners", str(directory)],
                    cwd=files.code,
                    env=environment(self._settings, task, scratch, limit_s),
                    # The lifeline: it closes when this process dies, however it dies.
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise InfrastructureError(f"{python} cannot be started: {error}") from error


def environment(settings: ProcessSettings, task: Task, scratch: Path, limit_s: int) -> dict[str, str]:
    """All of the runner's environment. Nothing is inherited: Ray sets OMP_NUM_THREADS=1 for its workers."""
    is_given = settings.gpu_uuid is not None and is_of_gpu(task)
    visible = {"CUDA_VISIBLE_DEVICES": str(settings.gpu_uuid)} if is_given else {}
    return {
        **gpu_environment(task),
        **visible,
        "PATH": f"{settings.python.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TAXMETER_CACHE": str(settings.cache),
        "TAXMETER_MEMORY_BYTES": str(settings.memory_bytes),
        "TAXMETER_LIFELINE": "stdin",
        MARK: str(scratch.parent),
        "TAXMETER_TIME_LIMIT_S": str(limit_s),
    }


def _end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        # The supervisor does not look at its lifeline while it imports; its trials die with it in any case.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _kill_marked(directory: Path) -> None:
    """Kills what a dead supervisor left: processes that its trials had started outlive their parents."""
    mark = f"{MARK}={directory}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # gone meanwhile, or not ours
