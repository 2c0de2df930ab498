"""Brings a cluster up, mends it, tells how it is, and takes it down: one reconciliation, of all hosts or of one."""

import compileall
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from py_compile import PycInvalidationMode

from docker import DockerClient

from orchestrator.config import WORK_DIRECTORY, Host, Inventory
from orchestrator.environments import (
    connect,
    engine_address,
    engine_errors,
)
from orchestrator.errors import ConfigurationError, InfrastructureError, NoUsableHostError
from orchestrator.execution import pack_project, unpack
from orchestrator.hosts.cluster.engines import host_engine, observed
from orchestrator.hosts.cluster.image import AgentImage, ensure_agent_image
from orchestrator.hosts.cluster.model import Agent, Cluster, ClusterStatus, NodeStatus
from orchestrator.hosts.cluster.nodes import watching
from orchestrator.hosts.cluster.plan import (
    RUNNING,
    Observed,
    Site,
    Wanted,
    difference,
    refuse_unfit,
)
from orchestrator.hosts.cluster.probe import Listener, listened_ports
from orchestrator.hosts.cluster.reconcile import (
    local_socket,
    reconciled_agent,
    reconciled_head,
    remove_all,
    running_head,
)
from orchestrator.hosts.cluster.settings import chosen_ports
from orchestrator.hosts.cluster.state import Project, State, StateFiles, is_here
from orchestrator.hosts.cluster.survey import Survey, choose_address, is_own_address, listened_here, survey
from orchestrator.hosts.connection import Connections, HostConnectionError, for_each

_LOST = "the head of the cluster is gone"
_HERE = "the engine of this machine failed"
_THERE = "its engine failed"

