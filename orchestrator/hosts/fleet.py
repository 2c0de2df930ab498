"""The hosts of one command: opened, looked at, brought together. Of which kind each is, is decided here alone.

`Hosts` is this machine alone; the kinds that need more than that derive from it.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from orchestrator.config import Connection, ExecutorChoice, Host, Inventory, refuse_nodes
from orchestrator.environments import engine_errors
from orchestrator.errors import InfrastructureError, Say
from orchestrator.execution import pack_project, remove_containers, unpack
from orchestrator.hosts.access import HostAccess, HostFacts, SystemDescription
from orchestrator.hosts.check.engine import Requirements, read_requirements
from orchestrator.hosts.cluster.engines import find, fingerprint_on, host_engine
from orchestrator.hosts.cluster.lifecycle import NoHostJoinedError, borrowed, mend, up
from orchestrator.hosts.cluster.state import Cluster, Project
from orchestrator.hosts.connection import Connections, of_each
from orchestrator.hosts.external_cluster import ClusterInfo, ExternalCluster, cluster_info
from orchestrator.hosts.local import LocalHost
from orchestrator.hosts.lock import project_to_ourselves, this_machine_to_ourselves
from orchestrator.hosts.ray import RayHost
from orchestrator.hosts.relay import relaying
from orchestrator.hosts.ssh import SshHost

Result = TypeVar("Result")

_CATALOGUE = "docker/images.yaml"
_DESCRIBE_S = 120.0


@dataclass(frozen=True)
class DriverPlace:
    """Where the driver of a campaign runs: in this process, or in the container of a cluster's head.

    Without either cluster its Ray is of this machine alone, started for the campaign and gone with it.
    """

    head: Cluster | None = None
    """The cluster in whose head the driver runs; null if it runs in this process."""
    external: ExternalCluster | None = None
    """The cluster of somebody else's that this process has joined; null if there is none."""


class Hosts:
    """The hosts of one command. As it stands, this machine, and hosts without engines: Ray is started here with the
    campaign."""

    driver_root: Path | None = None
    """The only directory of this machine that the driver sees; null if it sees all."""
    are_locked = True
    """Whether `undisturbed` has the lock of every host; else tasks take the lock of theirs, one by one."""

    def __init__(
        self, hosts: Mapping[str, HostAccess], connections: Connections, inventory: Inventory, project: Project
    ) -> None:
        """Reaches nothing yet."""
        self._hosts = dict(hosts)
        self._connections = connections
        self._inventory = inventory
        self._project = project
        far = (access for access in hosts.values() if isinstance(access, SshHost))
        self._relayed = {access.name: access for access in far if access.settings.python is not None}

    def __getitem__(self, name: str) -> HostAccess:
        return self._hosts[name]

    @property
    def builder(self) -> str | None:
        """Address of the engine of this machine on which images for them are built; null for the usual one."""
        engines = {access.settings.engine for name, access in self._hosts.items() if name not in self._relayed}
        return engines.pop() if len(engines) == 1 else None

    def look(self) -> tuple[dict[str, HostFacts], dict[str, str]]:
        """The facts of all hosts, asked at once: by host; and why the others cannot be used, by host too."""
        return self.each(self._hosts, lambda access: access.facts())

    def each(
        self, names: Iterable[str], do: Callable[[HostAccess], Result]
    ) -> tuple[dict[str, Result], dict[str, str]]:
        """Does something with several hosts at once: the answers by host; and of an InfrastructureError its text."""
        return of_each(names, lambda name: do(self._hosts[name]), self._connections)

    def abort(self) -> None:
        """Ends all connections at once, so that nobody waits for a host any longer; new ones can be made."""
        self._connections.abort()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Keeps other sweeps off this project, and off this machine if it is measured."""
        with ExitStack() as stack:
            # this machine first: of two sweeps on it alone the second hears that it is in use
            if self.are_locked and self._hosts.keys() - self._relayed.keys():
                stack.enter_context(this_machine_to_ourselves(self._project.root))
            stack.enter_context(project_to_ourselves(self._project.root, self._project.state))
            yield

    def gathered(self, say: Say) -> AbstractContextManager[None]:  # noqa: ARG002 - of those with a cluster
        """Around all that needs the cluster: one that is brought up for a sweep alone is taken down at the end."""
        return nullcontext()

    def join(self, names: Iterable[str], say: Say) -> tuple[dict[str, HostFacts], dict[str, str]]:  # noqa: ARG002
        """Makes hosts part of the cluster: their facts as processes of ours there see them; and why others are not.

        Raises:
            ConfigurationError: the settings of the cluster are wrong.
            InfrastructureError: this machine or its engine is at fault.
        """
        return self.each(names, lambda access: access.facts())

    def mend(self, name: str, say: Say, campaign_id: str | None = None) -> HostFacts:  # noqa: ARG002
        """Brings a host of a cluster in use back into it, or a further host into it.

        Args:
            campaign_id: whose containers are removed there if nobody collects from them any more.

        Raises:
            InfrastructureError: it cannot be part now; says why.
        """
        raise InfrastructureError("nobody mends it: it is part of no cluster of ours")

    def driver(self) -> DriverPlace:
        """Where the driver runs that uses them."""
        return DriverPlace()

    def relayed(self, store_id: str, say: Say) -> AbstractContextManager[None]:
        """Around the driver: runs its tasks on hosts that no node of Ray serves, and fetches what waits there."""
        if not self._relayed:
            return nullcontext()
        state, return_s = self._project.state, self._inventory.faults.return_s
        return relaying(self._relayed, self._connections, state, store_id, return_s, say)


class NodeHosts(Hosts):
    """Nodes of somebody else's Ray cluster, which this process joins. Tasks hold the lock of their host."""

    are_locked = False
    builder = None

    def __init__(
        self, hosts: Mapping[str, HostAccess], cluster: ExternalCluster, inventory: Inventory, project: Project
    ) -> None:
        """Reaches nothing yet."""
        super().__init__(hosts, Connections({}), inventory, project)
        self._cluster = cluster

    def driver(self) -> DriverPlace:
        return DriverPlace(external=self._cluster)


