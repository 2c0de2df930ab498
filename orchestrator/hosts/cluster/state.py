"""A project's cluster, what is remembered of it between two commands, and how it is."""

import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from pydantic import ConfigDict

from orchestrator.boundary import MAX_JSON_BYTES, adapter_of, read_foreign_file, validated
from orchestrator.config import Host
from orchestrator.errors import ForeignDataError, InfrastructureError, Say
from orchestrator.files import exclusive, write_atomically, write_private
from orchestrator.hosts.cluster.settings import Ports

HEAD_CONTAINER = "taxmeter-head-"
AGENT_CONTAINER = "taxmeter-agent-"
"""The id of the cluster follows."""

_SHORT = Path("/tmp")  # noqa: S108 - whatever TMPDIR says: the path of a socket has 107 bytes


class Project(Protocol):
    """Where a project is."""

    @property
    def root(self) -> Path:
        """The directory in which the commands run."""
        ...

    @property
    def state(self) -> Path:
        """What can be made anew."""
        ...


@dataclass(frozen=True)
class Agent:
    """The container of ours on a host: a node of Ray that starts the containers of trials beside itself."""

    name: str
    """Of the host, in the inventory and as the node's label."""
    address: str
    """Of the host, as the driver's machine reaches it."""
    work_directory: str
    """On the host; the agent and the host's engine see it under this same path."""
    cores: tuple[int, ...]
    """That containers of the host may use."""
    agent_cores: tuple[int, ...]
    """Those of them that the agent keeps to, which trials should not get; empty if none is reserved."""
    image_id: str
    """Of the agents' image, as the host's engine calls it."""
    gpu_uuids: tuple[str, ...]
    """That containers of the host see."""
    node: str
    """Random; a label of its node and of its container, so that neither is taken for that of an earlier agent."""


@dataclass(frozen=True)
class Cluster:
    """A cluster as it is remembered: up, coming up, or half taken down."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    first_port: int
    token_path: Path
    """Of the secret that whoever takes part must know; the head's container has the file under the same path."""
    sockets: Path
    """A short directory of this machine that the head's container has too, for forwarded engines."""
    version: Literal[1] = field(default=1, kw_only=True)
    head_address: str | None = None
    """Of the driver's machine, as the hosts reach it; null while there is no head."""
    code: Path = Path()
    """A directory with our packages as they were when the cluster came up; drivers run them, and Ray brings them to
    the hosts."""
    agents: Mapping[str, Agent] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Why hosts are left out."""
    hosts: Mapping[str, Host] = field(default_factory=dict)
    """All on which something of ours may be, and those that their connections go through."""
    touched: tuple[str, ...] = ()
    """Those of `hosts` on which something may be."""

    @property
    def ports(self) -> Ports:
        return Ports(self.first_port)

    @property
    def head_container(self) -> str:
        """The name of the head's container on this machine's engine."""
        return f"{HEAD_CONTAINER}{self.id}"

    @property
    def agent_container(self) -> str:
        """The name of the agent's container on every host's engine."""
        return f"{AGENT_CONTAINER}{self.id}"

    @property
    def ray_address(self) -> str:
        """As Ray takes it, inside the head's container."""
        return f"{self.head_address}:{self.ports.head}"

    def with_touched(self, name: str, hosts: Mapping[str, Host]) -> "Cluster":
        """Remembers that something is about to be started on a host, and all that its connection jumps through."""
        way: dict[str, Host] = {}
        following: str | None = name
        while following is not None and following in hosts and following not in way:
            way[following] = hosts[following]
            following = hosts[following].jump
        return replace(self, touched=tuple(sorted({*self.touched, name})), hosts={**self.hosts, **way})


class ClusterFiles:
    """The files of a project's cluster, below `.taxmeter/cluster`."""

    def __init__(self, project: Project) -> None:
        self.root = project.root.absolute()
        self.directory = project.state.absolute() / "cluster"
        self.code = self.directory / "code"
        """Has a directory for each version of our packages that drivers may run."""
        self.of_a_sweep = self.directory / "of-a-sweep"
        """There as long as a sweep brought the cluster up for itself, and nobody has asked for it besides."""
        self._state = self.directory / "state.json"

    def locked(self, say: Say) -> AbstractContextManager[None]:
        """Held by whoever changes the cluster."""
        return exclusive(
            self.directory.parent / "locks" / "cluster", lambda: say("waiting for another command on this cluster")
        )

    def load(self) -> Cluster | None:
        """What is remembered; null if nothing is."""
        try:
            cluster = validated(Cluster, read_foreign_file(self._state, MAX_JSON_BYTES), str(self._state))
        except FileNotFoundError:
            return None
        except ForeignDataError as error:
            raise InfrastructureError(
                f"damaged, or of another version of taxmeter: {error}; take the cluster down with the version that "
                "brought it up, or remove the containers with the label org.taxmeter.cluster on its hosts and then "
                f"{self.directory}"
            ) from error
        _refuse_foreign(cluster.sockets)
        return cluster

    def save(self, cluster: Cluster) -> None:
        """Remembers it; a crash leaves what was remembered before or this."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        write_atomically(self._state, adapter_of(Cluster).dump_json(cluster, indent=1).decode())

    def create(self, ports: Ports) -> Cluster:
        """A cluster of a new name, with a new secret. Nothing of it runs yet."""
        name = secrets.token_hex(4)
        sockets = Path(tempfile.mkdtemp(prefix=f"taxmeter-{name}-", dir=_SHORT))
        cluster = Cluster(name, ports.first, self.directory / "token", sockets)
        self.save(cluster)
        self.new_token(cluster)
        return cluster

    def new_token(self, cluster: Cluster) -> None:
        """Writes a new secret, which nobody but its owner can read."""
        write_private(cluster.token_path, secrets.token_hex(32).encode("ascii"))

    def forget(self, cluster: Cluster) -> None:
        """Removes what is remembered of a cluster of which nothing runs any more."""
        for path in (self._state, cluster.token_path):
            path.unlink(missing_ok=True)


def _refuse_foreign(sockets: Path) -> None:
    """Refuses a remembered directory of /tmp that somebody else has made since: through its sockets goes the token."""
    with suppress(FileNotFoundError, ValueError):  # a path with a null byte leads nowhere
        status = sockets.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise InfrastructureError(f"{sockets} is not ours alone; find out who made it, and remove it")


@dataclass(frozen=True)
class NodeStatus:
    """How the head or an agent is."""

    name: str
    address: str
    container: str
    """What its engine says, such as `running`; `missing`, or `unknown` if nobody could be asked."""
    is_alive: bool
    """Whether Ray counts it among its living nodes: it answered in the last seconds."""
    since: str | None
    """When the container started, as ISO 8601; null if it does not run."""
    python: str | None
    ray: str | None
    """What is there now, read anew; null if the container does not run."""
    problems: tuple[str, ...]
    """What is wrong, each in a line that says what mends it."""


@dataclass(frozen=True)
class ClusterStatus:
    """How a cluster is."""

    id: str
    head: NodeStatus
    agents: tuple[NodeStatus, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong anywhere."""
        return not any(node.problems for node in (self.head, *self.agents))
