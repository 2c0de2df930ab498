"""Brings one host into a cluster that is in use, or back into it. The head stays as it is, and what runs in it."""

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from docker import DockerClient

from orchestrator.config.inventory import Host
from orchestrator.environments import attributes_of, connect, engine_errors, identity_of
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.agents import Plan
from orchestrator.hosts.cluster.code import packed_again
from orchestrator.hosts.cluster.engines import find
from orchestrator.hosts.cluster.image import AgentImage
from orchestrator.hosts.cluster.joining import Say, bring
from orchestrator.hosts.cluster.model import HEAD_CONTAINER, Cluster
from orchestrator.hosts.cluster.probe import Listener, listened_ports
from orchestrator.hosts.cluster.settings import Ports, chosen_tls
from orchestrator.hosts.cluster.starting import refuse_unfit, site_of
from orchestrator.hosts.cluster.state import Project, State, StateFiles, cluster_of
from orchestrator.hosts.cluster.survey import survey
from orchestrator.hosts.cluster.watching import watching
from orchestrator.hosts.connection import Connections

_LOST = "the head of the cluster is gone"


def mend(name: str, hosts: Mapping[str, Host], connections: Connections, project: Project, say: Say) -> Cluster:
    """Makes a host part of the cluster of a project. An agent that serves it well is left alone.

    Other than `up` it never replaces or removes the head, and its agent gets the code that the head has, though ours
    may have changed since.

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
        cluster = None if state is None else cluster_of(state, files)
        if state is None or cluster is None:
            raise InfrastructureError(_LOST)
        with engine_errors("the engine of this machine failed"):
            plan = _plan(client, state, files)
        state = state.with_touched(name, hosts)
        files.save(state)
        site = site_of(name, host, seen, state, files)
        with Listener(listened_ports(plan.ports)), watching(cluster) as watch:
            agent = bring(site, plan, state.agents.get(name), watch, connections, say)
        unusable = {one: why for one, why in state.unusable.items() if one != name}
        state = replace(state, agents={**state.agents, name: agent}, unusable=unusable)
        files.save(state)
        mended = cluster_of(state, files)
    assert mended is not None
    return mended


def _plan(client: DockerClient, state: State, files: StateFiles) -> Plan:
    """What the agents of the head that runs are made from."""
    assert state.head_address is not None
    head = find(client, f"{HEAD_CONTAINER}{state.id}", state.id)
    if head is None or head.status != "running":
        raise InfrastructureError(_LOST)
    variables = dict(one.split("=", 1) for one in head.attrs["Config"]["Env"])
    attributes = attributes_of(client, head.attrs["Image"])
    if attributes is None:
        raise InfrastructureError(f"the engine of this machine no longer has the image {head.attrs['Image']}")
    reference = str((attributes.get("RepoTags") or [attributes["Id"]])[0])
    return Plan(
        cluster=state.id,
        head_address=state.head_address,
        head_container=str(head.id),
        ports=Ports(state.first_port),
        image=AgentImage(reference, identity_of(attributes)),
        code=packed_again(Path(variables["PYTHONPATH"])),
        token=files.token.read_text(encoding="ascii"),
        tls=chosen_tls(os.environ),
    )
