"""Makes the head and the agents of a cluster what they should be: observed, compared, and kept or made anew."""

import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.environments import (
    TRANSFER_TIMEOUT_S,
    attributes_of,
    connect,
    copy_identical,
    differences,
    engine_address,
    engine_errors,
    host_network_problem,
    identity_of,
)
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.engines import ANSWER_S, HostEngine, find, host_engine, observed, our_containers, remove
from orchestrator.hosts.cluster.image import AgentImage
from orchestrator.hosts.cluster.model import AGENT_CONTAINER, HEAD_CONTAINER, Agent
from orchestrator.hosts.cluster.nodes import Watch
from orchestrator.hosts.cluster.plan import (
    MISSING,
    RUNNING,
    Action,
    ClusterPlan,
    HeadPlace,
    Observed,
    Site,
    Wanted,
    agent_container,
    difference,
    head_container,
)
from orchestrator.hosts.cluster.probe import probe
from orchestrator.hosts.cluster.settings import Ports, chosen_tls
from orchestrator.hosts.cluster.state import State, StateFiles, is_here
from orchestrator.hosts.connection import Connections
from orchestrator.hosts.containers import ALL_GPUS, start_container

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
_LOST = "the head of the cluster is gone"
_HERE = "the engine of this machine failed"
_THERE = "its engine failed"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Head:
    """The head that agents belong to."""

    plan: ClusterPlan
    observed: Observed
    is_new: bool
    """Whether it has just been made, so that no node belongs to it yet."""


def reconciled_head(client: DockerClient, state: State, files: StateFiles, image: AgentImage, say: Say) -> Head:
    """The head of the cluster: the one that runs, if it is as it should be."""
    assert state.head_address is not None
    token = files.token.read_text(encoding="ascii")
    plan = ClusterPlan(state.id, state.head_address, Ports(state.first_port), image, token, chosen_tls(os.environ))
    wanted = head_container(plan, _head_place(state, files))
    name = f"{HEAD_CONTAINER}{plan.id}"
    found = observed(client, name, plan.id)
    action = difference(Wanted(plan=wanted.digest), found).action
    if action is Action.KEEP:
        return Head(plan, found, is_new=False)
    if action is Action.REPLACE:
        container = find(client, name, plan.id)
        if container is not None:
            _refuse_use(client, container)
            remove(container)
    problem = host_network_problem(client.info())
    if problem is not None:
        raise InfrastructureError(f"the head of a cluster cannot run on this machine: {problem}")
    _refuse_taken_ports(plan.ports)
    say(f"starting the head on {plan.address}:{plan.ports.head}")
    container = start_container(client, wanted.created(), wanted.files, wanted.owner)
    try:
        _wait_for_head(container, plan.address, plan.ports.head)
    except BaseException:
        remove(container)
        raise
    _remove_old_code(files, state.code)
    return Head(plan, observed(client, name, plan.id), is_new=True)


def running_head(client: DockerClient, state: State, files: StateFiles) -> Head:
    """The head that runs, with the plan that agents of it are made from."""
    assert state.head_address is not None
    container = find(client, f"{HEAD_CONTAINER}{state.id}", state.id)
    if container is None or container.status != RUNNING:
        raise InfrastructureError(_LOST)
    attributes = attributes_of(client, container.attrs["Image"])
    if attributes is None:
        raise InfrastructureError(f"the engine of this machine no longer has the image {container.attrs['Image']}")
    reference = str((attributes.get("RepoTags") or [attributes["Id"]])[0])
    image = AgentImage(reference, identity_of(attributes))
    token = files.token.read_text(encoding="ascii")
    plan = ClusterPlan(state.id, state.head_address, Ports(state.first_port), image, token, chosen_tls(os.environ))
    return Head(plan, observed(client, f"{HEAD_CONTAINER}{state.id}", state.id), is_new=False)


def reconciled_agent(
    site: Site, head: Head, known: Agent | None, watch: Watch, connections: Connections, say: Say
) -> Agent:
    """The agent of a host, as a living node; the one that runs, if nothing is wrong with it.

    Raises:
        HostConnectionError: the host was not reached.
        InfrastructureError: it cannot be part; the message says why, without its name.
    """
    plan, name = head.plan, f"{AGENT_CONTAINER}{head.plan.id}"
    with engine_errors(_THERE), host_engine(site.name, site.host, connections) as engine:
        client = engine.client
        client.api.timeout = ANSWER_S
        problem = host_network_problem(client.info())
        if problem is not None:
            raise InfrastructureError(problem)
        image_id = _ensure_image(engine, plan.image, say)
        wanted = agent_container(plan, site, engine.socket, image_id, head.observed.id)
        found = observed(client, name, plan.id, watch.living(site.name))
        if known is not None and difference(_as_agent(wanted.digest, known.node, head), found).action is Action.KEEP:
            return known
        if found.state != MISSING:
            _remove_named(client, name, plan.id)
        here = is_here(site.host)
        probed = probe(client, image_id, plan.id, plan.address, site.address, plan.ports, site.survey.has_gpus, here)
        _refuse_cores(site, probed.cores)
        if site.survey.has_gpus and not probed.with_gpus:
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


def _as_agent(plan: str, node: str, head: Head) -> Wanted:
    versions = head.observed.versions
    python, ray = (None, None) if versions is None else (versions.python, versions.ray)
    return Wanted(plan, node, head.plan.token, python, ray)


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
    """The socket of this machine's engine.

    Raises:
        InfrastructureError: the engine is elsewhere, so no container of it has this machine's addresses and files.
    """
    address = engine_address()
    if not address.startswith("unix://"):
        raise InfrastructureError(
            f"the head of a cluster runs on this machine, and the engine at {address} is on another: unset DOCKER_HOST"
        )
    return address.removeprefix("unix://")


def _head_place(state: State, files: StateFiles) -> HeadPlace:
    engine = local_socket()
    return HeadPlace(
        root=files.root,
        state=files.directory,
        token=files.token,
        sockets=state.sockets,
        engine=engine,
        user=os.geteuid(),
        group=os.getegid(),
        engine_group=Path(engine).stat().st_gid,
    )


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


def _refuse_cores(site: Site, cores: tuple[int, ...]) -> None:
    if site.host.reserved_cores >= len(cores):
        raise InfrastructureError(
            f"the inventory reserves {site.host.reserved_cores} cores, but it has {len(cores)}: write a smaller "
            "`reserved_cores:`"
        )


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


def _wait_for_head(container: Any, address: str, port: int) -> None:
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
    while not watch.serves(agent.name, agent.node):
        container.reload()
        if container.status != RUNNING:
            said = last_words(container.logs(tail=_LAST_LINES).decode("utf-8", "replace"))
            raise InfrastructureError(f"its agent ended: {said}")
        if time.monotonic() > deadline:
            raise InfrastructureError(f"its agent runs, but has not become a node of Ray within {JOIN_S:g} s")
        watch.wait(0.5)


def _remove_old_code(files: StateFiles, used: str) -> None:
    """Nothing runs in a head that has just been made."""
    for place in files.code.iterdir():
        if place.is_dir() and place.name != used:
            shutil.rmtree(place, ignore_errors=True)


def _remove_named(client: DockerClient, name: str, cluster: str) -> None:
    container = find(client, name, cluster)
    if container is not None:
        remove(container)


def remove_all(client: DockerClient, cluster: str) -> None:
    for container in our_containers(client, cluster):
        remove(container)
