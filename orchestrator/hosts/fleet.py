"""The hosts of one command as a whole: how a sweep has them for itself, brings them together, and drives them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, TypeVar

from orchestrator.config import ExecutorChoice, Inventory
from orchestrator.environments import engine_errors
from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.execution import remove_containers
from orchestrator.files import held_at_once, is_locked
from orchestrator.hosts.access import HostAccess, HostFacts
from orchestrator.hosts.cluster import Cluster, NoHostJoinedError, borrowed, find, fingerprint_on, host_engine, mend, up
from orchestrator.hosts.connection import Connections, for_each
from orchestrator.hosts.external_cluster import ExternalCluster
from orchestrator.hosts.lock import HostLock

Say = Callable[[str], None]
Result = TypeVar("Result")

HOST_LOCK: Final = HostLock()
"""Of all of this machine."""

_AT_ONCE_S: Final = 1.0
"""Whoever waits longer for the lock of this machine waits for a measurement."""


class Project(Protocol):
    """Where a project is."""

    @property
    def root(self) -> Path:
        """The directory in which the commands run."""
        ...

    @property
    def state(self) -> Path:
        """What can be made anew."""
        ...


@dataclass(frozen=True)
class DriverPlace:
    """Where the driver of a campaign runs: in this process, or in the container of a cluster's head.

    Without either cluster its Ray is of this machine alone, started for the campaign and gone with it.
    """

    head: Cluster | None = None
    """The cluster in whose head the driver runs; null if it runs in this process."""
    external: ExternalCluster | None = None
    """The cluster of somebody else's that this process has joined; null if there is none."""


class Hosts(Protocol):
    """The hosts of one command."""

    @property
    def builder(self) -> str | None:
        """Address of the engine of this machine on which images for them are built; null for the usual one."""
        ...

    @property
    def driver_root(self) -> Path | None:
        """The only directory of this machine that the driver sees; null if it sees all."""
        ...

    @property
    def are_locked(self) -> bool:
        """Whether `undisturbed` has the lock of every host; else tasks take the lock of theirs, one by one."""
        ...

    def __getitem__(self, name: str) -> HostAccess: ...

    def look(self) -> tuple[dict[str, HostFacts], dict[str, str]]:
        """The facts of all hosts, asked at once: by host; and why the others cannot be used, by host too."""
        ...

    def each(self, names: Iterable[str], do: Callable[[HostAccess], Result]) -> dict[str, Result | str]:
        """Does something with several hosts at once. The answers by host; of an InfrastructureError its text."""
        ...

    def undisturbed(self) -> AbstractContextManager[None]:
        """Keeps other sweeps of this project off the hosts, and all others off this machine if it is one of them.

        Raises:
            NoUsableHostError: another sweep runs.
        """
        ...

    def gathered(self, say: Callable[[str], None]) -> AbstractContextManager[None]:
        """Around all that needs the cluster: one that is brought up for a sweep alone is taken down at the end."""
        ...

    def join(self, names: Iterable[str], say: Callable[[str], None]) -> tuple[dict[str, HostFacts], dict[str, str]]:
        """Makes hosts part of the cluster: their facts as processes of ours there see them; and why others are not.

        Raises:
            ConfigurationError: the settings of the cluster are wrong.
            InfrastructureError: this machine or its engine is at fault.
        """
        ...

    def mend(self, name: str, say: Callable[[str], None], campaign_id: str | None = None) -> HostFacts:
        """Brings a host of a cluster in use back into it, or a further host into it.

        Args:
            name: of the host.
            say: told about long steps.
            campaign_id: whose containers are removed there if nobody collects from them any more.

        Raises:
            InfrastructureError: it cannot be part now; says why.
        """
        ...

    def abort(self) -> None:
        """Ends all connections at once, so that nobody waits for a host any longer; new ones can be made."""
        ...

    def driver(self) -> DriverPlace:
        """Where the driver runs that uses them."""
        ...


