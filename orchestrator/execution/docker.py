"""Runs a task in a hardened container of a Docker engine, or of Podman's compatible socket."""

import os
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.types import DeviceRequest, Ulimit

from orchestrator.environments import (
    ENGINE_EXCEPTIONS,
    attributes_of,
    connect,
    differences,
    engine_address,
    engine_errors,
    identity_of,
    remove_container,
)
from orchestrator.errors import InfrastructureError
from orchestrator.execution.base import DockerSettings, TaskOutcome, log_tail, make_private, time_limit_s
from orchestrator.execution.runner_process import POLL_INTERVAL_S
from orchestrator.planning import is_of_gpu
from runners.contract import Task

LABEL = "org.taxmeter.campaign"
"""Every container of ours carries it; nothing without it is ever touched."""

TASK_LABEL = "org.taxmeter.task"

TASK = "/task"
CACHE = "/cache"
UNPRIVILEGED = 65532
SHARED_MEMORY_BYTES = 1 << 30
MAX_PROCESSES = 4096

LAST_RESORT_S = 15
"""After the supervisor's own time limit, and before ours, the container kills a supervisor that did not keep it."""

_OURS_S = 30

_REFUSED = "the engine refused"


class DockerExecutor:
    """The `docker` isolation."""

    def __init__(self, settings: DockerSettings) -> None:
        self._settings = settings

    def run(self, task: Task, directory: Path, stop: threading.Event) -> TaskOutcome:
        settings = self._settings
        make_private(settings.cache, *(() if os.geteuid() else (UNPRIVILEGED,)))
        user = _user_for(directory, settings.cache)
        limit_s = time_limit_s(task)
        ended_because = None
        started_at = int(time.time())
        with engine_errors(_REFUSED), closing(connect(settings.engine)) as client:
            insist_on_image(client, settings)
            configuration = _configuration(settings, task, directory, user, limit_s)
            with _container(client, configuration) as exit_of:
                deadline = exit_of.begun_s + limit_s + _OURS_S
                while not exit_of.ended.wait(POLL_INTERVAL_S):
                    if stop.is_set():
                        ended_because = "the task was ended from outside"
                        break
                    if time.monotonic() > deadline:
                        ended_because = f"the container outlived its own limit of {limit_s} s"
                        break
            exit_code = None if ended_because else exit_of.code()
            if exit_code and time.monotonic() - exit_of.begun_s >= limit_s:
                ended_because = f"the container reached its time limit of {limit_s} s"
            oom_at_ns = _last_oom_ns(client, exit_of.container_id, started_at)
        return TaskOutcome(exit_code, oom_at_ns, ended_because, log_tail(directory))


def insist_on_image(client: DockerClient, settings: DockerSettings) -> None:
    """Refuses to run in anything but the pinned image; an engine that lacks it must not fetch another by itself.

    Raises:
        InfrastructureError: the engine lacks it, or has something else under its id.
    """
    found = attributes_of(client, settings.image_id)
    place = engine_address(settings.engine)
    if found is None:
        raise InfrastructureError(
            f"the engine at {place} no longer has the image {settings.image_id} that this campaign runs in; "
            "bring it back with `taxmeter images pull`, `load` or `copy`"
        )
    wrong = differences(settings.expected, identity_of(found)) if settings.expected is not None else ()
    if wrong:
        raise InfrastructureError(
            f"the image {settings.image_id} on the engine at {place} is not the one that this campaign is pinned to: "
            f"{'; '.join(wrong)}"
        )


def remove_containers(engine: str | None, campaign_id: str | None = None, but_of: Collection[str] = ()) -> list[str]:
    """Removes containers that an earlier run left, of one campaign or of all that are ours. Returns their names.

    Args:
        engine: its address.
        campaign_id: whose containers; by default of all campaigns.
        but_of: ids of tasks whose containers stay.

    Raises:
        InfrastructureError: the engine does not answer.
    """
    label = LABEL if campaign_id is None else f"{LABEL}={campaign_id}"
    with engine_errors(_REFUSED), closing(connect(engine)) as client:
        found = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        left = [container for container in found if container.labels.get(TASK_LABEL) not in but_of]
        for container in left:
            remove_container(container)
        return [str(container.name) for container in left]


