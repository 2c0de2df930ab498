"""A host with two simulated GPUs in a cluster: its agent takes two tasks at once, and its slots are what agents see."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.campaign import ProjectFiles
from orchestrator.campaign.pins import KnownEnvironments, planning_host
from orchestrator.config import Exclusive, Host, load_inventory
from orchestrator.environments import Catalogue
from orchestrator.hosts import open_hosts
from orchestrator.hosts.cluster import Cluster, up
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
def site(lab: Lab, tmp_path: Path) -> Site:
    return Site(lab, tmp_path / "state", free_ports())


@pytest.fixture
def cluster(host: Host, lab: Lab, site: Site) -> Iterator[Cluster]:
    yield up({"h2": host}, load_inventory(lab.inventory()), site, print, first_port=site.first_port)
    site.down()


def test_an_agent_takes_a_task_for_each_gpu_that_its_containers_see(
    host: Host, cluster: Cluster, site: Site, lab: Lab, in_project: Path
) -> None:
    agent = cluster.agents["h2"]
    assert agent.gpu_uuids == (uuid_of(0), uuid_of(1))
    [slots] = ask(cluster, SLOTS)
    assert slots >= 2
    known = replace(load_inventory(lab.inventory()), hosts={"h2": host})
    with open_hosts({"h2": host}, known, site) as hosts:
        facts, problems = hosts.join(["h2"], print)
    assert problems == {}
    files = ProjectFiles(in_project)
    environments = KnownEnvironments(("cpu",), Catalogue.load(files.catalogue), {})
    ready = planning_host(facts["h2"], host, known, environments, {})
    assert [slot.gpu_uuid for slot in ready.slots] == list(agent.gpu_uuids)
    one, other = (set(slot.cores) for slot in ready.slots)
    assert len(one) == len(other) > 0
    assert not one & other
    assert one | other <= set(agent.cores)
