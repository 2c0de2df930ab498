"""What the head and the agents of a cluster are made of: their image, and the settings of their containers."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docker import DockerClient
from docker.types import Mount

from orchestrator.config import Connection, Exclusive, ExecutorChoice, Host, HostState
from orchestrator.environments import (
    UNLABELLED,
    Build,
    ImageIdentity,
    attributes_of,
    build_image,
    identity_of,
    recipe_digest,
)
from orchestrator.errors import ConfigurationError, InfrastructureError, Say
from orchestrator.files import exclusive
from orchestrator.hosts.cluster.settings import (
    HOST_LABEL,
    SLOT,
    TOKEN,
    agent_command,
    environment,
    head_command,
    tls_files,
)
from orchestrator.hosts.cluster.state import Cluster
from orchestrator.hosts.lock import LOCKS, LOCKS_VARIABLE

LABEL: Final = "org.taxmeter.cluster"
"""Its value is the id of the cluster. What does not carry it is never touched."""
LABEL_ROLE: Final = "org.taxmeter.role"
LABEL_PLAN: Final = "org.taxmeter.cluster.plan"
"""Digest of what the container was made from; with another one it is made anew."""
LABEL_NODE: Final = "org.taxmeter.cluster.node"
NODE_LABEL: Final = "taxmeter-node"
"""Of a node of Ray: random, so that it is not taken for an earlier one of the same host."""

MOST_SLOTS: Final = 64
"""Of a host with `exclusive: gpu`, before its GPUs are counted: the driver never asks for more than one for each."""

_SOCKET: Final = "/var/run/docker.sock"
_SHARED_MEMORY: Final = "512m"
_LOCKS: Final = {LOCKS_VARIABLE: str(LOCKS)}
"""For the head too: the driver says which lock a task takes."""
_NODE: Final = "NODE"
"""In a planned command, where the random label of the node comes."""
# What Ray takes as a label; of a key also with a prefix.
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
PYTHON = "3.11"
LABEL_RECIPE: Final = "org.taxmeter.agent-recipe-sha256"
# That of the environments of today, so that a site has one base to bring.
_BASE = "python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b"
_DEBIAN_SUITE = "bookworm"


@dataclass(frozen=True)
class AgentImage:
    """The image as this machine's engine has it."""

    reference: str
    identity: ImageIdentity


def ensure_agent_image(root: Path, client: DockerClient, address: str, say: Say) -> AgentImage:
    """The image of this recipe, built if the engine lacks it (a minute or two).

    Args:
        root: of the project: `docker/agent` and `requirements` are in it.
    """
    dockerfile, lock = root / "docker" / "agent" / "Dockerfile", root / "requirements" / "base.lock"
    for path in (dockerfile, lock):
        if not path.is_file():
            raise ConfigurationError("the image of the agents is made from it; run this in the project", file=path)
    lock_sha256 = hashlib.sha256(lock.read_bytes()).hexdigest()
    recipe = recipe_digest(_BASE, _DEBIAN_SUITE, dockerfile, lock_sha256, PYTHON)
    reference = f"taxmeter/agent:{recipe[:12]}"
    waiting = "waiting for another command that builds the image of the agents"
    with exclusive(root / ".taxmeter" / "locks" / "image-agent", lambda: say(waiting)):
        attributes = attributes_of(client, reference)
        if attributes is None:
            build = Build(
                what="the image of the agents",
                duration="a minute or two",
                reference=reference,
                base=_BASE,
                debian_suite=_DEBIAN_SUITE,
                dockerfile=dockerfile,
                context=lock.parent,
                arguments={"PYTHON": f"python{PYTHON}"},
                log=root / ".taxmeter" / "logs" / "build-agent.log",
                labels={LABEL_RECIPE: recipe},
            )
            attributes = build_image(build, client, address, say)
    return AgentImage(reference, identity_of(attributes))


@dataclass(frozen=True)
class ClusterPlan:
    """What all containers of a cluster are made from."""

    cluster: Cluster
    image: AgentImage
    token: str
    tls: Mapping[str, bytes]


