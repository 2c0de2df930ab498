"""Makes the head and the agents of a cluster what they should be: observed, compared, and kept or made anew."""

import os
import secrets
import shutil
import socket
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.environments import (
    TRANSFER_TIMEOUT_S,
    attributes_of,
    connect,
    copy_image,
    engine_address,
    engine_errors,
    find_image,
    host_network_problem,
    identity_of,
    start_container,
)
from orchestrator.errors import InfrastructureError, Say
from orchestrator.hosts.check.engine import ALL_GPUS
from orchestrator.hosts.cluster.engines import (
    RUNNING,
    ConnectedEngine,
    Observed,
    Watch,
    host_engine,
    observed,
    problems,
    remove,
)
from orchestrator.hosts.cluster.plan import (
    AgentImage,
    ClusterPlan,
    Site,
    agent_container,
    head_container,
)
from orchestrator.hosts.cluster.reach import probe
from orchestrator.hosts.cluster.settings import Ports, chosen_tls
from orchestrator.hosts.cluster.state import Agent, Cluster
from orchestrator.hosts.connection import Connections

JOIN_S = 90.0
"""That a node may take from the start of its container on; usually five."""

_HEAD_PORTS = 7
"""That a head listens on, counted from the first, besides those of its workers."""
_HEAD_S = 60.0
_POLL_S = 0.1
_LAST_COMMAND_S = 10.0
"""For what was told to end a moment ago, such as a look at the nodes."""
_LAST_LINES = 40
_MOST_CHARACTERS = 600
LOST = "the head of the cluster is gone"


@dataclass(frozen=True)
class Head:
    """The head that agents belong to."""

    plan: ClusterPlan
    """Its cluster has the agents that may belong to this head: none if it has just been made."""
    observed: Observed


def reconciled_head(client: DockerClient, cluster: Cluster, root: Path, image: AgentImage, say: Say) -> Head:
    """The head of the cluster: the one that runs, if it is as it should be.

    Raises:
        InfrastructureError: it cannot be made, or must be made anew while a command runs in it.
    """
    plan, name = _plan(cluster, image), cluster.head_container
    wanted = head_container(plan, root, local_socket())
    found = observed(client, name, cluster.id)
    if not problems(found, plan=wanted.digest):
        return Head(plan, found)
    if found.container is not None:
        _refuse_use(client, found.container)
        remove(found.container)
    problem = host_network_problem(client.info())
    if problem is not None:
        raise InfrastructureError(f"the head of a cluster cannot run on this machine: {problem}")
    _refuse_taken_ports(cluster.ports)
    say(f"starting the head on {cluster.ray_address}")
    container = start_container(client, wanted.created(), wanted.files, wanted.owner)
    try:
        _wait_for_head(container, cluster)
    except BaseException:
        remove(container)
        raise
    # nothing runs in a head that has just been made
    for place in cluster.code.parent.iterdir():
        if place.is_dir() and place != cluster.code:
            shutil.rmtree(place, ignore_errors=True)
    return Head(replace(plan, cluster=replace(cluster, agents={})), observed(client, name, cluster.id))


def running_head(client: DockerClient, cluster: Cluster) -> Head:
    """The head that runs, with the plan that agents of it are made from."""
    found = observed(client, cluster.head_container, cluster.id)
    if found.state != RUNNING:
        raise InfrastructureError(LOST)
    image_id = found.container.attrs["Image"]
    attributes = attributes_of(client, image_id)
    if attributes is None:
        raise InfrastructureError(f"the engine of this machine no longer has the image {image_id}")
    reference = str((attributes.get("RepoTags") or [attributes["Id"]])[0])
    return Head(_plan(cluster, AgentImage(reference, identity_of(attributes))), found)


def _plan(cluster: Cluster, image: AgentImage) -> ClusterPlan:
    return ClusterPlan(cluster, image, cluster.token_path.read_text(encoding="ascii"), chosen_tls(os.environ))