class LocalHosts:
    """This machine alone: its Ray is started with the campaign, and the whole sweep holds its lock. See `Hosts`."""

    driver_root: Path | None = None
    are_locked = True

    def __init__(self, hosts: Mapping[str, HostAccess], connections: Connections) -> None:
        """Reaches nothing yet.

        Args:
            hosts: by name.
            connections: those that they use.
        """
        self._hosts = dict(hosts)
        self._connections = connections

    def __getitem__(self, name: str) -> HostAccess:
        return self._hosts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    @property
    def builder(self) -> str | None:
        """See `Hosts.builder`. A machine of its own may have chosen an engine."""
        engines = {access.settings.engine for access in self._hosts.values()}
        return engines.pop() if len(engines) == 1 else None

    def look(self) -> tuple[dict[str, HostFacts], dict[str, str]]:
        """See `Hosts.look`."""
        return _divided(self.each(self._hosts, lambda access: access.facts()))

    def each(self, names: Iterable[str], do: Callable[[HostAccess], Result]) -> dict[str, Result | str]:
        """See `Hosts.each`."""

        def one_of(name: str) -> Result | str:
            try:
                return do(self._hosts[name])
            except InfrastructureError as error:
                return str(error)

        chosen = list(names)
        return dict(zip(chosen, for_each(chosen, one_of, self._connections), strict=True))

    def abort(self) -> None:
        """See `Hosts.abort`."""
        self._connections.abort()

    def undisturbed(self) -> AbstractContextManager[None]:
        """See `Hosts.undisturbed`."""
        return this_machine_to_ourselves()

    def gathered(self, say: Say) -> AbstractContextManager[None]:  # noqa: ARG002 - the interface
        """See `Hosts.gathered`."""
        return nullcontext()

    def join(self, names: Iterable[str], say: Say) -> tuple[dict[str, HostFacts], dict[str, str]]:  # noqa: ARG002
        """See `Hosts.join`. There is nothing to bring together."""
        chosen = set(names)
        facts, problems = self.look()
        return {name: facts[name] for name in facts if name in chosen}, problems

    def mend(self, name: str, say: Say, campaign_id: str | None = None) -> HostFacts:  # noqa: ARG002
        """See `Hosts.mend`."""
        raise InfrastructureError("nobody mends it: it is part of no cluster of ours")

    def driver(self) -> DriverPlace:
        """See `Hosts.driver`."""
        return DriverPlace()


class NodeHosts(LocalHosts):
    """Nodes of somebody else's Ray cluster, which this process joins. Tasks hold the lock of their host."""

    are_locked = False

    def __init__(self, hosts: Mapping[str, HostAccess], cluster: ExternalCluster, project: Project) -> None:
        """Reaches nothing yet.

        Args:
            hosts: by name.
            cluster: whose nodes they are.
            project: whose sweeps take turns.
        """
        super().__init__(hosts, Connections({}))
        self._cluster = cluster
        self._project = project

    @property
    def builder(self) -> str | None:
        """See `Hosts.builder`."""
        return None

    def undisturbed(self) -> AbstractContextManager[None]:
        """See `Hosts.undisturbed`."""
        return project_to_ourselves(self._project)

    def driver(self) -> DriverPlace:
        """See `Hosts.driver`."""
        return DriverPlace(external=self._cluster)