Say = Callable[[str], None]


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
        hosts: by name.
        inventory: where they come from, with those that they are reached through.
        project: where we are.
        say: told about choices and long steps.
        first_port: of the cluster's ports; null keeps those it has, or takes some that are free everywhere.
        address: of this machine, as the hosts reach it; null finds it.

    Raises:
        ConfigurationError: the inventory or the ports are at fault.
        InfrastructureError: this machine or its engine is at fault.
        NoHostJoinedError: no host can be part; of a cluster that was not up before, nothing is left running.
    """
    files = StateFiles(project)
    known = {**inventory.hosts, **hosts}
    local_socket()
    with files.locked(say), Connections(known) as connections, closing(connect()) as client:
        surveys, unfit = _survey_all(hosts, connections)
        if not surveys:
            raise NoHostJoinedError(unfit)
        image = ensure_agent_image(files.root, client, engine_address(), say)
        state = _settled(files, first_port, address, surveys, say)
        for name in surveys:
            state = state.with_touched(name, known)
        files.save(state)
        try:
            state = _reconciled(client, state, files, image, surveys, hosts, connections, say)
        except InfrastructureError:
            if not state.agents:
                _dismantle(files, state, connections, say)
            raise
        state = replace(state, unusable={**unfit, **state.unusable})
        files.save(state)
        if not state.agents:
            _dismantle(files, state, connections, say)
        cluster = files.cluster(state)
    if cluster is None or not hosts.keys() & state.agents.keys():
        raise NoHostJoinedError(state.unusable)
    return cluster


def mend(name: str, hosts: Mapping[str, Host], connections: Connections, project: Project, say: Say) -> Cluster:
    """Makes a host part of the cluster of a project. An agent that serves it well is left alone.

    Other than `up` it never replaces or removes the head, and changes nothing of what runs in it.

    Args:
        name: of the host.
        hosts: it, and those that it is reached through.
        connections: that know them.
        project: where we are.
        say: told about long steps.

    Returns:
        The cluster, with the host.

    Raises:
        HostConnectionError: the host was not reached.
        InfrastructureError: it cannot be part; the message says why, without its name. Or there is no head.
    """
    host, files = hosts[name], StateFiles(project)
    refuse_unfit(host)
    seen = survey(name, host, connections)
    with files.locked(say), closing(connect()) as client:
        state = files.load()
        cluster = files.cluster(state)
        if state is None or cluster is None:
            raise InfrastructureError(_LOST)
        with engine_errors(_HERE):
            head = running_head(client, state, files)
        state = state.with_touched(name, hosts)
        files.save(state)
        site = _site(name, host, seen, state, files)
        with Listener(listened_ports(head.plan.ports)), watching(cluster) as watch:
            agent = reconciled_agent(site, head, state.agents.get(name), watch, connections, say)
        unusable = {other: reason for other, reason in state.unusable.items() if other != name}
        state = replace(state, agents={**state.agents, name: agent}, unusable=unusable)
        files.save(state)
        mended = files.cluster(state)
    assert mended is not None
    return mended


def status(project: Project) -> ClusterStatus | None:
    """Looks at the cluster of a project; null if there is none.

    A program of a few milliseconds is run in every agent: on the cores that are reserved for it, if there are any.

    Raises:
        InfrastructureError: the engine of this machine failed.
    """
    files = StateFiles(project)
    state = files.load()
    cluster = files.cluster(state)
    if state is None or cluster is None:
        return None
    with engine_errors(_HERE), closing(connect()) as client:
        found = observed(client, cluster.head_container, cluster.id)
    wanted = Wanted(token=files.token.read_text(encoding="ascii") if files.token.exists() else "")
    problems = difference(wanted, found).problems
    living: dict[str, tuple[str, ...]] = {}
    names = sorted({*cluster.agents, *cluster.unusable})
    if found.state == RUNNING:
        try:
            with watching(cluster) as watch:
                living = {name: watch.living(name) for name in names}
        except InfrastructureError as error:
            problems = (*problems, str(error))
    head = _described("head", cluster.head_address, found, not problems, problems)
    if found.versions is not None:
        wanted = replace(wanted, python=found.versions.python, ray=found.versions.ray)

    def look(name: str) -> NodeStatus:
        agent = cluster.agents.get(name)
        if agent is None:
            return _described(name, "-", Observed("none"), False, (f"it was left out: {cluster.unusable[name]}",))
        nodes = living.get(name, ())
        try:
            with engine_errors(_THERE), host_engine(name, state.hosts[name], connections) as engine:
                seen = observed(engine.client, cluster.agent_container, cluster.id, nodes)
        except InfrastructureError as error:
            return _described(name, agent.address, Observed("unknown"), agent.node in nodes, (_reason(error),))
        lives = seen.state == RUNNING and agent.node in nodes
        return _described(name, agent.address, seen, lives, difference(replace(wanted, node=agent.node), seen).problems)

    with Connections(state.hosts) as connections:
        return ClusterStatus(cluster.id, head, tuple(for_each(names, look, connections)))


def down(project: Project, say: Say) -> Mapping[str, str]:
    """Takes the cluster of a project down; nothing happens if there is none. Images stay on the hosts, and rows too.

    Returns:
        The hosts on which something may be left, each with the reason; a later call tries again.

    Raises:
        InfrastructureError: the engine of this machine failed.
    """
    files = StateFiles(project)
    with files.locked(say):
        state = files.load()
        if state is None:
            return {}
        with Connections(state.hosts) as connections:
            return _take_down(files, state, connections, say)


def load(project: Project) -> Cluster | None:
    """The cluster of a project as it was left, which may not run any more; null if there is none."""
    files = StateFiles(project)
    return files.cluster(files.load())


@contextmanager
def borrowed(project: Project, say: Say) -> Iterator[None]:
    """Lets a sweep bring a cluster up, and takes that down at the end, unless it was up before for its own sake.

    One that a killed sweep left is this one's, as if it had brought it up.

    Raises:
        InfrastructureError: the engine of this machine failed.
    """
    mark = StateFiles(project).of_a_sweep
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
    StateFiles(project).of_a_sweep.unlink(missing_ok=True)


def _reconciled(
    client: DockerClient,
    state: State,
    files: StateFiles,
    image: AgentImage,
    surveys: Mapping[str, Survey],
    hosts: Mapping[str, Host],
    connections: Connections,
    say: Say,
) -> State:
    """The state with the head and the agents that live; `unusable` has the hosts that failed now."""
    place = unpack(pack_project(), files.code)
    # for head and hosts: nobody compiles it again, and nothing is written beside it while Ray packs it
    compileall.compile_dir(place, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    state = replace(state, code=place.name)
    with engine_errors(_HERE):
        head = reconciled_head(client, state, files, image, say)
    if head.is_new:
        state = replace(state, agents={})
    sites = [_site(name, hosts[name], seen, state, files) for name, seen in surveys.items()]
    cluster = files.cluster(state)
    assert cluster is not None

    def bring(site: Site) -> Agent | str:
        try:
            tell = partial(_tell, say, site.name)
            return reconciled_agent(site, head, state.agents.get(site.name), watch, connections, tell)
        except InfrastructureError as error:
            return _reason(error)

    with Listener(listened_ports(head.plan.ports)), watching(cluster) as watch:
        found = {site.name: result for site, result in zip(sites, for_each(sites, bring, connections), strict=True)}
    others = {name: agent for name, agent in state.agents.items() if name not in hosts}
    agents = {name: result for name, result in found.items() if isinstance(result, Agent)}
    failed = {name: result for name, result in found.items() if isinstance(result, str)}
    return replace(state, agents={**others, **agents}, unusable=failed)


def _take_down(files: StateFiles, state: State, connections: Connections, say: Say) -> dict[str, str]:
    """As `down`, by whoever holds the lock."""

    def clear(name: str) -> str | None:
        try:
            with engine_errors(_THERE), host_engine(name, state.hosts[name], connections) as engine:
                remove_all(engine.client, state.id)
        except InfrastructureError as error:
            return _reason(error)
        say(f"{name}: the agent is gone")
        return None

    results = dict(zip(state.touched, for_each(state.touched, clear, connections), strict=True))
    with engine_errors(_HERE), closing(connect()) as client:
        remove_all(client, state.id)
    say("the head is gone")
    shutil.rmtree(state.sockets, ignore_errors=True)
    shutil.rmtree(files.code, ignore_errors=True)
    left = {name: problem for name, problem in results.items() if problem is not None}
    if left:
        files.save(replace(state, head_address=None, agents={}, touched=tuple(left), unusable={}))
    else:
        files.forget()
    return left


def _dismantle(files: StateFiles, state: State, connections: Connections, say: Say) -> None:
    """Takes down what serves no host. Whose it is stays noted: a sweep tries other hosts, with a cluster anew."""
    is_of_a_sweep = files.of_a_sweep.exists()
    _take_down(files, state, connections, say)
    if is_of_a_sweep:
        files.of_a_sweep.touch()


def _settled(
    files: StateFiles, first_port: int | None, address: str | None, surveys: Mapping[str, Survey], say: Say
) -> State:
    """The state with ports and address of the head."""
    state = files.load()
    if state is None:
        taken = listened_here().union(*(seen.listened for seen in surveys.values()))
        state = files.create(chosen_ports(first_port, taken))
    elif first_port is not None and first_port != state.first_port:
        say(f"the cluster moves to the ports from {first_port} on")
        state = replace(state, first_port=chosen_ports(first_port).first)
    if not files.token.exists():
        files.new_token()
    Path(state.sockets).mkdir(mode=0o700, exist_ok=True)
    if address is not None and not is_own_address(address):
        raise ConfigurationError(f"{address} is no IPv4 address of this machine; `ip -4 address` lists them")
    return replace(state, head_address=address or choose_address(surveys.values(), state.head_address))


def _site(name: str, host: Host, seen: Survey, state: State, files: StateFiles) -> Site:
    assert state.head_address is not None
    usual = str(files.directory.parent) if is_here(host) else WORK_DIRECTORY
    address = state.head_address if is_here(host) else (seen.own or host.address or "")
    return Site(name, host, host.work_directory or usual, seen, address)


def _survey_all(hosts: Mapping[str, Host], connections: Connections) -> tuple[dict[str, Survey], dict[str, str]]:
    def ask(name: str) -> Survey | str:
        try:
            refuse_unfit(hosts[name])
            return survey(name, hosts[name], connections)
        except InfrastructureError as error:
            return _reason(error)

    found = dict(zip(hosts, for_each(hosts, ask, connections), strict=True))
    surveys = {name: answer for name, answer in found.items() if isinstance(answer, Survey)}
    return surveys, {name: answer for name, answer in found.items() if isinstance(answer, str)}


def _described(name: str, address: str, found: Observed, is_alive: bool, problems: Sequence[str]) -> NodeStatus:
    versions = found.versions
    return NodeStatus(
        name=name,
        address=address,
        container=found.state,
        is_alive=is_alive,
        since=found.since,
        python=None if versions is None else versions.python,
        ray=None if versions is None else versions.ray,
        problems=tuple(problems),
    )


def _reason(error: InfrastructureError) -> str:
    return error.problem if isinstance(error, HostConnectionError) else str(error)


def _tell(say: Say, name: str, text: str) -> None:
    say(f"{name}: {text}")
