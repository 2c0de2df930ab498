"""Brings a cluster up. What runs and is right stays as it is."""

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from docker import DockerClient

from orchestrator.config.inventory import WORK_DIRECTORY, ExecutorChoice, Host, HostState, Inventory
from orchestrator.environments import connect, engine_address, engine_errors
from orchestrator.errors import ConfigurationError, InfrastructureError, NoUsableHostError
from orchestrator.hosts.cluster.agents import Plan, Site, refuse_labels
from orchestrator.hosts.cluster.boot import prune
from orchestrator.hosts.cluster.code import CodeArchive, install_here, pack_code
from orchestrator.hosts.cluster.head import Head, HeadPlan, ensure_head, local_socket
from orchestrator.hosts.cluster.image import AgentImage, ensure_agent_image
from orchestrator.hosts.cluster.joining import bring
from orchestrator.hosts.cluster.model import Agent, Cluster
from orchestrator.hosts.cluster.probe import Listener, listened_ports
from orchestrator.hosts.cluster.settings import Ports, chosen_ports, chosen_tls
from orchestrator.hosts.cluster.state import Project, State, StateFiles, cluster_of, is_here
from orchestrator.hosts.cluster.stopping import take_down
from orchestrator.hosts.cluster.survey import Survey, choose_address, is_own_address, listened_here, survey
from orchestrator.hosts.cluster.watching import watching
from orchestrator.hosts.connection import Connections, HostConnectionError, for_each

Say = Callable[[str], None]


class NoHostJoinedError(NoUsableHostError):
    """None of the hosts that were named can be part of the cluster."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(f"no host can be part of the cluster: {_listed(reasons)}")
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
        surveys, unusable = _survey_all(hosts, connections)
        if not surveys:
            raise NoHostJoinedError(unusable)
        image = ensure_agent_image(files.root, client, engine_address(), say)
        state = _settled(files, first_port, address, surveys, say)
        for name in surveys:
            state = state.with_touched(name, known)
        files.save(state)
        try:
            state = _brought(client, state, files, image, surveys, hosts, connections, say)
        except InfrastructureError:
            if not state.agents:
                _dismantle(files, state, connections, say)
            raise
        state = replace(state, unusable={**unusable, **state.unusable})
        files.save(state)
        if not state.agents:
            _dismantle(files, state, connections, say)
        cluster = cluster_of(state, files)
    if cluster is None or not hosts.keys() & state.agents.keys():
        raise NoHostJoinedError(state.unusable)
    return cluster


def load(project: Project) -> Cluster | None:
    """The cluster of a project as it was left, which may not run any more; null if there is none."""
    files = StateFiles(project)
    state = files.load()
    return None if state is None else cluster_of(state, files)


def _brought(
    client: DockerClient,
    state: State,
    files: StateFiles,
    image: AgentImage,
    surveys: Mapping[str, Survey],
    hosts: Mapping[str, Host],
    connections: Connections,
    say: Say,
) -> State:
    """The state with the agents that live; `unusable` has the hosts that failed now."""
    with engine_errors("the engine of this machine failed"):
        head, plan = _head(client, state, files, image, pack_code(), say)
    if head.is_new:
        state = replace(state, agents={})
    sites = [site_of(name, hosts[name], one, state, files) for name, one in surveys.items()]
    agents, failed = _bring_all(sites, plan, state, files, connections, say)
    others = {name: agent for name, agent in state.agents.items() if name not in hosts}
    return replace(state, agents={**others, **agents}, unusable=failed)


def _dismantle(files: StateFiles, state: State, connections: Connections, say: Say) -> None:
    """Takes down what serves no host. Whose it is stays noted: a sweep tries other hosts, with a cluster anew."""
    is_of_a_sweep = files.of_a_sweep.exists()
    take_down(files, state, connections, say)
    if is_of_a_sweep:
        files.of_a_sweep.touch()


def _settled(
    files: StateFiles, first_port: int | None, address: str | None, surveys: Mapping[str, Survey], say: Say
) -> State:
    """The state with ports and address of the head."""
    state = files.load()
    if state is None:
        taken = listened_here().union(*(one.listened for one in surveys.values()))
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


def _head(
    client: DockerClient, state: State, files: StateFiles, image: AgentImage, code: CodeArchive, say: Say
) -> tuple[Head, Plan]:
    assert state.head_address is not None
    ports = Ports(state.first_port)
    place = install_here(code, files.code)
    tls = chosen_tls(os.environ)
    wanted = HeadPlan(state.id, state.head_address, ports, image, place, state.sockets, tls)
    head = ensure_head(client, wanted, files, say)
    prune(files.code, [code.name])
    token = files.token.read_text(encoding="ascii")
    return head, Plan(state.id, state.head_address, head.container_id, ports, image, code, token, tls)


def site_of(name: str, host: Host, one: Survey, state: State, files: StateFiles) -> Site:
    """A host that was reached, as its agent is made for it."""
    assert state.head_address is not None
    usual = str(files.directory.parent) if is_here(host) else WORK_DIRECTORY
    address = state.head_address if is_here(host) else (one.own or host.address or "")
    return Site(name, host, host.work_directory or usual, one, address)


def _survey_all(hosts: Mapping[str, Host], connections: Connections) -> tuple[dict[str, Survey], dict[str, str]]:
    def ask(name: str) -> Survey | str:
        try:
            refuse_unfit(hosts[name])
            return survey(name, hosts[name], connections)
        except InfrastructureError as error:
            return _reason(error)

    found = dict(zip(hosts, for_each(hosts, ask, connections), strict=True))
    surveys = {name: one for name, one in found.items() if isinstance(one, Survey)}
    return surveys, {name: one for name, one in found.items() if isinstance(one, str)}


def _bring_all(
    sites: list[Site], plan: Plan, state: State, files: StateFiles, connections: Connections, say: Say
) -> tuple[dict[str, Agent], dict[str, str]]:
    cluster = cluster_of(state, files)
    assert cluster is not None

    def one(site: Site) -> Agent | str:
        tell = partial(_tell, say, site.name)
        try:
            return bring(site, plan, state.agents.get(site.name), watch, connections, tell)
        except InfrastructureError as error:
            return _reason(error)

    with Listener(listened_ports(plan.ports)), watching(cluster) as watch:
        found = {site.name: result for site, result in zip(sites, for_each(sites, one, connections), strict=True)}
    agents = {name: result for name, result in found.items() if isinstance(result, Agent)}
    return agents, {name: result for name, result in found.items() if isinstance(result, str)}


def refuse_unfit(host: Host) -> None:
    """Refuses a host that the inventory keeps out.

    Raises:
        InfrastructureError: says why.
    """
    if host.state is HostState.DRAIN:
        raise InfrastructureError("the inventory drains it")
    if host.executor is ExecutorChoice.PROCESS:
        raise InfrastructureError(
            "on a cluster trials run in containers only, but the inventory says `executor: process`"
        )
    refuse_labels(host)


def _reason(error: InfrastructureError) -> str:
    return error.problem if isinstance(error, HostConnectionError) else str(error)


def _listed(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or "none was named"


def _tell(say: Say, name: str, text: str) -> None:
    say(f"{name}: {text}")
