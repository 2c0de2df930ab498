"""A Ray cluster on lab hosts: it comes up, is mended, is looked at, and goes without a trace of anybody else's."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.config import Connection, Host, load_inventory
from orchestrator.environments import connect, engine_address
from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.execution import pack_files, pack_project, read_tree
from orchestrator.hosts.cluster import Cluster, ensure_agent_image, lifecycle, load, up
from orchestrator.hosts.cluster.executing import run_in
from orchestrator.hosts.cluster.plan import AgentImage
from orchestrator.hosts.lock import HostLock
from tests.lab.clusters import Site, ask, containers, foreign, free_ports, ours
from tests.lab.image import PROJECT
from tests.lab.lab import Lab

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster, pytest.mark.timeout(600)]

CODE = """
import os
code = {"working_dir": os.environ["TAXMETER_CODE"]}
"""
NODES = """
import json, ray
ray.init(logging_level="error")
print(json.dumps([[n["Labels"], n["Resources"], n["NodeManagerAddress"]] for n in ray.nodes() if n["Alive"]]))
"""
TASKS = (
    CODE
    + """
import importlib.metadata, json, os, ray, socket
ray.init(logging_level="error", log_to_driver=False, runtime_env=code)
@ray.remote(num_cpus=0, resources={"bench_slot": 1}, max_retries=0)
def look():
    import orchestrator, runners
    from pathlib import Path
    from orchestrator.execution import pack_files, read_tree
    place = Path(orchestrator.__file__).parents[1]
    return (socket.gethostname(), pack_files(read_tree(place)).digest, os.nice(0),
            sorted(os.sched_getaffinity(0)), importlib.metadata.version("taxmeter"))
hosts = ["h1", "h2", "h3"]
print(json.dumps(ray.get([look.options(label_selector={"taxmeter-host": h}).remote() for h in hosts], timeout=60)))
"""
)
HOLDS = (
    CODE
    + """
import json, ray
wait_s = float(os.environ["WAIT_S"])
ray.init(logging_level="error", log_to_driver=False, runtime_env=code)
@ray.remote(num_cpus=0, resources={"bench_slot": 1}, max_retries=0)
def hold(wait_s):
    from orchestrator.hosts.lock import HostLock
    with HostLock().hold() as held:
        return [held.wait(wait_s)]