@dataclass(frozen=True)
class Site:
    """A host that was reached, as its agent is made for it."""

    name: str
    host: Host
    work_directory: str
    address: str
    """On which it was reached; empty for this machine, until the head has an address."""
    ours: str | None
    """This machine's address as the host sees it: that of a jump host where there is one; null for this machine."""
    has_gpus: bool
    has_os_release: bool
    listened: tuple[int, ...] = ()
    """TCP ports on which somebody listens there."""

    @property
    def is_here(self) -> bool:
        """Whether it is this machine."""
        return self.host.connection is Connection.LOCAL


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


def head_container(plan: ClusterPlan, root: Path, engine: str) -> ContainerPlan:
    """The head: runs as the user, with the project's directory at its own path. Drivers run in it too.

    Args:
        engine: path of the socket of this machine's engine.
    """
    cluster, user, group = plan.cluster, os.geteuid(), os.getegid()
    state = cluster.token_path.parent
    own = [str(root), str(cluster.sockets)]
    if not state.is_relative_to(root):
        own.append(str(state))
    mounts = {engine: _SOCKET, **{path: path for path in own}}
    settings = {
        "name": cluster.head_container,
        "image": plan.image.identity.image_id,
        "command": head_command(str(cluster.head_address), cluster.ports),
        "network_mode": "host",
        "init": True,
        "security_opt": [UNLABELLED],
        "shm_size": _SHARED_MEMORY,
        # What a campaign writes is the user's, not root's; the engine's socket is its group's.
        "user": f"{user}:{group}",
        "group_add": [str(Path(engine).stat().st_gid)],
        "working_dir": str(root),
        "environment": {
            **environment(str(cluster.token_path), plan.tls),
            **_LOCKS,
            "HOME": "/tmp",  # noqa: S108 - in the container
            "USER": "taxmeter",
        },
        "volumes": {path: {"bind": bind, "mode": "rw"} for path, bind in mounts.items()},
    }
    labels = {LABEL: cluster.id, LABEL_ROLE: "head"}
    return ContainerPlan(labels, settings, tls_files(plan.tls), (user, group), (_sha256(plan.token),))


def agent_container(plan: ClusterPlan, site: Site, socket: str, image_id: str, head: str) -> ContainerPlan:
    """The agent of a host, as far as it is known before anything runs there.

    Args:
        image_id: of the agents' image, as that engine calls it.
        head: id of the head's container: agents of an earlier head are of no use.
    """
    cluster = plan.cluster
    mounts = [Mount(target=_SOCKET, source=socket, type="bind")]
    if site.has_os_release:
        # for the fingerprint: it is the host that is described, not the image
        mounts.append(Mount(target="/etc/os-release", source="/etc/os-release", type="bind", read_only=True))
    node = {**site.host.labels, HOST_LABEL: site.name, NODE_LABEL: _NODE}
    slots = MOST_SLOTS if site.host.exclusive is Exclusive.GPU and site.has_gpus else 1
    settings = {
        "name": cluster.agent_container,
        "image": image_id,
        "command": [
            # every user of the host may take its lock, also where the engine has just made the directory
            *("sh", "-c", f'chmod 1777 {LOCKS} && exec "$@"', "sh"),
            *agent_command(cluster.ray_address, site.address, cluster.ports, node, {SLOT: slots}),
        ],
        "network_mode": "host",
        "init": True,
        "shm_size": _SHARED_MEMORY,
        "mounts": mounts,
        "security_opt": [UNLABELLED],
        # as volumes, so that the engine makes the directories if they are not there
        "volumes": {path: {"bind": path, "mode": "rw"} for path in (site.work_directory, str(LOCKS))},
        "environment": {**environment(TOKEN, plan.tls), **_LOCKS},
        # an agent that died is made anew by `up`, never by the engine
        "restart_policy": {"Name": "no"},
    }
    files = {TOKEN: plan.token.encode("ascii"), **tls_files(plan.tls)}
    depends = (head, str(site.host.reserved_cores), str(site.has_gpus))
    return ContainerPlan({LABEL: cluster.id, LABEL_ROLE: "agent"}, settings, files, (0, 0), depends)


def refuse_unfit(host: Host) -> None:
    """Refuses a host that cannot be part by what the inventory says."""
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
    """The digest by which a token is told, and not the token."""
    return hashlib.sha256(token.strip().encode("ascii")).hexdigest()
