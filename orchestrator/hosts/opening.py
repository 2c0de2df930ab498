"""Opens the hosts of an inventory: here it is decided of which kind each is."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from orchestrator.config import Connection, Host, Inventory, refuse_nodes
from orchestrator.execution import pack_project, unpack
from orchestrator.hosts.access import HostAccess, SystemDescription
from orchestrator.hosts.check import Requirements, read_requirements
from orchestrator.hosts.cluster_info import ClusterInfo, cluster_info
from orchestrator.hosts.connection import Connections
from orchestrator.hosts.external_cluster import ExternalCluster
from orchestrator.hosts.fleet import AgentHosts, Hosts, LocalHosts, NodeHosts, Project
from orchestrator.hosts.local import LocalHost
from orchestrator.hosts.ray import RayHost
from orchestrator.hosts.ssh import SshHost

_CATALOGUE = "docker/images.yaml"
_RAY_ADDRESS = "ray_address"
_DESCRIBE_S = 120.0


@contextmanager
def open_hosts(hosts: Mapping[str, Host], inventory: Inventory, project: Project) -> Iterator[Hosts]:
    """Hosts of an inventory, for as long as the block lasts. Connections are made when they are used.

    Args:
        hosts: those that are wanted, by name.
        inventory: with those that they are reached through.
        project: where we are.

    Raises:
        ConfigurationError: this machine is no node of the cluster that the inventory names, or token or versions are
            not its own; the catalogue of images or its record is malformed.
        NoUsableHostError: no such cluster answers.
        InfrastructureError: it cannot be joined for another reason.
    """
    if inventory.ray_address is not None:
        with _open_cluster(inventory.ray_address, inventory) as (seen, cluster):
            yield NodeHosts(
                {name: RayHost(name, host, seen, cluster) for name, host in hosts.items()}, cluster, project
            )
        return

    @cache
    def wanted() -> Requirements:
        return read_requirements(project.root / _CATALOGUE)

    with Connections(inventory.hosts) as connections:
        opened = {name: _open(name, host, connections, wanted, project) for name, host in hosts.items()}
        is_far = any(host.connection is Connection.SSH for host in hosts.values())
        yield AgentHosts(opened, connections, inventory, project) if is_far else LocalHosts(opened, connections)


def _open(
    name: str, host: Host, connections: Connections, wanted: Callable[[], Requirements], project: Project
) -> HostAccess:
    if host.connection is Connection.LOCAL:
        return LocalHost(name, host, project.state)
    return SshHost(name, host, connections, wanted)


@contextmanager
def _open_cluster(address: str, inventory: Inventory) -> Iterator[tuple[ClusterInfo, ExternalCluster]]:
    seen = cluster_info(address, lambda problem: inventory.error(problem, _RAY_ADDRESS))
    with tempfile.TemporaryDirectory(prefix="taxmeter-code-") as directory:
        cluster = ExternalCluster(seen.address, unpack(pack_project(), Path(directory)))
        try:
            # here and not where it is first used: that may be a thread, and Ray needs the process's first one
            cluster.join()
            yield seen, cluster
        finally:
            cluster.leave()


def offered_key(name: str, inventory: Inventory, timeout_s: float) -> str:
    """The public key that a host offers over SSH, as `type text`. It is not trusted by this, and nobody logs in.

    Raises:
        ConfigurationError: the host is not reached over SSH.
        HostConnectionError: it was not reached.
    """
    host = inventory.hosts[name]
    refuse_nodes({name: host}, inventory)
    if host.connection is Connection.LOCAL:
        raise inventory.error(f"{name} is this machine, which needs no host key")
    with Connections(inventory.hosts) as connections:
        return connections.offered_key(name, timeout_s)


def describe_here() -> SystemDescription:
    """What this machine is, whatever an inventory says; see `HostAccess.describe`."""
    return LocalHost("this machine", Host(connection=Connection.LOCAL), Path()).describe(_DESCRIBE_S)
