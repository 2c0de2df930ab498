"""What the containers of a cluster should be, and how what is seen of them differs. Pure: nothing is asked here."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from docker.types import Mount

from orchestrator.config import Exclusive, ExecutorChoice, Host, HostState
from orchestrator.environments import UNLABELLED
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.image import AgentImage
from orchestrator.hosts.cluster.model import AGENT_CONTAINER, HEAD_CONTAINER
from orchestrator.hosts.cluster.settings import (
    HOST_LABEL,
    SLOT,
    TOKEN,
    Ports,
    agent_command,
    environment,
    head_command,
    tls_files,
)
from orchestrator.hosts.cluster.survey import Survey
from orchestrator.hosts.lock import LOCKS

LABEL: Final = "org.taxmeter.cluster"
"""Its value is the id of the cluster. What does not carry it is never touched."""
LABEL_ROLE: Final = "org.taxmeter.role"
LABEL_PLAN: Final = "org.taxmeter.cluster.plan"
"""Digest of what the container was made from; with another one it is made anew."""
LABEL_NODE: Final = "org.taxmeter.cluster.node"
NODE_LABEL: Final = "taxmeter-node"
"""Of a node of Ray: random, so that it is not taken for an earlier one of the same host."""

MENDS: Final = "`taxmeter cluster up` mends it"
MISSING: Final = "missing"
RUNNING: Final = "running"
MOST_SLOTS: Final = 64
"""Of a host with `exclusive: gpu`, before its GPUs are counted: the driver never asks for more than one for each."""

_SOCKET: Final = "/var/run/docker.sock"
_SHARED_MEMORY: Final = "512m"
_NODE: Final = "NODE"
"""In a planned command, where the random label of the node comes."""
# What Ray takes as a label; of a key also with a prefix.
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class ClusterPlan:
    """What all containers of a cluster are made from."""

    id: str
    address: str
    """Of this machine, as the hosts reach it."""
    ports: Ports
    image: AgentImage
    token: str
    tls: Mapping[str, bytes]
    """Of `settings.chosen_tls`."""


@dataclass(frozen=True)
class HeadPlace:
    """This machine, as far as the head's container depends on it."""

    root: Path
    """The project."""
    state: Path
    """The directory with the files of the cluster."""
    token: Path
    sockets: str
    engine: str
    """Path of the engine's socket."""
    user: int
    group: int
    engine_group: int
    """Who may use the socket."""


@dataclass(frozen=True)
class Site:
    """A host that was reached, as its agent is made for it."""

    name: str
    host: Host
    work_directory: str
    survey: Survey
    address: str