class _Exit:
    """Waits in a thread of its own for a container to be gone: the engine is asked once, not polled."""

    def __init__(self, container: Any) -> None:
        self.container_id: str = container.id
        self.begun_s = time.monotonic()
        """Before the container is started: a busy engine says only much later that it did."""
        self.ended = threading.Event()
        self._answer: Mapping[str, Any] | None = None
        self._error: Exception | None = None
        self._container = container
        self._thread = threading.Thread(target=self._wait, name="container-exit", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        try:
            self._answer = self._container.wait(condition="removed")
        except ENGINE_EXCEPTIONS as error:
            self._error = error
        self.ended.set()

    def code(self) -> int:
        if self._answer is None:
            raise InfrastructureError(f"the engine lost the container: {self._error}") from self._error
        return int(self._answer["StatusCode"])


@contextmanager
def _container(client: DockerClient, configuration: dict[str, Any]) -> Iterator[_Exit]:
    """A running container that is gone when the block ends."""
    container = client.containers.create(**configuration)
    try:
        # The lifeline: attached before the start, and closed by the kernel when this process dies. The supervisor
        # inside then reads the end of its standard input, ends, and the engine removes the container by itself.
        lifeline = client.api.attach_socket(container.id, params={"stdin": 1, "stream": 1})
        try:
            exit_of = _Exit(container)
            container.start()
            yield exit_of
        finally:
            # The SDK hands out a view of the socket; closing the view alone leaves the socket open.
            lifeline._sock.close()
            lifeline.close()
    finally:
        remove_container(container)


def _configuration(settings: DockerSettings, task: Task, directory: Path, user: str, limit_s: int) -> dict[str, Any]:
    command = f"exec python -m runners {TASK} >{TASK}/supervisor.log 2>&1"
    return {
        "image": settings.image_id,
        # Process 1 must not be the supervisor: the kernel ignores signals that process 1 does not handle. This one
        # passes them on, and nothing in the container can kill it. It kills a supervisor that is stopped or stuck, so
        # that its own alarm does not end it. The container then ends too, also when we are gone.
        "command": [
            *("timeout", "--foreground", "--signal=KILL", str(limit_s + LAST_RESORT_S)),
            *("sh", "-c", command),
        ],
        "init": False,
        "name": f"taxmeter-{task.task_id}-{uuid.uuid4().hex[:8]}",
        "labels": {LABEL: task.campaign_id, TASK_LABEL: task.task_id},
        "user": user,
        "working_dir": f"{TASK}/code",
        "environment": {
            "TAXMETER_CACHE": CACHE,
            "TAXMETER_CACHE_SCOPE": settings.cache_scope,
            "TAXMETER_LIFELINE": "stdin",
            "TAXMETER_TIME_LIMIT_S": str(limit_s),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        # z: where SELinux is on, containers may use them; it means nothing elsewhere
        "volumes": {
            str(directory.resolve()): {"bind": TASK, "mode": "rw,z"},
            str(settings.cache.resolve()): {"bind": CACHE, "mode": "rw,z"},
        },
        "network_mode": "none",
        "read_only": True,
        # Inductor loads what it compiled from there, hence exec.
        "tmpfs": {"/tmp": "rw,exec,nosuid,nodev"},  # noqa: S108 - inside the container
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": MAX_PROCESSES,
        "mem_limit": settings.memory_bytes,
        "memswap_limit": settings.memory_bytes,
        "shm_size": SHARED_MEMORY_BYTES,
        "cpuset_cpus": ",".join(map(str, settings.cores)),
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "device_requests": device_requests(task, settings.gpu_uuid),
        "stdin_open": True,
        "auto_remove": True,
        "log_config": {"type": "none"},
    }


def device_requests(task: Task, gpu_uuid: str | None = None) -> list[DeviceRequest]:
    """What a container asks its engine for: nothing, unless a trial of the task runs on a GPU.

    An engine without NVIDIA's container toolkit refuses the start, and says so.

    Args:
        task: what runs in it.
        gpu_uuid: the one GPU that it gets; null for all.
    """
    if not is_of_gpu(task):
        return []
    which = {"count": -1} if gpu_uuid is None else {"device_ids": [gpu_uuid]}
    return [DeviceRequest(**which, capabilities=[["gpu", "compute", "utility"]])]


def _user_for(directory: Path, cache: Path) -> str:
    """Root's tasks run as nobody in particular; anyone else's run as themselves, so that they own the files."""
    if os.geteuid() != 0:
        return f"{os.geteuid()}:{os.getegid()}"
    for top in (directory, cache):
        os.chown(top, UNPRIVILEGED, UNPRIVILEGED)
    return f"{UNPRIVILEGED}:{UNPRIVILEGED}"


def _last_oom_ns(client: DockerClient, container_id: str, since: int) -> int | None:
    events = client.events(
        since=since, until=int(time.time()) + 1, filters={"container": container_id, "event": "oom"}, decode=True
    )
    return max((int(event["timeNano"]) for event in events), default=None)
