"""Opens the hosts of an inventory: here it is decided of which kind each is."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchestrator.config.inventory import Connection, Host, Inventory
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.access import HostAccess, HostFacts
from orchestrator.hosts.checking import Requirements, requirements
from orchestrator.hosts.cluster.code import install_here, pack_code
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
        answers = for_each(self, _facts_or_problem, self.connections)
        named = {host.name: answer for host, answer in zip(self, answers, strict=True)}
        facts = {name: answer for name, answer in named.items() if isinstance(answer, HostFacts)}
        return facts, {name: answer for name, answer in named.items() if isinstance(answer, str)}


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
    is_far = any(host.connection is Connection.SSH for host in hosts.values())
    wanted = requirements(project.root / _CATALOGUE) if is_far else Requirements({}, {}, frozenset())
    with Connections(inventory.hosts) as connections:
        opened = {name: _open(name, host, connections, wanted, project.root) for name, host in hosts.items()}
        yield OpenHosts(opened, connections)


def _open(name: str, host: Host, connections: Connections, wanted: Requirements, project: Path) -> HostAccess:
    if host.connection is Connection.LOCAL:
        return LocalHost(name, host, project)
    return SshHost(name, host, connections, wanted)


@contextmanager
def _open_cluster(address: str, inventory: Inventory) -> Iterator[tuple[ClusterInfo, ExternalCluster]]:
    seen = cluster_info(address, lambda problem: inventory.error(problem, _RAY_ADDRESS))
    with tempfile.TemporaryDirectory(prefix="taxmeter-code-") as directory:
        cluster = ExternalCluster(seen.address, install_here(pack_code(), Path(directory)))
        try:
            yield seen, cluster
        finally:
            cluster.leave()


def _facts_or_problem(host: HostAccess) -> HostFacts | str:
    try:
        return host.facts()
    except InfrastructureError as error:
        return str(error)