@dataclass(frozen=True)
class ContainerPlan:
    """A container as it should be."""

    labels: Mapping[str, str]
    settings: Mapping[str, Any]
    """Of the SDK's `create`."""
    files: Mapping[str, bytes]
    """Put into it, for its owner alone."""
    owner: tuple[int, int]
    depends: tuple[str, ...] = ()
    """What else makes it another one."""

    @property
    def digest(self) -> str:
        """Of all that it is made from."""
        files = {path: hashlib.sha256(content).hexdigest() for path, content in self.files.items()}
        text = json.dumps([self.labels, self.settings, files, self.owner, self.depends], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def created(self, node: str = "") -> dict[str, Any]:
        """The settings to create it with, as this node of Ray."""
        own = {LABEL_PLAN: self.digest, **({LABEL_NODE: node} if node else {})}
        command = [part.replace(f"{NODE_LABEL}={_NODE}", f"{NODE_LABEL}={node}") for part in self.settings["command"]]
        return {**self.settings, "command": command, "labels": {**self.labels, **own}}


def head_container(plan: ClusterPlan, place: HeadPlace) -> ContainerPlan:
    """The head: runs as the user, with the project's directory at its own path. Drivers run in it too."""
    own = [str(place.root), place.sockets]
    if not place.state.is_relative_to(place.root):
        own.append(str(place.state))
    mounts = {place.engine: _SOCKET, **{path: path for path in own}}
    settings = {
        "name": f"{HEAD_CONTAINER}{plan.id}",
        "image": plan.image.identity.image_id,
        "command": head_command(plan.address, plan.ports),
        "network_mode": "host",
        "init": True,
        "security_opt": [UNLABELLED],
        "shm_size": _SHARED_MEMORY,
        # What a campaign writes is the user's, not root's; the engine's socket is its group's.
        "user": f"{place.user}:{place.group}",
        "group_add": [str(place.engine_group)],
        "working_dir": str(place.root),
        "environment": {
            **environment(str(place.token), plan.tls),
            "HOME": "/tmp",  # noqa: S108 - in the container
            "USER": "taxmeter",
        },
        "volumes": {path: {"bind": bind, "mode": "rw"} for path, bind in mounts.items()},
    }
    labels = {LABEL: plan.id, LABEL_ROLE: "head"}
    return ContainerPlan(labels, settings, tls_files(plan.tls), (place.user, place.group), (_sha256(plan.token),))


def agent_container(plan: ClusterPlan, site: Site, socket: str, image_id: str, head: str) -> ContainerPlan:
    """The agent of a host, as far as it is known before anything runs there.

    Args:
        plan: of the cluster.
        site: the host.
        socket: path of its engine's socket.
        image_id: of the agents' image, as that engine calls it.
        head: id of the head's container: agents of an earlier head are of no use.
    """
    mounts = [Mount(target=_SOCKET, source=socket, type="bind")]
    if site.survey.has_os_release:
        # for the fingerprint: it is the host that is described, not the image
        mounts.append(Mount(target="/etc/os-release", source="/etc/os-release", type="bind", read_only=True))
    node = {**site.host.labels, HOST_LABEL: site.name, NODE_LABEL: _NODE}
    slots = MOST_SLOTS if site.host.exclusive is Exclusive.GPU and site.survey.has_gpus else 1
    settings = {
        "name": f"{AGENT_CONTAINER}{plan.id}",
        "image": image_id,
        "command": [
            # every user of the host may take its lock, also where the engine has just made the directory
            *("sh", "-c", f'chmod 1777 {LOCKS} && exec "$@"', "sh"),
            *agent_command(f"{plan.address}:{plan.ports.head}", site.address, plan.ports, node, {SLOT: slots}),
        ],
        "network_mode": "host",
        "init": True,
        "shm_size": _SHARED_MEMORY,
        "mounts": mounts,
        "security_opt": [UNLABELLED],
        # as volumes, so that the engine makes the directories if they are not there
        "volumes": {path: {"bind": path, "mode": "rw"} for path in (site.work_directory, str(LOCKS))},
        "environment": environment(TOKEN, plan.tls),
        # an agent that died is made anew by `up`, never by the engine
        "restart_policy": {"Name": "no"},
    }
    files = {TOKEN: plan.token.encode("ascii"), **tls_files(plan.tls)}
    depends = (head, str(site.host.reserved_cores), str(site.survey.has_gpus))
    return ContainerPlan({LABEL: plan.id, LABEL_ROLE: "agent"}, settings, files, (0, 0), depends)


@dataclass(frozen=True)
class Versions:
    """What a running container tells of itself."""

    python: str
    ray: str
    token: str
    """Its digest."""


@dataclass(frozen=True)
class Wanted:
    """How a container should be found; null where that is not known, or makes no difference."""

    plan: str | None = None
    node: str | None = None
    token: str | None = None
    """The token itself."""
    python: str | None = None
    ray: str | None = None


@dataclass(frozen=True)
class Observed:
    """A container as it was found."""

    state: str = MISSING
    """What its engine says."""
    id: str = ""
    since: str | None = None
    plan: str | None = None
    node: str | None = None
    versions: Versions | None = None
    living: tuple[str, ...] = field(default=())
    """Labels of the nodes that Ray counts among the living ones of its host."""


class Action(Enum):
    """What is to be done with a container."""

    KEEP = auto()
    MAKE = auto()
    REPLACE = auto()


@dataclass(frozen=True)
class Difference:
    """What lies between a container as it should be and as it is."""

    action: Action
    problems: tuple[str, ...] = ()
    """Each in a line that says what mends it."""


def difference(wanted: Wanted, observed: Observed) -> Difference:
    """What is wrong with a container, and what is therefore to be done with it."""
    if observed.state != RUNNING:
        action = Action.MAKE if observed.state == MISSING else Action.REPLACE
        # Ray hears of its end a moment later, so that its word counts for nothing
        return Difference(action, (f"its container is {observed.state}; {MENDS}",))
    problems = [*_version_problems(wanted, observed.versions)]
    if wanted.plan is not None and observed.plan != wanted.plan:
        problems.append(f"its image, its settings or its token have changed; {MENDS}")
    if wanted.node is not None and observed.node != wanted.node:
        problems.append(f"its container is not the one that `up` started; {MENDS}")
    if wanted.node is not None and wanted.node not in observed.living:
        problems.append(f"its container runs, but Ray does not count it among the living nodes; {MENDS}")
    return Difference(Action.REPLACE if problems else Action.KEEP, tuple(problems))


def _version_problems(wanted: Wanted, found: Versions | None) -> list[str]:
    if found is None:
        return [f"it does not tell its versions; {MENDS}"]
    problems = []
    if wanted.token is not None and found.token != _sha256(wanted.token):
        problems.append(f"its token is not that of the cluster; {MENDS}")
    for what, theirs, ours in (("Ray", found.ray, wanted.ray), ("Python", found.python, wanted.python)):
        if ours is not None and theirs != ours:
            problems.append(f"it has {what} {theirs}, and the head has {ours}; {MENDS}")
    return problems


def refuse_unfit(host: Host) -> None:
    """Refuses a host that cannot be part by what the inventory says.

    Raises:
        InfrastructureError: says why.
    """
    if host.state is HostState.DRAIN:
        raise InfrastructureError("the inventory drains it")
    if host.executor is ExecutorChoice.PROCESS:
        raise InfrastructureError(
            "on a cluster trials run in containers only, but the inventory says `executor: process`"
        )
    for key, value in host.labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise InfrastructureError(
                f"Ray does not take its label `{key}: {value}`: at most 63 letters, digits, '-', '_' and '.', with "
                "a letter or digit first and last"
            )


def _sha256(token: str) -> str:
    return hashlib.sha256(token.strip().encode("ascii")).hexdigest()
