"""Brings one host into the cluster: image, code, agent, and proof that all sides reach each other."""

import time
from collections.abc import Callable
from contextlib import closing

from docker import DockerClient

from orchestrator.environments import (
    TRANSFER_TIMEOUT_S,
    attributes_of,
    connect,
    copy_identical,
    differences,
    engine_errors,
    host_network_problem,
    identity_of,
)
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.agents import (
    Plan,
    Site,
    agent_log,
    digest_of,
    forget_old_code,
    remove_agent,
    running_node,
    start_agent,
)
from orchestrator.hosts.cluster.engines import ANSWER_S, HostEngine, host_engine
from orchestrator.hosts.cluster.image import AgentImage
from orchestrator.hosts.cluster.model import Agent
from orchestrator.hosts.cluster.probe import probe
from orchestrator.hosts.cluster.state import is_here
from orchestrator.hosts.cluster.watching import Watch
from orchestrator.hosts.connection import Connections

JOIN_S = 90.0
"""That a node may take from the start of its container on; usually five."""

Say = Callable[[str], None]


def bring(site: Site, plan: Plan, known: Agent | None, watch: Watch, connections: Connections, say: Say) -> Agent:
    """The agent of a host, as a living node; the one that runs, if nothing is wrong with it.

    Args:
        site: the host.
        plan: of all agents.
        known: the agent that was remembered.
        watch: over the nodes.
        connections: that know the host.
        say: told about what is done, with the host's name first.

    Raises:
        HostConnectionError: the host was not reached.
        InfrastructureError: it cannot be part; the message says why, without its name.
    """
    with engine_errors("its engine failed"), host_engine(site.name, site.host, connections) as engine:
        _refuse_unfit(engine.client)
        image_id = _ensure_image(engine, plan.image, say)
        digest = digest_of(engine.socket, plan, site, image_id)
        node = running_node(engine.client, plan, site, digest)
        if node is not None and known is not None and known.node == node and watch.serves(site.name, node):
            return known
        remove_agent(engine.client, plan.cluster)
        here = is_here(site.host)
        image = (image_id, plan.cluster)
        probed = probe(engine.client, *image, plan.head_address, site.address, plan.ports, site.survey.has_gpus, here)
        _refuse_cores(site, probed.cores)
        if site.survey.has_gpus and not probed.with_gpus:
            say("its engine gives no GPU to containers (no NVIDIA container toolkit): trials of processors only")
        say("starting the agent")
        agent = start_agent(engine, plan, site, probed, image_id)
        try:
            _wait(engine.client, plan.cluster, agent, watch)
        except BaseException:
            remove_agent(engine.client, plan.cluster)
            raise
        problem = forget_old_code(engine.client, plan, site)
        if problem is not None:
            say(f"old code below {site.work_directory}/code stays there: {problem}")
        return agent


def _wait(client: DockerClient, cluster: str, agent: Agent, watch: Watch) -> None:
    deadline = time.monotonic() + JOIN_S
    while not watch.serves(agent.name, agent.node):
        log = agent_log(client, cluster)
        if log is not None:
            raise InfrastructureError(f"its agent ended: {log}")
        if time.monotonic() > deadline:
            raise InfrastructureError(f"its agent runs, but has not become a node of Ray within {JOIN_S:g} s")
        watch.wait(0.5)


def _ensure_image(engine: HostEngine, image: AgentImage, say: Say) -> str:
    """The id of the agents' image on an engine, which is sent the image if it has none that is identical."""
    for name in (image.reference, image.identity.image_id):
        found = attributes_of(engine.client, name)
        if found is not None and not differences(image.identity, identity_of(found)):
            return str(found["Id"])
    say(f"sending {image.reference}")
    with closing(connect()) as source, closing(connect(engine.address, TRANSFER_TIMEOUT_S)) as target:
        source.api.timeout = TRANSFER_TIMEOUT_S
        return str(copy_identical(image.reference, image.identity, source, target, say)["Id"])


def _refuse_unfit(client: DockerClient) -> None:
    client.api.timeout = ANSWER_S
    problem = host_network_problem(client.info())
    if problem is not None:
        raise InfrastructureError(problem)


def _refuse_cores(site: Site, cores: tuple[int, ...]) -> None:
    if site.host.reserved_cores >= len(cores):
        raise InfrastructureError(
            f"the inventory reserves {site.host.reserved_cores} cores, but it has {len(cores)}: write a smaller "
            "`reserved_cores:`"
        )
