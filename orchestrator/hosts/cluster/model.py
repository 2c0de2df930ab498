"""What a cluster is: the values that the rest of the project works with."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HEAD_CONTAINER = "taxmeter-head-"
AGENT_CONTAINER = "taxmeter-agent-"
"""The id of the cluster follows."""


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
    """A cluster that is up."""

    id: str
    head_address: str
    """Of the driver's machine, as the hosts reach it."""
    head_port: int
    agents: Mapping[str, Agent]
    token_path: Path
    """Of the secret that whoever takes part must know; the head's container has the file under the same path."""
    sockets: Path
    """A short directory of this machine that the head's container has too, for forwarded engines."""
    unusable: Mapping[str, str]
    """Why hosts are left out."""
    code: Path
    """A directory with our packages as they were when the cluster came up; drivers run them, and Ray brings them to
    the hosts."""

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
        return f"{self.head_address}:{self.head_port}"


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
