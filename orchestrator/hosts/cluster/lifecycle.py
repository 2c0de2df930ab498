"""Brings a cluster up, mends it, tells how it is, and takes it down: one reconciliation, of all hosts or of one."""

import compileall
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from py_compile import PycInvalidationMode

from docker import DockerClient

from orchestrator.config import Host, Inventory
from orchestrator.environments import connect, engine_address, engine_errors
from orchestrator.errors import ConfigurationError, InfrastructureError, NoUsableHostError, Say
from orchestrator.execution import pack_project, unpack
from orchestrator.hosts.cluster.engines import RUNNING, Observed, host_engine, observed, problems, remove_all, watching
from orchestrator.hosts.cluster.plan import AgentImage, Site, ensure_agent_image
from orchestrator.hosts.cluster.reach import choose_address, is_own_address, listened_here, listening, survey
from orchestrator.hosts.cluster.reconcile import (
    LOST,
    local_socket,
    reconciled_agent,
    reconciled_head,
    running_head,
)
from orchestrator.hosts.cluster.settings import chosen_ports
from orchestrator.hosts.cluster.state import Agent, Cluster, ClusterFiles, ClusterStatus, NodeStatus, Project
from orchestrator.hosts.connection import Connections, for_each, of_each, reason

_HERE = "the engine of this machine failed"
_THERE = "its engine failed"


