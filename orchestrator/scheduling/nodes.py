"""The nodes on which a scheduler runs tasks: of this machine alone, of our cluster, or of somebody else's."""

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import InfrastructureError, NoUsableHostError, some_names
from orchestrator.files import temporary_directory
from orchestrator.hosts.cluster import CODE_VARIABLE, HOST_LABEL, RELAY, RELAY_SLOTS, SLOT
from orchestrator.hosts.cluster.settings import CLUSTER
from orchestrator.hosts.external_cluster import ExternalCluster, initialise
from orchestrator.scheduling.messages import SchedulingHost

DIRECTORY_PREFIX = "taxmeter-ray-"
"""Of the directory for Ray's own files."""

TEMPORARY = Path("/tmp")  # noqa: S108 - whatever TMPDIR says: the paths of sockets must be short

OBJECT_STORE_BYTES = 100_000_000

_WRITERS_S = 5.0

JOIN_DEADLINE_S = 30.0
"""A node that was told to be there may take so long to be seen by everyone."""


NO_NODE = "no node of the Ray cluster serves it"


@dataclass(frozen=True)
class Connected:
    """A connection to a cluster, which this process has at most one of."""

    ray: Any
    """The module."""
    absent: Mapping[str, str]
    """Hosts without a node, and why; Ray keeps what they are to do until they have one."""


RayCluster = Callable[[Sequence[SchedulingHost]], AbstractContextManager[Connected]]
"""Connects to the nodes of hosts while the block lasts.

Raises:
    NoUsableHostError: no host has a node; says what the nodes are. Or the one of this machine cannot be started.
    InfrastructureError: there is no such cluster.
"""


@contextmanager
def this_machine(hosts: Sequence[SchedulingHost]) -> Iterator[Connected]:
    """A cluster of this machine alone, started for the job and gone with it."""
    host = next((host for host in hosts if not host.is_relayed), None)
    directory = temporary_directory(DIRECTORY_PREFIX, TEMPORARY)
    try:
        os.environ.update(_settings(directory))
        import ray  # only now: Ray reads its settings when it is imported

        if host is not None and host.agent_cores:
            # What Ray starts inherits it; executors give the trials their own cores.
            os.sched_setaffinity(0, host.agent_cores)
        options = {
            "address": "local",
            "num_cpus": 0,
            "num_gpus": 0,
            "resources": {RELAY: RELAY_SLOTS} | ({} if host is None else {SLOT: host.slots}),
            "labels": {} if host is None else _labels(host),
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
            "_temp_dir": str(directory),
        }
        with _shut_down(ray):
            try:
                initialise(ray, options, "the Ray cluster of this machine cannot be started")
            except InfrastructureError as error:
                raise NoUsableHostError(f"{error}: nothing was started; try again when it is less busy") from error
            yield connected(ray, hosts)
    finally:
        _remove(directory)


@contextmanager
def existing_cluster(address: str, token: Path, hosts: Sequence[SchedulingHost]) -> Iterator[Connected]:
    """A cluster that is up, and stays so. Its head runs where this process does.

    Args:
        address: of the head, as Ray takes it.
        token: the file with its secret.
        hosts: those that tasks will name.
    """
    os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)})
    import ray  # only now: Ray reads its settings when it is imported

    options: dict[str, Any] = {"address": address}
    if CODE_VARIABLE in os.environ:
        # The nodes have no code of ours: Ray brings them the very code that this process runs.
        options["runtime_env"] = {"working_dir": os.environ[CODE_VARIABLE]}
    with _shut_down(ray):
        initialise(ray, options, f"the Ray cluster at {address} cannot be used")
        deadline = time.monotonic() + JOIN_DEADLINE_S
        while unserved(hosts, ray.nodes()) and time.monotonic() < deadline:
            time.sleep(0.5)
        yield connected(ray, hosts)


@contextmanager
def joined_cluster(external: ExternalCluster, hosts: Sequence[SchedulingHost]) -> Iterator[Connected]:
    """A cluster that somebody else keeps. The labels of the inventory need not be labels of Ray there."""
    try:
        yield connected(external.join(), [replace(host, labels={}) for host in hosts])
    finally:
        external.leave()


@contextmanager
def _shut_down(ray: Any) -> Iterator[None]:
    try:
        yield
    finally:
        ray.shutdown()


def connected(ray: Any, hosts: Sequence[SchedulingHost]) -> Connected:
    """What the nodes of a cluster are for hosts. Ray itself would wait for a node forever, silently.

    Args:
        ray: the module, connected.
        hosts: the hosts that tasks will name.

    Raises:
        NoUsableHostError: no host has a node; names them, and what the nodes are.
    """
    nodes = ray.nodes()
    missing = unserved(hosts, nodes)
    if missing and len(missing) == len(hosts):
        known = some_names(
            f"{node['NodeManagerHostname']}: labels {node['Labels']}, slots {node['Resources'].get(SLOT, 0):.0f}"
            for node in nodes
            if node["Alive"]
        )
        raise NoUsableHostError(
            f"no node of the Ray cluster serves {some_names(missing)} (needs label {HOST_LABEL}, and "
            f"a {SLOT} for each task at once); living nodes: {known or 'none'}"
        )
    return Connected(ray, dict.fromkeys(missing, NO_NODE))


def unserved(hosts: Sequence[SchedulingHost], nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The hosts without a living node that has their labels and a slot for each task at once.

    Args:
        hosts: the hosts that tasks will name.
        nodes: what `ray.nodes()` says.
    """
    living = [node for node in nodes if node["Alive"]]
    return [host.name for host in hosts if not any(_serves(node, host) for node in living)]


def _remove(directory: Path) -> None:
    # Ray's processes end on their own time, and write until then
    deadline = time.monotonic() + _WRITERS_S
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)
        if time.monotonic() > deadline:
            return  # the next start removes it
        time.sleep(0.05)


def _serves(node: Mapping[str, Any], host: SchedulingHost) -> bool:
    if host.is_relayed:
        return bool(node["Resources"].get(RELAY, 0))
    return bool(_labels(host).items() <= node["Labels"].items() and node["Resources"].get(SLOT, 0) >= host.slots)


def _labels(host: SchedulingHost) -> dict[str, str]:
    return {**host.labels, HOST_LABEL: host.name}


def _settings(directory: Path) -> dict[str, str]:
    """Ray's own environment. Tokens stand in a file, so that no process list shows them."""
    token = directory / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    return {**CLUSTER, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
