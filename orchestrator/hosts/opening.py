"""Opens the hosts of an inventory: here it is decided of which kind each is."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from orchestrator.config import Connection, Host, Inventory, refuse_nodes
from orchestrator.errors import InfrastructureError
from orchestrator.execution import pack_project, unpack
from orchestrator.hosts.access import HostAccess, HostFacts, Result, SystemDescription
from orchestrator.hosts.check import Requirements, read_requirements
from orchestrator.hosts.cluster.state import Project
from orchestrator.hosts.cluster_info import ClusterInfo, cluster_info
from orchestrator.hosts.connection import Connections, for_each
from orchestrator.hosts.external_cluster import ExternalCluster
from orchestrator.hosts.labels import HOST_LABEL
from orchestrator.hosts.local import LocalHost
from orchestrator.hosts.ray import RayHost
from orchestrator.hosts.ssh import SshHost

_CATALOGUE = "docker/images.yaml"
_RAY_ADDRESS = "ray_address"
_DESCRIBE_S = 120.0


class OpenHosts:
    """The hosts of one command; see `Hosts`."""

    def __init__(
        self,
        hosts: Mapping[str, HostAccess],
        connections: Connections,
        cluster: tuple[ClusterInfo, ExternalCluster] | None = None,
    ) -> None:
        """Reaches nothing yet.

        Args:
            hosts: by name.
            connections: those that they use.
            cluster: whose nodes they are, if they are nodes of one.
        """
        self.connections = connections
        self._hosts = dict(hosts)
        self._cluster = cluster

    def __iter__(self) -> Iterator[HostAccess]:
        return iter(self._hosts.values())

    def __getitem__(self, name: str) -> HostAccess:
        return self._hosts[name]

    @property
    def external_cluster(self) -> tuple[ClusterInfo, ExternalCluster] | None:
        """Somebody else's cluster, whose nodes all of them are; null if they are none."""
        return self._cluster

    @property
    def has_this_machine(self) -> bool:
        """Whether one of them is the machine of this process."""
        if self._cluster is not None:
            return self._cluster[0].own.labels.get(HOST_LABEL) in self._hosts
        return any(host.settings.connection is Connection.LOCAL for host in self)

    @property
    def need_agents(self) -> bool:
        """Whether one is another machine on which nothing of ours runs, so that all of them get agents."""
        return any(host.settings.connection is Connection.SSH for host in self)

    def look(self) -> tuple[dict[str, HostFacts], dict[str, str]]:
        """See `Hosts.look`."""
        answers = self.each(self._hosts, lambda access: access.facts())
        facts = {name: answer for name, answer in answers.items() if not isinstance(answer, str)}
        return facts, {name: answer for name, answer in answers.items() if isinstance(answer, str)}

    def each(self, names: Iterable[str], do: Callable[[HostAccess], Result]) -> dict[str, Result | str]:
        """See `Hosts.each`."""

        def answer_of(name: str) -> Result | str:
            try:
                return do(self._hosts[name])
            except InfrastructureError as error:
                return str(error)

        chosen = list(names)
        return dict(zip(chosen, for_each(chosen, answer_of, self.connections), strict=True))


@contextmanager
def open_hosts(hosts: Mapping[str, Host], inventory: Inventory, project: Project) -> Iterator[OpenHosts]:
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
            nodes = {name: RayHost(name, host, seen, cluster) for name, host in hosts.items()}
            yield OpenHosts(nodes, Connections({}), (seen, cluster))
        return

    @cache
    def wanted() -> Requirements:
        return read_requirements(project.root / _CATALOGUE)

    with Connections(inventory.hosts) as connections:
        opened = {name: _open(name, host, connections, wanted, project.root) for name, host in hosts.items()}
        yield OpenHosts(opened, connections)


def _open(
    name: str, host: Host, connections: Connections, wanted: Callable[[], Requirements], project: Path
) -> HostAccess:
    if host.connection is Connection.LOCAL:
        return LocalHost(name, host, project)
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
