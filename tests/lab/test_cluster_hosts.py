"""Clusters of a test's own on lab hosts: what keeps a host out, what `down` leaves, and who comes back."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.config import Connection, Host, load_inventory
from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.execution import PackedCode
from orchestrator.hosts.cluster import Cluster, lifecycle, up
from orchestrator.hosts.cluster.commands import run_in
from orchestrator.hosts.cluster.lifecycle import load, mend
from orchestrator.hosts.cluster.plan import AgentImage
from orchestrator.hosts.cluster.reach import listened_here
from orchestrator.hosts.cluster.settings import chosen_ports
from orchestrator.hosts.connection import Connections, HostConnectionError
from orchestrator.hosts.lock import HostLock
from tests.lab.clusters import Site, ask, containers, foreign, ours
from tests.lab.lab import Lab

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]

HOLDS = """
import json, os, ray
wait_s = float(os.environ["WAIT_S"])
code = {"working_dir": os.environ["TAXMETER_CODE"]}
ray.init(logging_level="error", log_to_driver=False, runtime_env=code)
@ray.remote(num_cpus=0, resources={"bench_slot": 1}, max_retries=0)
def hold(wait_s):
    from orchestrator.hosts.lock import HostLock
    with HostLock().hold() as held:
        return [held.wait(wait_s)]
print(json.dumps([ray.get(hold.options(label_selector={"taxmeter-host": h}).remote(wait_s)) for h in ["here", "h1"]]))
"""


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("OUTPUT -p tcp --dport {head}", r"does not reach this machine at \S+, port {head} "),
        ("INPUT -p tcp --dport {worker}", r"this machine does not reach it at \S+, port {worker}:"),
    ],
    ids=["towards the head", "towards the host"],
)
def test_a_firewall_is_named_before_anything_hangs(
    lab: Lab, image: AgentImage, tmp_path: Path, rule: str, reason: str
) -> None:
    ports = chosen_ports(None, listened_here())
    blocked = {"head": ports.head, "worker": ports.agent_workers[1]}
    other = Site(lab, tmp_path / "state", ports.first)
    host = lab.host("h2")
    done = run_in(host.container, ["sh", "-c", f"iptables -A {rule.format(**blocked)} -j REJECT"])
    if done.exit_code != 0:
        pytest.skip(f"no firewall in a lab host: {done.stderr.strip()}")
    try:
        with pytest.raises(NoUsableHostError, match=reason.format(**blocked)):
            other.up("h2")
        assert load(other) is None
    finally:
        host.container.exec_run(["iptables", "-F"])
        other.down()


def test_down_removes_ours_and_nothing_else(lab: Lab, image: AgentImage, tmp_path: Path, client: DockerClient) -> None:
    other = Site(lab, tmp_path / "state")
    ray = ["ray", "start", "--head", "--block", "--node-ip-address=127.0.0.1", "--port=7777"]
    ray.append("--include-dashboard=false")
    names = {"name": "taxmeter-agent-somebody-else"}
    host = lab.host("h1")
    with ExitStack() as stack:
        engine = stack.enter_context(host.engine())
        node = stack.enter_context(foreign(engine, image.reference, *ray, network_mode="none"))
        idle = stack.enter_context(foreign(engine, image.reference, "sleep", "600", network_mode="none", **names))
        started = [one.attrs["State"]["StartedAt"] for one in (node, idle)]
        found = other.up()
        assert other.down() == {}
        assert [
            one.name for one in engine.containers.list(all=True, ignore_removed=True) if one.id in (node.id, idle.id)
        ]
        for one in (node, idle):
            one.reload()
            assert one.status == "running"
        assert [one.attrs["State"]["StartedAt"] for one in (node, idle)] == started
        program = (
            "import ray; ray.init('127.0.0.1:7777'); print(ray.get(ray.remote(num_cpus=0)(lambda: 'alive').remote()))"
        )
        assert "alive" in run_in(node, ["timeout", "60", "python", "-c", program]).stdout
        assert ours(engine, found) == []
    assert ours(client, found) == []
    assert load(other) is None
    assert not found.sockets.exists()
    assert not found.token_path.exists()
    assert other.down() == {}


@pytest.mark.long
def test_what_could_not_be_removed_is_named_and_removed_later(lab: Lab, image: AgentImage, tmp_path: Path) -> None:
    other = Site(lab, tmp_path / "state")
    found = other.up("h1", "h2")
    lab.host("h2").pause()
    assert list(other.down()) == ["h2"]
    lab.up(hosts=3)
    assert other.down() == {}
    with lab.host("h2").engine() as engine:
        assert ours(engine, found) == []


@pytest.mark.long
def test_this_machine_can_be_a_host_too(lab: Lab, image: AgentImage, tmp_path: Path) -> None:
    here = {"here": Host(connection=Connection.LOCAL), "h1": load_inventory(lab.inventory()).hosts["h1"]}
    other = Site(lab, tmp_path / "state")
    try:
        found = up(here, load_inventory(lab.inventory()), other, print)
        assert (found.unusable, found.agents["here"].address) == ({}, found.head_address)
        assert {one.name for one in other.status().agents if one.is_alive} == {"here", "h1"}
        # somebody may measure on this machine meanwhile: other tests, for example
        assert ask(found, HOLDS, {"WAIT_S": "300"}) == [[True], [True]]
        with HostLock().hold() as held:
            assert held.wait(300)
            assert ask(found, HOLDS, {"WAIT_S": "1"}) == [[False], [True]], "this machine is ours, as a local sweep's"
    finally:
        other.down()


@pytest.mark.long
def test_a_host_comes_in_and_comes_back_beside_a_head_that_is_in_use(
    lab: Lab, image: AgentImage, tmp_path: Path, client: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Site(lab, tmp_path / "state")

    def mended(name: str) -> Cluster:
        hosts = load_inventory(lab.inventory()).hosts
        with Connections(hosts) as connections:
            return mend(name, hosts, connections, other, print)

    def stays(cluster: Cluster) -> tuple[object, ...]:
        return client.containers.get(cluster.head_container).id, containers(cluster, lab.host("h1"))

    try:
        cluster = other.up("h1", "h2")
        before = stays(cluster)
        client.containers.get(cluster.head_container).exec_run(["sleep", "600"], detach=True)
        # somebody edits the code while the campaign runs
        monkeypatch.setattr(lifecycle, "pack_project", lambda: PackedCode("0" * 64, b""))

        assert mended("h2") == cluster, "what runs and is right stays"
        with lab.host("h2").engine() as engine:
            engine.containers.get(cluster.agent_container).kill()
        back = mended("h2")
        assert back.agents["h2"].node != cluster.agents["h2"].node
        assert back.code == cluster.code
        assert set(mended("h3").agents) == {"h1", "h2", "h3"}
        assert other.status().is_healthy

        lab.host("h2").pause()
        with pytest.raises(HostConnectionError):
            mended("h2")
        assert stays(cluster) == before

        client.containers.get(cluster.head_container).kill()
        with pytest.raises(InfrastructureError, match="the head of the cluster is gone"):
            mended("h3")
    finally:
        lab.up(hosts=3)
        other.down()