class AgentHosts(Hosts):
    """Hosts of which one at least has an engine that is reached over SSH: those with engines get agents, and the
    driver runs in the head."""

    are_locked = False
    builder = None
    """Images come from this machine's usual engine, on which the head runs too."""

    def __init__(
        self, hosts: Mapping[str, HostAccess], connections: Connections, inventory: Inventory, project: Project
    ) -> None:
        """Reaches nothing yet; see `Hosts`."""
        super().__init__(hosts, connections, inventory, project)
        self._cluster: Cluster | None = None
        self.driver_root = project.root.resolve()

    def look(self) -> tuple[dict[str, HostFacts], dict[str, str]]:
        for name, access in self._hosts.items():
            if access.settings.executor is ExecutorChoice.PROCESS and name not in self._relayed:
                problem = (
                    "executor process does without containers, which a host that is measured over SSH or beside such "
                    f"hosts cannot: write `executor: docker`, or leave it out with --limit '!{name}'"
                )
                raise self._inventory.error(problem, "hosts", name, "executor")
        return super().look()

    def gathered(self, say: Say) -> AbstractContextManager[None]:
        return borrowed(self._project, say)

    def join(self, names: Iterable[str], say: Say) -> tuple[dict[str, HostFacts], dict[str, str]]:
        """See `Hosts.join`: brings the agents up."""
        wanted = list(names)
        facts, problems = self.each(self._relayed.keys() & set(wanted), lambda access: access.facts())
        chosen = {name: self._hosts[name].settings for name in wanted if name not in self._relayed}
        if not chosen:
            return facts, problems  # and the driver runs here
        try:
            self._cluster = up(chosen, self._inventory, self._project, say)
        except NoHostJoinedError as error:
            return facts, {**problems, **error.reasons}
        agents = self._cluster.agents
        problems |= {name: self._cluster.unusable[name] for name in chosen if name not in agents}
        seen, untold = self.each(agents.keys() & chosen.keys(), self._facts_of_agent)
        return facts | seen, problems | untold

    def mend(self, name: str, say: Say, campaign_id: str | None = None) -> HostFacts:
        if name in self._relayed:
            raise InfrastructureError("it has no agent that could be mended; its tasks go on when it answers over SSH")
        if campaign_id is not None and self._cluster is not None:
            self._remove_orphans(name, self._cluster, campaign_id, say)
        self._cluster = mend(name, self._inventory.hosts, self._connections, self._project, say)
        access = self._hosts.get(name)
        if access is None:
            raise InfrastructureError(f"{name} takes no part in this command")
        return self._facts_of_agent(access)

    def driver(self) -> DriverPlace:
        return DriverPlace(head=self._cluster)

    def _facts_of_agent(self, access: HostAccess) -> HostFacts:
        """What the agent of a host sees there; what was known of it before was a preview."""
        assert self._cluster is not None
        agent = self._cluster.agents[access.name]
        with host_engine(access.name, access.settings, self._connections) as engine:
            fingerprint = fingerprint_on(engine, self._cluster)
        known = access.facts()
        sizes = [size for size in (fingerprint.memory.total_bytes, fingerprint.limits.memory_bytes) if size is not None]
        # A GPU that its containers do not see is none.
        places = tuple(place for place in known.topology.gpus if place.uuid in agent.gpu_uuids)
        indices = [number for number, place in enumerate(known.topology.gpus) if place in places]
        return replace(
            known,
            cores=agent.cores,
            memory_bytes=min(sizes, default=None),
            gpu_driver_version=fingerprint.gpu_driver_version,
            gpu_reason=fingerprint.gpu_reason,
            fingerprint=fingerprint,
            gpus=tuple(known.gpus[number] for number in indices),
            topology=replace(known.topology, gpus=places),
            work_directory=agent.work_directory,
            # in the agent the host's engine is where an engine usually is
            engine=None,
        )

    def _remove_orphans(self, name: str, cluster: Cluster, campaign_id: str, say: Say) -> None:
        """Removes the containers of trials whose agent is gone. Where an agent runs, the driver itself sees to it."""
        with (
            engine_errors("its engine failed"),
            host_engine(name, self._inventory.hosts[name], self._connections) as engine,
        ):
            agent = find(engine.client, cluster.agent_container, cluster.id)
            if agent is not None and agent.status == "running":
                return
            for container in remove_containers(engine.address, campaign_id):
                say(f"removed container {container}, whose agent is gone")


