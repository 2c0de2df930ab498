"""A campaign joins somebody else's Ray cluster: which of its hosts are nodes there."""

import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.campaign.remote.looking import listed
from orchestrator.config import Connection, Host
from orchestrator.config.documents import line_of_key
from orchestrator.errors import ConfigurationError, InfrastructureError, NoUsableHostError
from orchestrator.execution import pack_project, unpack
from orchestrator.hosts.cluster_info import ClusterInfo, cluster_info, node_of
from orchestrator.hosts.external_cluster import ExternalCluster
from orchestrator.scheduling.joined import JoinedCluster


def is_by_ray(hosts: Mapping[str, Host]) -> bool:
    """Whether the hosts are nodes of somebody else's Ray cluster, as then all of an inventory are."""
    return any(host.connection is Connection.RAY for host in hosts.values())


@dataclass(frozen=True)
class Joined:
    """A cluster of somebody else's that this machine is part of."""

    seen: ClusterInfo
    cluster: JoinedCluster
    left_out: Mapping[str, str]
    """Hosts that no node serves, and why."""

    @property
    def address(self) -> str:
        """Of this machine, as the other nodes reach it."""
        return self.seen.own.address


@contextmanager
def joining(address: str, hosts: Collection[str], inventory: Path) -> Iterator[Joined]:
    """Looks at a cluster, and says which of the hosts are nodes of it. Nothing is started; that is for its scheduler.

    Raises:
        ConfigurationError: this machine is no part of it, or token or versions are not its own.
        NoUsableHostError: nothing answers, or no host is a node of it.
        InfrastructureError: it cannot be joined for another reason.
    """

    def error(problem: str) -> ConfigurationError:
        line = line_of_key(inventory, ("ray_address",))
        return ConfigurationError(problem, file=inventory, line=line, key="ray_address")

    seen = cluster_info(address, error)
    left_out: dict[str, str] = {}
    for host in hosts:
        try:
            node_of(host, seen)
        except InfrastructureError as problem:
            left_out[host] = str(problem)
    if set(hosts) <= set(left_out):
        raise NoUsableHostError(f"no host can be used: {listed(left_out)}")
    with tempfile.TemporaryDirectory(prefix="taxmeter-code-") as directory:
        code = unpack(pack_project(), Path(directory))
        yield Joined(seen, JoinedCluster(ExternalCluster(seen.address, code)), left_out)
