"""The head of the cluster: a container on the driver's machine, in which the drivers of campaigns run too."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.environments import UNLABELLED, engine_address, host_network_problem, remove_container
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.engines import LABEL, LABEL_PLAN, LABEL_ROLE, find, plan_of, put_files, remove
from orchestrator.hosts.cluster.image import AgentImage
from orchestrator.hosts.cluster.model import HEAD_CONTAINER
from orchestrator.hosts.cluster.settings import Ports, environment, head_command, tls_files
from orchestrator.hosts.cluster.state import StateFiles

ROLE = "head"
SHARED_MEMORY = "512m"
SOCKET = "/var/run/docker.sock"
"""Of the engine of its host, in every container of ours."""

_START_S = 60.0
_POLL_S = 0.1
_LAST_WORDS_S = 10.0
"""For what was told to end a moment ago, such as a look at the nodes."""


@dataclass(frozen=True)
class Head:
    """A head that listens."""

    container_id: str
    is_new: bool
    """Whether it has just been made, so that no node belongs to it yet."""


@dataclass(frozen=True)
class HeadPlan:
    """What a head is made from."""

    cluster: str
    address: str
    ports: Ports
    image: AgentImage
    code: Path
    """Our packages, as it has them."""
    sockets: str
    tls: Mapping[str, bytes]
    """Of `settings.chosen_tls`."""


def ensure_head(client: DockerClient, plan: HeadPlan, files: StateFiles, say: Callable[[str], None]) -> Head:
    """The head of the cluster: the one that runs, if it is made as it should be.

    Raises:
        InfrastructureError: it does not start; the message says why.
        docker.errors.DockerException, requests.RequestException: the engine failed.
    """
    configuration = _configuration(plan, files)
    digest = plan_of(configuration, files.token.read_text(encoding="ascii"), str(sorted(plan.tls.items())))
    name = f"{HEAD_CONTAINER}{plan.cluster}"
    container = find(client, name, plan.cluster)
    if container is not None and container.status == "running" and container.labels.get(LABEL_PLAN) == digest:
        return Head(str(container.id), is_new=False)
    if container is not None:
        _refuse_use(client, container)
        remove(container)
    problem = host_network_problem(client.info())
    if problem is not None:
        raise InfrastructureError(f"the head of a cluster cannot run on this machine: {problem}")
    _refuse_taken_ports(plan.ports)
    say(f"starting the head on {plan.address}:{plan.ports.head}")
    configuration["labels"] = {LABEL: plan.cluster, LABEL_ROLE: ROLE, LABEL_PLAN: digest}
    container = client.containers.create(name=name, **configuration)
    try:
        if plan.tls:
            put_files(container, tls_files(plan.tls), (os.geteuid(), os.getegid()))
        container.start()
        _wait(container, plan.address, plan.ports.head)
    except BaseException:
        remove_container(container)
        raise
    return Head(str(container.id), is_new=True)


def local_socket() -> str:
    """The socket of this machine's engine.

    Raises:
        InfrastructureError: the engine is elsewhere, so no container of it has this machine's addresses and files.
    """
    address = engine_address()
    if not address.startswith("unix://"):
        raise InfrastructureError(
            f"the head of a cluster runs on this machine, and the engine at {address} is on another: unset DOCKER_HOST"
        )
    return address.removeprefix("unix://")


def _configuration(plan: HeadPlan, files: StateFiles) -> dict[str, Any]:
    there = local_socket()
    root = str(files.root)
    own = [root, plan.sockets]
    if not files.directory.is_relative_to(files.root):
        own.append(str(files.directory))
    mounts = {there: SOCKET, **{path: path for path in own}}
    return {
        "image": plan.image.identity.image_id,
        "command": head_command(plan.address, plan.ports),
        "network_mode": "host",
        "init": True,
        "security_opt": [UNLABELLED],
        "shm_size": SHARED_MEMORY,
        # What a campaign writes is the user's, not root's; the engine's socket is its group's.
        "user": f"{os.geteuid()}:{os.getegid()}",
        "group_add": [str(Path(there).stat().st_gid)],
        "working_dir": root,
        "environment": {
            **environment(str(files.token), str(plan.code), plan.tls),
            "HOME": "/tmp",  # noqa: S108 - in the container
            "USER": "taxmeter",
        },
        "volumes": {path: {"bind": bind, "mode": "rw"} for path, bind in mounts.items()},
    }


def _refuse_use(client: DockerClient, container: Any) -> None:
    """A head that is made anew ends what runs in it."""
    deadline = time.monotonic() + _LAST_WORDS_S
    while any(
        client.api.exec_inspect(one)["Running"]
        for one in client.api.inspect_container(container.id).get("ExecIDs") or ()
    ):
        if time.monotonic() > deadline:
            raise InfrastructureError(
                "the cluster must start anew, because our code, its image or its settings have changed, but a command "
                "runs in its head: wait for it, or end it with `taxmeter cluster down`"
            )
        time.sleep(_POLL_S)


def _wait(container: Any, address: str, port: int) -> None:
    deadline = time.monotonic() + _START_S
    while not _listens(address, port):
        container.reload()
        if container.status != "running" or time.monotonic() > deadline:
            said = container.logs(tail=15).decode("utf-8", "replace").strip()
            raise InfrastructureError(f"the head of the cluster does not start on {address}:{port}:\n{said}")
        time.sleep(_POLL_S)


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True


def _refuse_taken_ports(ports: Ports) -> None:
    for port in (ports.head, *range(ports.first + 1, ports.delivery + 1)):
        try:
            socket.create_server(("", port)).close()
        except OSError as error:
            raise InfrastructureError(
                f"port {port} of this machine is taken ({error.strerror}): end what has it, or take other ports with "
                "--first-port"
            ) from None