@contextmanager
def open_hosts(hosts: Mapping[str, Host], inventory: Inventory, project: Project) -> Iterator[Hosts]:
    """Hosts of an inventory, for as long as the block lasts. Connections are made when they are used.

    Raises:
        ConfigurationError: this machine is no node of the cluster that the inventory names, or token or versions are
            not its own; the catalogue of images or its record is malformed.
        NoUsableHostError: no such cluster answers.
        InfrastructureError: it cannot be joined for another reason.
    """
    if inventory.ray_address is not None:
        with _open_cluster(inventory) as (seen, cluster):
            yield NodeHosts(
                {name: RayHost(name, host, seen, cluster) for name, host in hosts.items()}, cluster, inventory, project
            )
        return

    @cache
    def wanted() -> Requirements:
        return read_requirements(project.root / _CATALOGUE)

    with Connections(inventory.hosts) as connections:
        opened: dict[str, HostAccess] = {
            name: LocalHost(name, host, str(project.state.absolute()))
            if host.connection is Connection.LOCAL
            else SshHost(name, host, connections, wanted, project.state)
            for name, host in hosts.items()
        }
        needs_agents = any(host.connection is Connection.SSH and host.python is None for host in hosts.values())
        yield (AgentHosts if needs_agents else Hosts)(opened, connections, inventory, project)


@contextmanager
def _open_cluster(inventory: Inventory) -> Iterator[tuple[ClusterInfo, ExternalCluster]]:
    seen = cluster_info(inventory)
    with tempfile.TemporaryDirectory(prefix="taxmeter-code-") as directory:
        cluster = ExternalCluster(seen.address, unpack(pack_project(), Path(directory)))
        try:
            # here and not where it is first used: that may be a thread, and Ray needs the process's first one
            cluster.join()
            yield seen, cluster
        finally:
            cluster.leave()


def offered_key(name: str, inventory: Inventory, timeout_s: float) -> str:
    """The public key that a host offers over SSH, as `type text`. It is not trusted by this, and nobody logs in."""
    host = inventory.hosts[name]
    refuse_nodes({name: host}, inventory)
    if host.connection is Connection.LOCAL:
        raise inventory.error(f"{name} is this machine, which needs no host key")
    with Connections(inventory.hosts) as connections:
        return connections.offered_key(name, timeout_s)


def describe_here() -> SystemDescription:
    """What this machine is, whatever an inventory says; see `HostAccess.describe`."""
    return LocalHost("this machine", Host(connection=Connection.LOCAL), "").describe(_DESCRIBE_S)