def reconciled_agent(site: Site, head: Head, watch: Watch, connections: Connections, say: Say) -> Agent:
    """The agent of a host, as a living node; the one that runs, if nothing is wrong with it.

    Raises:
        HostConnectionError: the host was not reached.
        InfrastructureError: it cannot be part; the message says why, without its name.
    """
    plan, cluster = head.plan, head.plan.cluster
    known, name = cluster.agents.get(site.name), cluster.agent_container
    if site.is_here:
        site = replace(site, address=str(cluster.head_address))
    with engine_errors("its engine failed"), host_engine(site.name, site.host, connections) as engine:
        client = engine.client
        problem = host_network_problem(client.info())
        if problem is not None:
            raise InfrastructureError(problem)
        image_id = _ensure_image(engine, plan.image, say)
        wanted = agent_container(plan, site, engine.socket, image_id, str(head.observed.container.id))
        found = observed(client, name, cluster.id, watch.living(site.name))
        ours = head.observed.versions
        if known is not None and not problems(found, plan=wanted.digest, node=known.node, versions=ours):
            return known
        if found.container is not None:
            remove(found.container)
        probed = probe(client, image_id, cluster, site)
        if site.host.reserved_cores >= len(probed.cores):
            raise InfrastructureError(
                f"the inventory reserves {site.host.reserved_cores} cores, but it has {len(probed.cores)}: write a "
                "smaller `reserved_cores:`"
            )
        if site.has_gpus and not probed.with_gpus:
            say("its engine gives no GPU to containers (no NVIDIA container toolkit): trials of processors only")
        say("starting the agent")
        agent = Agent(
            name=site.name,
            address=site.address,
            work_directory=site.work_directory,
            cores=probed.cores,
            agent_cores=probed.cores[: site.host.reserved_cores],
            image_id=image_id,
            gpu_uuids=probed.gpu_uuids,
            node=secrets.token_hex(6),
        )
        settings = {
            **wanted.created(agent.node),
            "cpuset_cpus": ",".join(map(str, agent.agent_cores)) or None,
            "device_requests": [ALL_GPUS] if probed.with_gpus else None,
        }
        container = start_container(client, settings, wanted.files, wanted.owner)
        try:
            _wait_for_node(container, agent, watch)
        except BaseException:
            remove(container)
            raise
        return agent


def last_words(log: str) -> str:
    """What a process said at its end, in one line; of tracebacks the exceptions alone."""
    lines = [line for line in log.splitlines() if line.strip()]
    kept: list[str] = []
    # The end of a log may begin within a frame
    in_frames = any(line.lstrip().startswith('File "') for line in lines) and lines[0][0].isspace()
    for line in lines:
        if line.startswith("Traceback (most recent call last)") or line.lstrip().startswith('File "'):
            in_frames = True
        elif not (in_frames and line[0].isspace()):
            in_frames = False
            kept.append(line)
    return " ".join(" ".join(kept or lines).split())[-_MOST_CHARACTERS:] or "it said nothing"


def local_socket() -> str:
    """The socket of this machine's engine."""
    address = engine_address()
    if not address.startswith("unix://"):
        raise InfrastructureError(
            f"the head of a cluster runs on this machine, and the engine at {address} is on another: unset DOCKER_HOST"
        )
    return address.removeprefix("unix://")


def _ensure_image(engine: ConnectedEngine, image: AgentImage, say: Say) -> str:
    """The id of the agents' image on an engine, which is sent the image if it has none that is identical."""
    found = find_image(engine.client, (image.reference, image.identity.image_id), image.identity)
    if found is not None:
        return str(found["Id"])
    say(f"sending {image.reference}")
    with closing(connect()) as source, closing(connect(engine.address, TRANSFER_TIMEOUT_S)) as target:
        source.api.timeout = TRANSFER_TIMEOUT_S
        return str(copy_image(image.reference, image.identity, source, target, say)["Id"])


def _refuse_use(client: DockerClient, container: Any) -> None:
    """A head that is made anew ends what runs in it."""
    deadline = time.monotonic() + _LAST_COMMAND_S
    while any(
        client.api.exec_inspect(command)["Running"]
        for command in client.api.inspect_container(container.id).get("ExecIDs") or ()
    ):
        if time.monotonic() > deadline:
            raise InfrastructureError(
                "the cluster must start anew, because its image or its settings have changed, but a command "
                "runs in its head: wait for it, or end it with `taxmeter cluster down`"
            )
        time.sleep(_POLL_S)


def _refuse_taken_ports(ports: Ports) -> None:
    for port in (ports.head, *range(ports.first + 1, ports.first + _HEAD_PORTS)):
        try:
            socket.create_server(("", port)).close()
        except OSError as error:
            raise InfrastructureError(
                f"port {port} of this machine is taken ({error.strerror}): end what has it, or take other ports with "
                "--first-port"
            ) from None


def _wait_for_head(container: Any, cluster: Cluster) -> None:
    address, port = str(cluster.head_address), cluster.ports.head
    deadline = time.monotonic() + _HEAD_S
    while True:
        try:
            socket.create_connection((address, port), 1).close()
        except OSError:
            container.reload()
        else:
            return
        if container.status != RUNNING or time.monotonic() > deadline:
            said = container.logs(tail=15).decode("utf-8", "replace").strip()
            raise InfrastructureError(f"the head of the cluster does not start on {address}:{port}:\n{said}")
        time.sleep(_POLL_S)


def _wait_for_node(container: Any, agent: Agent, watch: Watch) -> None:
    deadline = time.monotonic() + JOIN_S
    # alone: one that came before it may still count as alive for a moment
    while watch.living(agent.name) != (agent.node,):
        container.reload()
        if container.status != RUNNING:
            said = last_words(container.logs(tail=_LAST_LINES).decode("utf-8", "replace"))
            raise InfrastructureError(f"its agent ended: {said}")
        if time.monotonic() > deadline:
            raise InfrastructureError(f"its agent runs, but has not become a node of Ray within {JOIN_S:g} s")
        watch.wait(0.5)
