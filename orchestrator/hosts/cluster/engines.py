"""The engines of the hosts, and the containers of ours on them."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from docker import DockerClient
from docker.errors import NotFound

from orchestrator.config.inventory import Connection, Host
from orchestrator.config.inventory.model import local_engine
from orchestrator.environments import connect, engine_address, remove_container
from orchestrator.execution import tar_of
from orchestrator.hosts.connection import Connections

LABEL = "org.taxmeter.cluster"
"""Its value is the id of the cluster. What does not carry it is never touched."""
LABEL_ROLE = "org.taxmeter.role"
LABEL_PLAN = "org.taxmeter.cluster.plan"
"""Digest of what the container was made from; with another one it is made anew."""
LABEL_NODE = "org.taxmeter.cluster.node"

ANSWER_S = 60.0
"""For each answer of an engine."""
CONNECT_S = 30.0
STOP_S = 5


@dataclass(frozen=True)
class HostEngine:
    """A host's engine, connected."""

    client: DockerClient
    address: str
    """As this machine reaches it."""
    socket: str
    """Its path on the host."""


@contextmanager
def host_engine(name: str, host: Host, connections: Connections) -> Iterator[HostEngine]:
    """The engine of a host, for as long as the block lasts.

    Raises:
        HostConnectionError: the host was not reached.
        InfrastructureError: no engine answers.
    """
    if host.connection is Connection.LOCAL:
        address = engine_address(local_engine(host.engine))
        with closing(connect(address, ANSWER_S)) as client:
            yield HostEngine(client, address, address.removeprefix("unix://"))
        return
    socket = connections.engine_socket(name, CONNECT_S)
    with (
        connections.forward_engine(name, CONNECT_S, socket) as forward,
        closing(connect(forward.address, ANSWER_S)) as client,
    ):
        yield HostEngine(client, forward.address, socket)


def our_containers(client: DockerClient, cluster: str) -> list[Any]:
    """All containers of a cluster on an engine, in any state."""
    selected = {"label": f"{LABEL}={cluster}"}
    found: list[Any] = client.containers.list(all=True, filters=selected, ignore_removed=True)
    return found


def remove(container: Any) -> None:
    """Ends a container of ours, so that Ray hears of it, and removes it. What is gone already is no error."""
    try:
        container.reload()
        if container.status == "paused":
            container.unpause()
        if container.status in ("running", "paused"):
            container.stop(timeout=STOP_S)
    except NotFound:
        return
    remove_container(container)


def find(client: DockerClient, name: str, cluster: str) -> Any | None:
    """The container of ours that has this name; null if there is none, whoever else has one."""
    return next((one for one in our_containers(client, cluster) if one.name == name), None)


def plan_of(configuration: Mapping[str, Any], *more: str) -> str:
    """Digest of all that a container is made from."""
    text = json.dumps([configuration, *more], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def put_files(container: Any, files: Mapping[str, bytes], owner: tuple[int, int] = (0, 0)) -> None:
    """Puts files into a container that need not run; neither they nor their directory can be read by anybody else.

    Put, not mounted or passed: so they are in no `docker inspect` and in no file of the host's.

    Args:
        container: of ours.
        files: the content by absolute path.
        owner: user and group in the container.
    """
    container.put_archive("/", tar_of(files, owner))