class NoHostJoinedError(NoUsableHostError):
    """None of the hosts that were named can be part of the cluster."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or "none was named"
        super().__init__(f"no host can be part of the cluster: {listed}")
        self.reasons = reasons
        """By host."""


def up(
    hosts: Mapping[str, Host],
    inventory: Inventory,
    project: Project,
    say: Say,
    *,
    first_port: int | None = None,
    address: str | None = None,
) -> Cluster:
    """Brings the cluster of a project up on these hosts, and mends what is wrong with it.

    Hosts that cannot be part are left out and named with the reason; agents on other hosts stay as they are.

    Args:
        first_port: of the cluster's ports; null keeps those it has, or takes some that are free everywhere.
        address: of this machine, as the hosts reach it; null finds it.

    Raises:
        ConfigurationError: the inventory or the ports are at fault.
        InfrastructureError: this machine or its engine is at fault.
        NoHostJoinedError: no host can be part; of a cluster that was not up before, nothing is left running.
    """
    files = ClusterFiles(project)
    known = {**inventory.hosts, **hosts}
    for name in [name for name, host in hosts.items() if host.python is not None]:
        say(f"{name} gets no agent: its trials run in the interpreter that the inventory names")
    if not (hosts := {name: host for name, host in hosts.items() if host.python is None}):
        raise NoHostJoinedError(dict.fromkeys(known, "no host needs an agent"))
    local_socket()
    with files.locked(say), Connections(known) as connections, closing(connect()) as client:
        sites, unfit = of_each(hosts, lambda name: survey(name, hosts[name], connections, project), connections)
        if not sites:
            raise NoHostJoinedError(unfit)
        image = ensure_agent_image(files.root, client, engine_address(), say)
        cluster = _settled(files, first_port, address, sites.values(), say)
        for name in sites:
            cluster = cluster.with_touched(name, known)
        files.save(cluster)
        try:
            cluster = _reconciled(client, cluster, files, image, sites, connections, say)
        except InfrastructureError:
            if not cluster.agents:
                _take_down(files, cluster, connections, say)
            raise
        others = {name: agent for name, agent in cluster.agents.items() if name not in unfit}
        cluster = replace(cluster, agents=others, unusable={**unfit, **cluster.unusable})
        files.save(cluster)
        if not cluster.agents:
            _take_down(files, cluster, connections, say)
    if not hosts.keys() & cluster.agents.keys():
        raise NoHostJoinedError(cluster.unusable)
    return cluster


def mend(name: str, hosts: Mapping[str, Host], connections: Connections, project: Project, say: Say) -> Cluster:
    """Makes a host part of the cluster of a project. An agent that serves it well is left alone.

    Other than `up` it never replaces or removes the head, and changes nothing of what runs in it.

    Returns:
        The cluster, with the host.

    Raises:
        HostConnectionError: the host was not reached.
        InfrastructureError: it cannot be part; the message says why, without its name. Or there is no head.
    """
    files = ClusterFiles(project)
    site = survey(name, hosts[name], connections, project)
    with files.locked(say), closing(connect()) as client:
        cluster = load(project)
        if cluster is None:
            raise InfrastructureError(LOST)
        with engine_errors(_HERE):
            head = running_head(client, cluster)
        cluster = cluster.with_touched(name, hosts)
        files.save(cluster)
        with listening(cluster.ports), watching(cluster) as watch:
            agent = reconciled_agent(site, head, watch, connections, say)
        unusable = {other: reason for other, reason in cluster.unusable.items() if other != name}
        cluster = replace(cluster, agents={**cluster.agents, name: agent}, unusable=unusable)
        files.save(cluster)
    return cluster


def status(project: Project) -> ClusterStatus | None:
    """Looks at the cluster of a project; null if there is none.

    A program of a few milliseconds is run in every agent: on the cores that are reserved for it, if there are any.
    """
    cluster = load(project)
    if cluster is None:
        return None
    with engine_errors(_HERE), closing(connect()) as client:
        head = observed(client, cluster.head_container, cluster.id)
    wrong = problems(head)
    living: dict[str, tuple[str, ...]] = {}
    names = sorted({*cluster.agents, *cluster.unusable})
    if head.state == RUNNING:
        try:
            with watching(cluster) as watch:
                living = {name: watch.living(name) for name in names}
        except InfrastructureError as error:
            wrong = (*wrong, str(error))

    def look(name: str) -> NodeStatus:
        agent = cluster.agents.get(name)
        if agent is None:
            return _described(name, "-", Observed("none"), False, (f"it was left out: {cluster.unusable[name]}",))
        nodes = living.get(name, ())
        try:
            with engine_errors(_THERE), host_engine(name, cluster.hosts[name], connections) as engine:
                seen = observed(engine.client, cluster.agent_container, cluster.id, nodes)
        except InfrastructureError as error:
            return _described(name, agent.address, Observed("unknown"), agent.node in nodes, (reason(error),))
        lives = seen.state == RUNNING and agent.node in nodes
        return _described(name, agent.address, seen, lives, problems(seen, node=agent.node, versions=head.versions))

    with Connections(cluster.hosts) as connections:
        agents = tuple(for_each(names, look, connections))
    described = _described("head", str(cluster.head_address), head, not wrong, wrong)
    return ClusterStatus(cluster.id, described, agents)


def down(project: Project, say: Say) -> Mapping[str, str]:
    """Takes the cluster of a project down; nothing happens if there is none. Images stay on the hosts, and rows too.

    Returns:
        The hosts on which something may be left, each with the reason; a later call tries again.
    """
    files = ClusterFiles(project)
    with files.locked(say):
        cluster = files.load()
        if cluster is None:
            return {}
        with Connections(cluster.hosts) as connections:
            left = _take_down(files, cluster, connections, say)
        if not left:
            files.of_a_sweep.unlink(missing_ok=True)
        return left


def load(project: Project) -> Cluster | None:
    """The cluster of a project as it was left, which may not run any more; null if there is none."""
    found = ClusterFiles(project).load()
    return None if found is None or found.head_address is None else found


@contextmanager
def borrowed(project: Project, say: Say) -> Iterator[None]:
    """Lets a sweep bring a cluster up, and takes that down at the end, unless it was up before for its own sake.

    One that a killed sweep left is this one's, as if it had brought it up.
    """
    mark = ClusterFiles(project).of_a_sweep
    if load(project) is None:
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()
    try:
        yield
    finally:
        if mark.exists():
            for name, problem in down(project, say).items():
                say(f"{name}: something of the cluster may be left there: {problem}")
            mark.unlink(missing_ok=True)


def keep(project: Project) -> None:
    """Notes that somebody wants the cluster for its own sake, whoever brought it up."""
    ClusterFiles(project).of_a_sweep.unlink(missing_ok=True)


def _reconciled(
    client: DockerClient,
    cluster: Cluster,
    files: ClusterFiles,
    image: AgentImage,
    sites: Mapping[str, Site],
    connections: Connections,
    say: Say,
) -> Cluster:
    """The cluster with the head and the agents that live; `unusable` has the hosts that failed now."""
    code = unpack(pack_project(), files.code)
    # for head and hosts: nobody compiles it again, and nothing is written beside it while Ray packs it
    compileall.compile_dir(code, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    with engine_errors(_HERE):
        head = reconciled_head(client, replace(cluster, code=code), files.root, image, say)
    cluster = head.plan.cluster

    def bring(name: str) -> Agent:
        return reconciled_agent(sites[name], head, watch, connections, lambda text: say(f"{name}: {text}"))

    with listening(cluster.ports), watching(cluster) as watch:
        agents, failed = of_each(sites, bring, connections)
    others = {name: agent for name, agent in cluster.agents.items() if name not in failed}
    return replace(cluster, agents={**others, **agents}, unusable=failed)


def _take_down(files: ClusterFiles, cluster: Cluster, connections: Connections, say: Say) -> dict[str, str]:
    """As `down`, by whoever holds the lock. Whose it was stays noted: a sweep tries other hosts, with a new cluster."""

    def clear(name: str) -> None:
        with engine_errors(_THERE), host_engine(name, cluster.hosts[name], connections) as engine:
            remove_all(engine.client, cluster.id)
        say(f"{name}: the agent is gone")

    _, left = of_each(cluster.touched, clear, connections)
    with engine_errors(_HERE), closing(connect()) as client:
        remove_all(client, cluster.id)
    say("the head is gone")
    shutil.rmtree(cluster.sockets, ignore_errors=True)
    shutil.rmtree(files.code, ignore_errors=True)
    if left:
        files.save(replace(cluster, head_address=None, agents={}, touched=tuple(left), unusable={}))
    else:
        files.forget(cluster)
    return left


def _settled(
    files: ClusterFiles, first_port: int | None, address: str | None, sites: Collection[Site], say: Say
) -> Cluster:
    """The cluster with ports and address of the head."""
    cluster = files.load()
    if cluster is None:
        taken = listened_here().union(*(site.listened for site in sites))
        cluster = files.create(chosen_ports(first_port, taken))
    elif first_port is not None and first_port != cluster.first_port:
        say(f"the cluster moves to the ports from {first_port} on")
        cluster = replace(cluster, first_port=chosen_ports(first_port).first)
    if not cluster.token_path.exists():
        files.new_token(cluster)
    cluster.sockets.mkdir(mode=0o700, exist_ok=True)
    if address is not None and not is_own_address(address):
        raise ConfigurationError(f"{address} is no IPv4 address of this machine; `ip -4 address` lists them")
    return replace(cluster, head_address=address or choose_address(sites, cluster.head_address))


def _described(name: str, address: str, found: Observed, is_alive: bool, wrong: tuple[str, ...]) -> NodeStatus:
    versions = found.versions
    python, ray = (None, None) if versions is None else (versions.python, versions.ray)
    return NodeStatus(name, address, found.state, is_alive, found.since, python, ray, wrong)
