"""How a cluster is: the containers as their engines tell, the nodes as Ray tells, the code and versions as they are."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from docker import DockerClient

from orchestrator.environments import connect, engine_errors
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.agents import read_report
from orchestrator.hosts.cluster.boot import token_digest
from orchestrator.hosts.cluster.commands import run_in
from orchestrator.hosts.cluster.engines import LABEL_NODE, find, host_engine
from orchestrator.hosts.cluster.model import AGENT_CONTAINER, Agent, Cluster, ClusterStatus, NodeStatus
from orchestrator.hosts.cluster.state import Project, State, StateFiles, cluster_of
from orchestrator.hosts.cluster.watching import Node, watching
from orchestrator.hosts.connection import Connections, HostConnectionError, for_each

_MEND = "`taxmeter cluster up` mends it"


def status(project: Project) -> ClusterStatus | None:
    """Looks at the cluster of a project; null if there is none.

    A program of a few milliseconds is run in every agent: on the cores that are reserved for it, if there are any.

    Args:
        project: where we are.

    Raises:
        InfrastructureError: the engine of this machine failed.
    """
    files = StateFiles(project)
    state = files.load()
    cluster = None if state is None else cluster_of(state, files)
    if state is None or cluster is None:
        return None
    with engine_errors("the engine of this machine failed"), closing(connect()) as client:
        head = _head(client, cluster)
    nodes, problem = _nodes(cluster) if head.container == "running" else (None, None)
    if problem is not None:
        head = replace(head, is_alive=False, problems=(*head.problems, problem))
    names = sorted({*cluster.agents, *cluster.unusable})
    with Connections(state.hosts) as connections:
        agents = for_each(names, lambda name: _agent(name, state, cluster, nodes, head, connections), connections)
    return ClusterStatus(cluster.id, head, tuple(agents))


def _head(client: DockerClient, cluster: Cluster) -> NodeStatus:
    container = find(client, cluster.head_container, cluster.id)
    state = "missing" if container is None else str(container.status)
    found = None
    problems = [] if state == "running" else [f"its container is {state}; {_MEND}"]
    if container is not None and state == "running":
        code = run_in(container, ["sh", "-c", 'printf %s "$PYTHONPATH"']).output.decode()
        found = read_report(container, code, f"{code}/orchestrator/hosts/cluster/boot.py")
        if found is None:
            problems.append(f"it does not tell its versions; {_MEND}")
    return _described("head", cluster.head_address, state, not problems, container, found, problems)


def _agent(
    name: str,
    state: State,
    cluster: Cluster,
    nodes: Sequence[Node] | None,
    head: NodeStatus,
    connections: Connections,
) -> NodeStatus:
    agent = cluster.agents.get(name)
    if agent is None:
        why = f"it was left out: {cluster.unusable[name]}"
        return NodeStatus(name, "-", "none", False, None, None, None, None, (why,))
    living = [one.node for one in nodes or () if one.host == name and one.is_alive]
    try:
        with (
            engine_errors("its engine failed"),
            host_engine(name, state.hosts[name], connections) as engine,
        ):
            return _running(engine.client, agent, cluster, living, head)
    except InfrastructureError as error:
        reason = error.problem if isinstance(error, HostConnectionError) else str(error)
        is_alive = agent.node in living
        return NodeStatus(name, agent.address, "unknown", is_alive, None, None, None, None, (reason,))


def _running(
    client: DockerClient, agent: Agent, cluster: Cluster, living: Sequence[str], head: NodeStatus
) -> NodeStatus:
    container = find(client, f"{AGENT_CONTAINER}{cluster.id}", cluster.id)
    state = "missing" if container is None else str(container.status)
    is_alive = agent.node in living
    if container is None or state != "running":
        problems = [f"its container is {state}; {_MEND}"]
        # Ray hears of its end a moment later
        return _described(agent.name, agent.address, state, False, container, None, problems)
    found = read_report(container, agent.code)
    problems = _misfits(found, agent, head, token_digest(cluster.token_path))
    if container.labels.get(LABEL_NODE) != agent.node:
        problems.append(f"its container is not the one that `up` started; {_MEND}")
    if not is_alive:
        problems.append(f"its container runs, but Ray does not count it among the living nodes; {_MEND}")
    return _described(agent.name, agent.address, state, is_alive, container, found, problems)


def _misfits(found: dict[str, str] | None, agent: Agent, head: NodeStatus, token: str) -> list[str]:
    if found is None:
        return [f"it does not tell its versions; {_MEND}"]
    problems = []
    if found["token"] != token:
        problems.append(f"its token is not that of the cluster; {_MEND}")
    if found["code"] != agent.code_digest:
        problems.append(f"the code there is {found['code'][:12]}, not {agent.code_digest[:12]}; {_MEND}")
    for what, theirs, ours in (("Ray", found["ray"], head.ray), ("Python", found["python"], head.python)):
        if ours is not None and theirs != ours:
            problems.append(f"it has {what} {theirs}, and the head has {ours}; {_MEND}")
    return problems


def _nodes(cluster: Cluster) -> tuple[Sequence[Node] | None, str | None]:
    try:
        with watching(cluster) as watch:
            return watch.nodes(), None
    except InfrastructureError as error:
        return None, str(error)


def _described(
    name: str,
    address: str,
    state: str,
    is_alive: bool,
    container: Any,
    found: dict[str, str] | None,
    problems: Sequence[str],
) -> NodeStatus:
    return NodeStatus(
        name=name,
        address=address,
        container=state,
        is_alive=is_alive,
        since=str(container.attrs["State"]["StartedAt"])[:19] + "Z" if state == "running" else None,
        python=found["python"] if found else None,
        ray=found["ray"] if found else None,
        code_digest=found["code"] if found else None,
        problems=tuple(problems),
    )
