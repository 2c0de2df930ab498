"""A host with two simulated GPUs in a cluster: its agent takes two tasks at once, and its slots are what agents see."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.campaign import ProjectFiles
from orchestrator.campaign.remote import look_at_hosts, prepare_agents
from orchestrator.config import Exclusive, Host, load_inventory
from orchestrator.hosts.cluster import Cluster, up
from orchestrator.hosts.connection import Connections
from tests.lab.clusters import Site, ask, free_ports
from tests.lab.gpus import simulated_gpus, uuid_of
from tests.lab.lab import Lab

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster, pytest.mark.long]

SLOTS = """
import json, ray
ray.init(logging_level="error")
nodes = [n for n in ray.nodes() if n["Alive"] and n["Labels"].get("taxmeter-host") == "h2"]
print(json.dumps([n["Resources"]["bench_slot"] for n in nodes]))
"""


@pytest.fixture
def host(seeded_lab: Lab, lab: Lab) -> Iterator[Host]:
    """h2 with two GPUs, each of which runs tasks, on all cores of this machine."""
    with simulated_gpus(lab.host("h2"), 2):
        found = load_inventory(lab.inventory()).hosts["h2"]
        yield found.model_copy(update={"exclusive": Exclusive.GPU, "reserved_cores": 0})


@pytest.fixture
def cluster(host: Host, lab: Lab, tmp_path: Path) -> Iterator[Cluster]:
    site = Site(lab, tmp_path / "state", free_ports())
    yield up({"h2": host}, load_inventory(lab.inventory()), site, print, first_port=site.first_port)
    site.down()


def test_an_agent_takes_a_task_for_each_gpu_that_its_containers_see(
    host: Host, cluster: Cluster, lab: Lab, in_project: Path, tmp_path: Path
) -> None:
    agent = cluster.agents["h2"]
    assert agent.gpu_uuids == (uuid_of(0), uuid_of(1))
    [slots] = ask(cluster, SLOTS)
    assert slots >= 2
    hosts = {"h2": host}
    with Connections(hosts) as connections:
        seen = look_at_hosts(hosts, connections, lab.inventory(), ["cpu"], ProjectFiles(in_project))
        say, files = print, ProjectFiles(tmp_path)
        [ready] = prepare_agents(seen.hosts, hosts, cluster, connections, {}, files, say).hosts
    assert [slot.gpu_uuid for slot in ready.planning.slots] == list(agent.gpu_uuids)
    one, other = (set(slot.cores) for slot in ready.planning.slots)
    assert len(one) == len(other) > 0
    assert not one & other
    assert one | other <= set(agent.cores)