print(json.dumps([ray.get(hold.options(label_selector={"taxmeter-host": h}).remote(wait_s)) for h in ["here", "h1"]]))
"""
)


@pytest.fixture(scope="module")
def image(shared_lab: Lab) -> AgentImage:
    with closing(connect()) as client:
        return ensure_agent_image(PROJECT, client, engine_address(), print)


@pytest.fixture(scope="module")
def site(
    shared_lab: Lab, seeded_lab: Lab, image: AgentImage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """The cluster that the tests of this file share, each of which may leave it in need of mending."""
    shared_lab.up(hosts=3)
    with pytest.MonkeyPatch.context() as patch:
        # somebody may edit the code while the tests run
        code = pack_project()
        patch.setattr(lifecycle, "pack_project", lambda: code)
        found = Site(shared_lab, tmp_path_factory.mktemp("cluster") / "state", free_ports())
        yield found
        shared_lab.up(hosts=3)
        found.down()


@pytest.fixture
def cluster(site: Site, lab: Lab) -> Cluster:
    """Up on all three hosts."""
    return site.up()


def test_every_host_is_a_node_with_its_labels_and_one_slot(cluster: Cluster, lab: Lab) -> None:
    assert set(cluster.agents) == {"h1", "h2", "h3"}
    assert cluster.unusable == {}
    nodes = ask(cluster, NODES)
    served = {
        labels["taxmeter-host"]: (labels, resources) for labels, resources, _ in nodes if "bench_slot" in resources
    }
    assert set(served) == {"h1", "h2", "h3"}
    for host in lab.hosts():
        labels, resources = served[host.name]
        assert (labels["gpu_generation"], labels["site"]) == (host.hardware.gpu_generation, "lab")
        assert resources["bench_slot"] == 1
        assert cluster.agents[host.name].address == host.address
    assert len(nodes) == 4


def test_a_task_runs_on_every_host_with_our_code_on_the_reserved_core(cluster: Cluster) -> None:
    found = ask(cluster, TASKS)
    assert [one[0] for one in found] == ["h1", "h2", "h3"]
    sent = pack_files(read_tree(cluster.code)).digest
    for (_, code, nice, cores, version), agent in zip(found, cluster.agents.values(), strict=True):
        assert code == sent
        assert nice == 0
        assert cores == list(agent.agent_cores or agent.cores)
        assert version == "0.1.0"


def test_up_again_changes_nothing(site: Site, cluster: Cluster, lab: Lab, client: DockerClient) -> None:
    before = containers(cluster, *lab.hosts()), [one.id for one in ours(client, cluster)]
    assert site.up() == cluster
    assert load(site) == cluster
    assert (containers(cluster, *lab.hosts()), [one.id for one in ours(client, cluster)]) == before
    assert site.status().is_healthy


def test_looking_leaves_nothing_running_in_the_head(site: Site, cluster: Cluster, client: DockerClient) -> None:
    site.status()
    site.up()
    deadline = time.monotonic() + 30
    while any(
        client.api.exec_inspect(one)["Running"]
        for one in client.api.inspect_container(cluster.head_container)["ExecIDs"] or ()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_up_on_one_host_leaves_the_others(site: Site, cluster: Cluster, lab: Lab) -> None:
    before = containers(cluster, *lab.hosts())
    assert site.up("h2") == cluster
    assert containers(cluster, *lab.hosts()) == before


def test_the_token_is_in_one_file_of_its_owner(cluster: Cluster, lab: Lab, client: DockerClient) -> None:
    token = cluster.token_path.read_text()
    assert len(token) == 64
    assert cluster.token_path.stat().st_mode & 0o777 == 0o600
    assert cluster.token_path.parent.stat().st_mode & 0o777 == 0o700
    for one in ours(client, cluster):
        assert token not in json.dumps(one.attrs)
    for path in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                assert token.encode() not in (path / name).read_bytes()
            except OSError:
                continue  # it has ended, or is not ours to read
    for host in lab.hosts():
        with host.engine() as engine:
            [agent] = ours(engine, cluster)
            assert token not in json.dumps(agent.attrs)
            said = run_in(agent, ["stat", "-c", "%a %U", "/run/taxmeter/token", "/run/taxmeter"]).stdout
            assert said.splitlines() == ["600 root", "700 root"]
        script = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; true"
        seen = run_in(host.container, ["sh", "-c", script]).stdout
        assert "ray" in seen
        assert token not in seen


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, {}], ids=["wrong", "none"]
)
def test_a_node_without_the_token_is_refused(
    cluster: Cluster, lab: Lab, image: AgentImage, settings: dict[str, str]
) -> None:
    command = ["ray", "start", f"--address={cluster.ray_address}", "--block"]
    with (
        lab.host("h1").engine() as engine,
        foreign(engine, image.reference, *command, network_mode="host", environment=settings) as stranger,
    ):
        assert stranger.wait(timeout=60)["StatusCode"] != 0
        assert b"InvalidAuthToken" in stranger.logs()
    assert len(ask(cluster, NODES)) == 4


@pytest.mark.long
def test_a_killed_agent_is_told_and_mended(site: Site, cluster: Cluster, lab: Lab) -> None:
    host, others = lab.host("h2"), [lab.host("h1"), lab.host("h3")]
    before = containers(cluster, *others)
    with host.engine() as engine:
        engine.containers.get(cluster.agent_container).kill()
    found = {one.name: one for one in site.status().agents}
    assert (found["h2"].container, found["h2"].is_alive) == ("exited", False)
    assert "taxmeter cluster up" in found["h2"].problems[0]
    assert not found["h1"].problems
    mended = site.up()
    assert mended.agents["h2"] != cluster.agents["h2"]
    assert containers(mended, *others) == before
    assert site.status().is_healthy
    assert [one[0] for one in ask(mended, TASKS)] == ["h1", "h2", "h3"]


def test_changed_code_is_the_next_drivers_and_changes_no_container(
    site: Site, cluster: Cluster, lab: Lab, client: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = containers(cluster, *lab.hosts()), [found.id for found in ours(client, cluster)]
    files = read_tree(cluster.code)
    edited = pack_files({**files, "runners/__init__.py": files["runners/__init__.py"] + b"# edited\n"})
    monkeypatch.setattr(lifecycle, "pack_project", lambda: edited)
    changed = site.up()
    assert {found[1] for found in ask(changed, TASKS)} == {edited.digest}
    assert {found[1] for found in ask(cluster, TASKS)} == {pack_files(files).digest}, "who began before goes on"
    assert (containers(changed, *lab.hosts()), [found.id for found in ours(client, changed)]) == before


@pytest.mark.long
def test_a_wrong_token_and_other_versions_are_told_and_mended(site: Site, cluster: Cluster, lab: Lab) -> None:
    other = "import importlib.metadata as m; print(m.distribution('ray')._path)"
    with lab.host("h2").engine() as engine:
        agent = engine.containers.get(cluster.agent_container)
        assert agent.exec_run(["sh", "-c", "echo wrong >/run/taxmeter/token"]).exit_code == 0
        place = run_in(agent, ["python", "-c", other]).stdout.strip()
        assert agent.exec_run(["sed", "-i", "s/^Version: .*/Version: 1.2.3/", f"{place}/METADATA"]).exit_code == 0
    found = {one.name: one.problems for one in site.status().agents}
    assert "its token is not that of the cluster; `taxmeter cluster up` mends it" in found["h2"]
    assert any(re.match(r"it has Ray 1\.2\.3, and the head has \d", problem) for problem in found["h2"])
    assert found["h1"] == found["h3"] == ()
    site.up()
    assert site.status().is_healthy


@pytest.mark.long
def test_a_lost_head_is_told_and_made_again_with_new_agents(site: Site, cluster: Cluster, client: DockerClient) -> None:
    client.containers.get(cluster.head_container).kill()
    found = site.status()
    assert (found.head.container, found.is_healthy) == ("exited", False)
    mended = site.up()
    assert mended.id == cluster.id
    assert not {one.node for one in mended.agents.values()} & {one.node for one in cluster.agents.values()}
    assert site.status().is_healthy


@pytest.mark.long
def test_a_head_in_use_is_not_replaced(site: Site, cluster: Cluster, client: DockerClient) -> None:
    head = client.containers.get(cluster.head_container)
    head.exec_run(["sleep", "600"], detach=True)
    cluster.token_path.write_text("another")
    try:
        with pytest.raises(InfrastructureError, match="a command runs in its head"):
            site.up()
    finally:
        head.exec_run(["pkill", "sleep"]) if head.exec_run(["which", "pkill"]).exit_code == 0 else head.kill()
    assert site.up().agents.keys() == cluster.agents.keys()


@pytest.mark.long
def test_a_frozen_host_is_left_out_and_comes_in_later(lab: Lab, image: AgentImage, tmp_path: Path) -> None:
    other = Site(lab, tmp_path / "state", free_ports())
    lab.host("h3").pause()
    try:
        found = other.up()
        assert set(found.agents) == {"h1", "h2"}
        assert "no answer" in found.unusable["h3"] or "timed out" in found.unusable["h3"]
        problems = {one.name: one.problems for one in other.status().agents}
        assert problems["h3"][0].startswith("it was left out: ")
        lab.host("h3").unpause()
        again = other.up()
        assert again.unusable == {}
        assert {name: again.agents[name] for name in ("h1", "h2")} == found.agents
    finally:
        lab.up(hosts=3)
        other.down()


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
    other = Site(lab, tmp_path / "state", free_ports())
    ports = {"head": other.first_port, "worker": other.first_port + 299}
    host = lab.host("h2")
    done = run_in(host.container, ["sh", "-c", f"iptables -A {rule.format(**ports)} -j REJECT"])
    if done.exit_code != 0:
        pytest.skip(f"no firewall in a lab host: {done.stderr.strip()}")
    try:
        with pytest.raises(NoUsableHostError, match=reason.format(**ports)):
            other.up("h2")
        assert load(other) is None
    finally:
        host.container.exec_run(["iptables", "-F"])
        other.down()


def test_down_removes_ours_and_nothing_else(lab: Lab, image: AgentImage, tmp_path: Path, client: DockerClient) -> None:
    other = Site(lab, tmp_path / "state", free_ports())
    ray = [
        "ray",
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        "--port=7777",
        "--include-dashboard=false",
    ]
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
    other = Site(lab, tmp_path / "state", free_ports())
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
    other = Site(lab, tmp_path / "state", free_ports())
    try:
        found = up(here, load_inventory(lab.inventory()), other, print, first_port=other.first_port)
        assert (found.unusable, found.agents["here"].address) == ({}, found.head_address)
        assert {one.name for one in other.status().agents if one.is_alive} == {"here", "h1"}
        assert ask(found, TASKS.replace('["h1", "h2", "h3"]', '["here", "h1"]'))[1][0] == "h1"
        # somebody may measure on this machine meanwhile: other tests, for example
        assert ask(found, HOLDS, {"WAIT_S": "300"}) == [[True], [True]]
        with HostLock().hold() as held:
            assert held.wait(300)
            assert ask(found, HOLDS, {"WAIT_S": "1"}) == [[False], [True]], "this machine is ours, as a local sweep's"
    finally:
        other.down()
