"""A host is brought back into a cluster that is in use, whatever became of it and of our code meanwhile."""

from collections.abc import Iterator

import pytest
from docker import DockerClient

from orchestrator.config import load_inventory
from orchestrator.errors import InfrastructureError
from orchestrator.execution import PackedCode, pack_project
from orchestrator.hosts.cluster import Cluster, lifecycle, mend
from orchestrator.hosts.connection import Connections, HostConnectionError
from tests.lab.clusters import Site, containers, free_ports
from tests.lab.lab import Lab

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def site(shared_lab: Lab, seeded_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    shared_lab.up(hosts=3)
    with pytest.MonkeyPatch.context() as patch:
        code = pack_project()
        patch.setattr(lifecycle, "pack_project", lambda: code)
        found = Site(shared_lab, tmp_path_factory.mktemp("mending") / "state", free_ports())
        yield found
        shared_lab.up(hosts=3)
        found.down()


@pytest.fixture
def cluster(site: Site, lab: Lab) -> Cluster:
    return site.up("h1", "h2")


def mended(site: Site, name: str) -> Cluster:
    hosts = load_inventory(site.lab.inventory()).hosts
    with Connections(hosts) as connections:
        return mend(name, hosts, connections, site, print)


def head_of(client: DockerClient, cluster: Cluster) -> str:
    return str(client.containers.get(cluster.head_container).id)


def test_a_host_comes_in_and_comes_back_beside_a_head_that_is_in_use(
    site: Site, cluster: Cluster, lab: Lab, client: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, others = head_of(client, cluster), containers(cluster, lab.host("h1"))
    client.containers.get(cluster.head_container).exec_run(["sleep", "600"], detach=True)
    edited = PackedCode("0" * 64, b"")
    monkeypatch.setattr(lifecycle, "pack_project", lambda: edited)  # somebody edits the code while the campaign runs

    assert mended(site, "h2") == cluster, "what runs and is right stays"
    with lab.host("h2").engine() as engine:
        engine.containers.get(cluster.agent_container).kill()
    back = mended(site, "h2")
    assert back.agents["h2"].node != cluster.agents["h2"].node
    assert back.code == cluster.code

    assert set(mended(site, "h3").agents) == {"h1", "h2", "h3"}
    assert head_of(client, cluster) == head
    assert containers(cluster, lab.host("h1")) == others
    assert site.status().is_healthy
    client.containers.get(cluster.head_container).exec_run(["sh", "-c", "kill $(pidof sleep)"])


def test_a_host_that_does_not_answer_changes_nothing(
    site: Site, cluster: Cluster, lab: Lab, client: DockerClient
) -> None:
    head, others = head_of(client, cluster), containers(cluster, lab.host("h1"))
    lab.host("h2").pause()
    with pytest.raises(HostConnectionError):
        mended(site, "h2")
    assert head_of(client, cluster) == head
    assert containers(cluster, lab.host("h1")) == others


def test_without_a_head_nothing_is_started(site: Site, cluster: Cluster, lab: Lab, client: DockerClient) -> None:
    client.containers.get(cluster.head_container).kill()
    with pytest.raises(InfrastructureError, match="the head of the cluster is gone"):
        mended(site, "h3")
