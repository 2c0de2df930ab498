"""A cluster whose nodes speak TLS to each other, by Ray's own variables."""

import subprocess
from collections.abc import Iterator

import pytest

from orchestrator.hosts.cluster import Cluster
from orchestrator.hosts.cluster.commands import run_in
from tests.lab.clusters import Site, ask, foreign, ours
from tests.lab.lab import Lab

pytestmark = [pytest.mark.long, pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]

TASK = """
import json, ray
ray.init(logging_level="error", log_to_driver=False)
@ray.remote(num_cpus=0, resources={"bench_slot": 1}, max_retries=0)
def stream():
    import socket
    yield socket.gethostname()
    yield b"x" * 1_000_000
found = stream.options(num_returns="streaming", label_selector={"taxmeter-host": "h1"}).remote()
print(json.dumps([len(ray.get(one)) for one in found]))
"""
NODES = "import ray; ray.init(logging_level='error'); print(len(ray.nodes()))"


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def cluster(shared_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("tls")
    shared_lab.up(hosts=3)
    key, certificate = str(directory / "node.key"), str(directory / "node.crt")
    subject = ["-nodes", "-days", "2", "-newkey", "rsa:2048", "-subj", "/CN=taxmeter"]
    hosts = shared_lab.hosts()
    gateway = hosts[0].network.attrs["IPAM"]["Config"][0]["Gateway"]
    names = ",".join(f"IP:{address}" for address in (gateway, "127.0.0.1", *(host.address for host in hosts)))
    openssl("req", "-x509", *subject, "-keyout", key, "-out", certificate, "-addext", f"subjectAltName={names}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USE_TLS", "1")
        patch.setenv("RAY_TLS_SERVER_CERT", certificate)
        patch.setenv("RAY_TLS_SERVER_KEY", key)
        patch.setenv("RAY_TLS_CA_CERT", certificate)
        site = Site(shared_lab, directory / "state")
        found = site.up("h1", "h2")
        assert site.up("h1", "h2") == found
        assert site.status().is_healthy
        yield found
        site.down()


def test_tasks_run_and_stream_under_tls(cluster: Cluster) -> None:
    assert ask(cluster, TASK) == [2, 1_000_000]


def test_a_node_with_the_token_but_without_tls_does_not_come_in(cluster: Cluster, lab: Lab) -> None:
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": cluster.token_path.read_text()}
    command = ["timeout", "15", "ray", "start", f"--address={cluster.ray_address}", "--block"]
    with lab.host("h1").engine() as engine:
        image = cluster.agents["h1"].image_id
        with foreign(engine, image, *command, network_mode="host", environment=settings) as stranger:
            assert stranger.wait(timeout=90)["StatusCode"] != 0
        assert ask(cluster, NODES) == 3
        [agent] = ours(engine, cluster)
        said = run_in(agent, ["sh", "-c", "stat -c %a /run/taxmeter/tls-*"]).stdout.split()
        assert said == ["600"] * 3
        assert "PRIVATE KEY" not in str(agent.attrs)
