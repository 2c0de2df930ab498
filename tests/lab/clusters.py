"""What tests of clusters share."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.config import load_inventory
from orchestrator.hosts.cluster import Cluster, ClusterStatus, down, status, up
from orchestrator.hosts.cluster.commands import execution
from orchestrator.hosts.cluster.plan import LABEL
from tests.lab.host import LabHost
from tests.lab.image import PROJECT
from tests.lab.lab import Lab

NODES = """
import json, ray
ray.init(logging_level="error")
print(json.dumps([[n["Labels"], n["Resources"], n["NodeManagerAddress"]] for n in ray.nodes() if n["Alive"]]))
"""
"""A program for `ask`: labels, resources and address of the living nodes."""


@dataclass(frozen=True)
class Site:
    """A project's cluster on a lab; its state is a test's own, its code and its recipes are the project's."""

    lab: Lab
    state: Path
    first_port: int | None = None
    """Null where the product chooses."""
    root: Path = PROJECT

    def up(self, *names: str, say: Callable[[str], None] = print) -> Cluster:
        """On these hosts of the lab, or on all."""
        known = load_inventory(self.lab.inventory())
        chosen = {name: host for name, host in known.hosts.items() if not names or name in names}
        return up(chosen, known, self, say, first_port=self.first_port)

    def down(self) -> Mapping[str, str]:
        return down(self, print)

    def status(self) -> ClusterStatus:
        found = status(self)
        assert found is not None
        return found


def ask(cluster: Cluster, program: str, environment: Mapping[str, str] | None = None) -> Any:
    """What a program in the head prints as JSON, last."""
    said = {1: b"", 2: b""}
    with execution(cluster, ["python", "-c", program], environment) as running:
        for stream, data in running.frames():
            said[stream] += data
        assert running.exit_code() == 0, said[2].decode()
    return json.loads(said[1].splitlines()[-1])


def containers(cluster: Cluster, *hosts: LabHost) -> dict[str, tuple[str, str]]:
    """Id and start of the agent's container on each host."""
    found = {}
    for host in hosts:
        with host.engine() as client:
            [one] = ours(client, cluster)
            found[host.name] = (one.id, one.attrs["State"]["StartedAt"])
    return found


def ours(client: DockerClient, cluster: Cluster) -> list[Any]:
    """The containers of a cluster on an engine."""
    selected = {"label": f"{LABEL}={cluster.id}"}
    return list(client.containers.list(all=True, filters=selected, ignore_removed=True))


@contextmanager
def foreign(client: DockerClient, image: str, *command: str, **settings: Any) -> Iterator[Any]:
    """Somebody else's container."""
    container = client.containers.run(image, list(command), detach=True, init=True, **settings)
    try:
        container.reload()
        yield container
    finally:
        container.remove(force=True, v=True)