class AgentHosts(LocalHosts):
    """Hosts of which one at least is reached over SSH: all of them get agents, and the driver runs in the head."""

    are_locked = False

    def __init__(
        self, hosts: Mapping[str, HostAccess], connections: Connections, inventory: Inventory, project: Project
    ) -> None:
        """Reaches nothing yet.

        Args:
            hosts: by name.
            connections: that know all of the inventory.
            inventory: with those that hosts are reached through.
            project: whose cluster it is.
        """
        super().__init__(hosts, connections)
        self._inventory = inventory
        self._project = project
        self._cluster: Cluster | None = None
        self.driver_root = project.root.resolve()

    @property
    def builder(self) -> str | None:
        """See `Hosts.builder`. Images come from this machine's usual engine, on which the head runs too."""
        return None

    def look(self) -> tuple[dict[str, HostFacts], dict[str, str]]:
        """See `Hosts.look`."""
        for name, access in self._hosts.items():
            if access.settings.executor is ExecutorChoice.PROCESS:
                problem = (
                    "executor process does without containers, which a host that is measured over SSH or beside such "
                    f"hosts cannot: write `executor: docker`, or leave it out with --limit '!{name}'"
                )
                raise self._inventory.error(problem, "hosts", name, "executor")
        return super().look()

    def undisturbed(self) -> AbstractContextManager[None]:
        """See `Hosts.undisturbed`."""
        return project_to_ourselves(self._project)

    def gathered(self, say: Say) -> AbstractContextManager[None]:
        """See `Hosts.gathered`."""
        return borrowed(self._project, say)

    def join(self, names: Iterable[str], say: Say) -> tuple[dict[str, HostFacts], dict[str, str]]:
        """See `Hosts.join`: brings the agents up."""
        chosen = {name: self._hosts[name].settings for name in names}
        try:
            self._cluster = up(chosen, self._inventory, self._project, say)
        except NoHostJoinedError as error:
            return {}, dict(error.reasons)
        agents = self._cluster.agents
        problems = {name: self._cluster.unusable[name] for name in chosen if name not in agents}
        facts, untold = _divided(self.each(agents.keys() & chosen.keys(), self._facts_of_agent))
        return facts, {**problems, **untold}

    def mend(self, name: str, say: Say, campaign_id: str | None = None) -> HostFacts:
        """See `Hosts.mend`."""
        if campaign_id is not None and self._cluster is not None:
            self._remove_orphans(name, self._cluster, campaign_id, say)
        self._cluster = mend(name, self._inventory.hosts, self._connections, self._project, say)
        access = self._hosts.get(name)
        if access is None:
            raise InfrastructureError(f"{name} takes no part in this command")
        return self._facts_of_agent(access)

    def driver(self) -> DriverPlace:
        """See `Hosts.driver`."""
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
def this_machine_to_ourselves() -> Iterator[None]:
    """Keeps others off this machine, local sweeps and tasks of clusters: two benchmarks at once measure each other.

    Raises:
        NoUsableHostError: another sweep measures here.
    """
    with HOST_LOCK.hold() as held:
        if not held.wait(_AT_ONCE_S):
            raise NoUsableHostError(f"another sweep runs on this machine; wait for it ({HOST_LOCK.path} is locked)")
        yield


@contextmanager
def project_to_ourselves(project: Project) -> Iterator[None]:
    """Keeps a second sweep off the cluster of this project, whose leftovers it would take for those of a killed one.

    Raises:
        NoUsableHostError: another sweep runs on it.
    """
    lock = _project_lock(project)
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Reading is enough for a lock, and allowed for a file that another user made.
        if not lock.exists():
            lock.touch(mode=0o644)
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NoUsableHostError(f"{lock} cannot be opened: {error.strerror}; remove it") from None
    try:
        if not held_at_once(descriptor):
            raise NoUsableHostError(
                f"another sweep of this project runs on the hosts of its cluster; wait for it ({lock} is locked)"
            )
        yield
    finally:
        os.close(descriptor)


def a_sweep_is_under_way(project: Project) -> bool:
    """Whether a sweep has this machine, or the cluster of this project, for itself."""
    return is_locked(HOST_LOCK.path) or is_locked(_project_lock(project))


def _project_lock(project: Project) -> Path:
    return project.state / "locks" / "remote-sweep"


def _divided(answers: Mapping[str, HostFacts | str]) -> tuple[dict[str, HostFacts], dict[str, str]]:
    facts = {name: answer for name, answer in answers.items() if not isinstance(answer, str)}
    return facts, {name: answer for name, answer in answers.items() if isinstance(answer, str)}
