"""Makes the hosts of a cluster ready, all at once: leftovers removed, images sent and proven, fingerprints read."""

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.campaign.files import ProjectFiles
from orchestrator.campaign.preparing.environments import machine_of
from orchestrator.campaign.preparing.hosts import MEMORY_SHARE
from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.config import Host
from orchestrator.environments import (
    TRANSFER_TIMEOUT_S,
    BuiltImage,
    Catalogue,
    ImageIdentity,
    connect,
    copy_image,
    ensure_image,
    identity_of,
)
from orchestrator.errors import InfrastructureError
from orchestrator.execution import DockerSettings, ExecutionSettings, remove_containers
from orchestrator.hosts.cluster import Agent, Cluster, HostEngine, fingerprint_on, host_engine
from orchestrator.hosts.connection import Connections, HostConnectionError, for_each
from orchestrator.planning import EnvironmentPin, PlanningHost, TooFewCoresError, make_slots, used_of
from runners.system import Fingerprint

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """The hosts of a campaign."""

    hosts: tuple[ReadyHost, ...]
    left_out: Mapping[str, str]
    """Those that could not be made ready, and why."""


@dataclass(frozen=True)
class _Order:
    """What one host is to be given."""

    planning: PlanningHost
    host: Host
    agent: Agent
    images: Mapping[str, BuiltImage]
    """By environment."""


def build_images(environments: Collection[str], files: ProjectFiles, say: Say) -> dict[str, BuiltImage]:
    """The images of environments, which this machine's engine then has, by environment.

    Raises:
        ConfigurationError: the engine has another image than the recorded one.
        InfrastructureError: an image can neither be had nor built.
    """
    catalogue = Catalogue.load(files.catalogue)
    with closing(connect()) as client:
        return {name: ensure_image(catalogue.entry(name), client, say) for name in sorted(environments)}


def pinned(planned: PlanningHost, images: Mapping[str, BuiltImage]) -> PlanningHost:
    """A host with the environments as it will have them: those of which there is an image have its identity."""
    pins = {name: _pin(pin, images[name]) if name in images else pin for name, pin in planned.environments.items()}
    return replace(planned, environments=pins)


def prepare_agents(
    planned: Collection[PlanningHost],
    hosts: Mapping[str, Host],
    cluster: Cluster,
    connections: Connections,
    images: Mapping[str, Mapping[str, BuiltImage]],
    files: ProjectFiles,
    say: Say,
) -> Prepared:
    """Gives hosts what their trials need. A host that cannot take it is left out.

    Args:
        planned: the hosts, as far as they are known; each has an agent.
        hosts: how they are reached, by name.
        cluster: with their agents.
        connections: that know them.
        images: by host and environment, what trials will run in; this machine's engine has all of them.
        files: whose unfinished campaigns tell which containers are left over.
        say: told about long steps, with the host's name first.
    """
    orders = [_Order(one, hosts[one.name], cluster.agents[one.name], images.get(one.name, {})) for one in planned]
    unfinished = [directory.name for directory in files.campaigns.iterdir()] if files.campaigns.is_dir() else []
    results = for_each(orders, lambda order: _ready(order, cluster, connections, unfinished, say), connections)
    ready = tuple(one for one in results if isinstance(one, ReadyHost))
    problems = {order.planning.name: one for order, one in zip(orders, results, strict=True) if isinstance(one, str)}
    return Prepared(ready, problems)


def _ready(
    order: _Order, cluster: Cluster, connections: Connections, unfinished: Collection[str], say: Say
) -> ReadyHost | str:
    name = order.planning.name
    try:
        with host_engine(name, order.host, connections) as engine:
            for campaign in unfinished:
                for left in remove_containers(engine.address, campaign):
                    say(f"{name}: removed container {left}, left by a run that was killed")
            identities = {environment: _send(name, image, engine, say) for environment, image in order.images.items()}
            fingerprint = fingerprint_on(engine, cluster)
        return _host(order, identities, fingerprint)
    except InfrastructureError as error:
        return error.problem if isinstance(error, HostConnectionError) else str(error)
    except TooFewCoresError as error:
        return str(error)


def _send(name: str, image: BuiltImage, engine: HostEngine, say: Say) -> ImageIdentity:
    """The image as the host's engine has it, which is sent it if it does not."""
    with (
        closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as source,
        closing(connect(engine.address, TRANSFER_TIMEOUT_S)) as target,
    ):
        return identity_of(copy_image(image, source, target, lambda text: say(f"{name}: {text}")))


def _host(order: _Order, identities: Mapping[str, ImageIdentity], fingerprint: Fingerprint) -> ReadyHost:
    """The host as its agent sees it; what was known of it before was a preview."""
    agent, planning = order.agent, order.planning
    cores = tuple(core for core in agent.cores if core not in agent.agent_cores)
    memory_bytes = _memory_bytes(fingerprint)
    pins = dict(planning.environments)
    executions: dict[str, ExecutionSettings] = {}
    for environment, image in order.images.items():
        pins[environment] = _pin(pins[environment], image)
        found = identities[environment]
        # No address: in the agent the host's engine is where an engine usually is.
        executions[environment] = DockerSettings(found.image_id, None, cores, memory_bytes, Path(), found)
    # A GPU that its containers do not see is none.
    topology = replace(planning.topology, gpus=tuple(g for g in planning.topology.gpus if g.uuid in agent.gpu_uuids))
    machine = machine_of(fingerprint, memory_bytes, used_of(topology.gpus, planning.exclusive))
    slots = make_slots(cores, topology, topology.gpus, planning.exclusive)
    known = replace(planning, cores=cores, environments=pins, machine=machine, topology=topology, slots=slots)
    return ReadyHost(
        known,
        executions,
        None,
        frozenset(agent.agent_cores),
        agent.work_directory,
        fingerprint,
    )


def _pin(known: EnvironmentPin, image: BuiltImage) -> EnvironmentPin:
    return replace(
        known,
        lock_sha256=image.lock_sha256,
        image_id=image.image_id,
        image_digest=image.repo_digest or image.image_id,
        image_layers=image.layers,
        image_config_sha256=image.config_sha256,
    )


def _memory_bytes(seen: Fingerprint) -> int:
    known = [size for size in (seen.memory.total_bytes, seen.limits.memory_bytes) if size is not None]
    if not known:
        raise InfrastructureError("the size of its memory cannot be read from /proc/meminfo")
    return int(min(known) * MEMORY_SHARE)
