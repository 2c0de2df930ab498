"""Runs tasks on a Ray cluster. Ray stays outside what is measured: it starts tasks and carries records back."""

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.scheduling.base import Event, SchedulingHost, TaskEnded, TaskRequest, run_on_host

HOST_LABEL = "taxmeter-host"
SLOT = "bench_slot"
"""One per host: a second benchmark on a host would disturb the first, whatever cores it uses."""

QUEUE_DEADLINE_S = 120.0
"""Ray waits forever for a node that does not come; we do not."""

STOP_DEADLINE_S = 30.0

DIRECTORY_PREFIX = "taxmeter-ray-"
"""Of the directory for Ray's own files; the process number follows."""

TEMPORARY = Path("/tmp")  # noqa: S108 - whatever TMPDIR says: the paths of sockets must be short

OBJECT_STORE_BYTES = 100_000_000


@dataclass
class _Running:
    request: TaskRequest
    submitted_at: float
    started: bool = False
    ended: TaskEnded | None = None


class RayScheduler:
    """A cluster of this machine alone, started for the job and gone with it."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[TaskRequest]] = {}
        self._running: dict[Any, _Running] = {}
        self._directory: Path | None = None
        self._ray: Any = None

    def start(self, hosts: Sequence[SchedulingHost]) -> None:
        """See `Scheduler.start`."""
        [host] = hosts
        remove_abandoned(TEMPORARY)
        self._directory = Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-", dir=TEMPORARY))
        os.environ.update(_settings(self._directory))
        import ray  # only now: Ray reads its settings when it is imported

        self._ray = ray
        on_terminate = signal.getsignal(signal.SIGTERM)
        if host.agent_cores:
            # What Ray starts inherits it; executors give the trials their own cores.
            os.sched_setaffinity(0, host.agent_cores)
        try:
            ray.init(
                address="local",
                num_cpus=0,
                num_gpus=0,
                resources={SLOT: 1},
                labels=_labels(host),
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="error",
                _temp_dir=str(self._directory),
            )
        except Exception as error:
            self.stop()
            raise InfrastructureError(f"the Ray cluster cannot be started: {error}") from error
        # Ray installs a handler of its own that aborts the process before anything can be cleaned up.
        signal.signal(signal.SIGTERM, on_terminate)
        refuse_unmatched(hosts, ray.nodes())

    def submit(self, request: TaskRequest) -> None:
        """See `Scheduler.submit`."""
        self._queues.setdefault(request.host, deque()).append(request)

    def events(self) -> Iterator[Event]:
        """See `Scheduler.events`."""
        while self._launch_ready() or self._running:
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0, fetch_local=False)
            for stream in ready:
                yield from self._next_event(stream)
            yield from self._overdue()

    def stop(self) -> None:
        """See `Scheduler.stop`."""
        self._queues.clear()
        if self._ray is not None:
            self._cancel_running()
            self._ray.shutdown()
            self._ray = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _launch_ready(self) -> bool:
        busy = {running.request.host for running in self._running.values()}
        for host, queue in self._queues.items():
            if queue and host not in busy:
                request = queue.popleft()
                self._running[self._launch(request)] = _Running(request, time.monotonic())
        return bool(self._running)

    def _launch(self, request: TaskRequest) -> Any:
        remote = self._ray.remote(num_cpus=0, resources={SLOT: 1}, max_retries=0)(run_on_host)
        options = {
            "num_returns": "streaming",
            "label_selector": {HOST_LABEL: request.host},
            "name": request.task.task_id,
        }
        return remote.options(**options).remote(request)

    def _next_event(self, stream: Any) -> Iterator[Event]:
        running = self._running[stream]
        try:
            event = self._ray.get(next(stream))
        except StopIteration:
            del self._running[stream]
            yield running.ended or _failed(running.request, "the task ended without a word")
            return
        except self._ray.exceptions.RayError as error:
            del self._running[stream]
            yield _failed(running.request, f"Ray lost the task: {' '.join(str(error).split())[:500]}")
            return
        running.started = True
        if isinstance(event, TaskEnded):
            # Told only once the stream is over, because the slot is free only then.
            running.ended = event
        else:
            yield event

    def _overdue(self) -> Iterator[Event]:
        for stream, running in list(self._running.items()):
            if not running.started and time.monotonic() - running.submitted_at > QUEUE_DEADLINE_S:
                self._ray.cancel(stream)
                del self._running[stream]
                yield _failed(running.request, f"Ray did not start the task within {QUEUE_DEADLINE_S:.0f} s")

    def _cancel_running(self) -> None:
        for stream in self._running:
            self._ray.cancel(stream)
        deadline = time.monotonic() + STOP_DEADLINE_S
        # A cancelled task removes its container before its stream ends: wait for that, then take Ray away.
        while self._running and time.monotonic() < deadline:
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0, fetch_local=False)
            for stream in ready:
                try:
                    self._ray.get(next(stream))
                except (StopIteration, self._ray.exceptions.RayError):
                    del self._running[stream]
        self._running.clear()


def refuse_unmatched(hosts: Sequence[SchedulingHost], nodes: Sequence[Mapping[str, Any]]) -> None:
    """Checks that each host has a living node with its labels and a slot. Ray itself would wait forever, silently.

    Args:
        hosts: the hosts that tasks will name.
        nodes: what `ray.nodes()` says.

    Raises:
        NoUsableHostError: names each host without a node, and what the nodes are.
    """
    living = [node for node in nodes if node["Alive"]]
    missing = [host.name for host in hosts if not any(_serves(node, host) for node in living)]
    if missing:
        known = "; ".join(
            f"{node['NodeManagerHostname']}: labels {node['Labels']}, slots {node['Resources'].get(SLOT, 0):.0f}"
            for node in living
        )
        raise NoUsableHostError(
            f"no node of the Ray cluster serves {', '.join(missing)} (needs label {HOST_LABEL} and a {SLOT}); "
            f"living nodes: {known or 'none'}"
        )


def remove_abandoned(parent: Path) -> None:
    """Removes the Ray directories of our runs whose process is gone, as a killed one leaves them."""
    for directory in parent.glob(f"{DIRECTORY_PREFIX}*"):
        process = directory.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0]
        ours = directory.stat().st_uid == os.geteuid()
        if ours and process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(directory, ignore_errors=True)


def _serves(node: Mapping[str, Any], host: SchedulingHost) -> bool:
    return bool(_labels(host).items() <= node["Labels"].items() and node["Resources"].get(SLOT, 0) >= 1)


def _labels(host: SchedulingHost) -> dict[str, str]:
    return {**host.labels, HOST_LABEL: host.name}


def _failed(request: TaskRequest, problem: str) -> TaskEnded:
    return TaskEnded(request.host, request.task, None, problem)


def _settings(directory: Path) -> dict[str, str]:
    """Ray's own environment. Tokens stand in a file, so that no process list shows them."""
    token = directory / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray would run its workers, and what they start, at nice 15.
        "RAY_worker_niceness": "0",
        "RAY_enable_metrics_collection": "false",
        "RAY_event_stats": "0",
        # It would kill the worker, and with it the task, where only the trial is to die of its own limit.
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
