"""A Ray cluster on lab hosts: it comes up, is mended, is looked at, and goes without a trace of anybody else's."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.errors import InfrastructureError
from orchestrator.execution import pack_files, pack_project
from orchestrator.files import read_tree
from orchestrator.hosts.cluster import Cluster, execute_in_head, lifecycle
from orchestrator.hosts.cluster.commands import execution, run_in
from orchestrator.hosts.cluster.lifecycle import load
from orchestrator.hosts.cluster.plan import AgentImage
from tests.lab.clusters import NODES, Site, ask, containers, foreign, ours
from tests.lab.image import PROJECT
from tests.lab.lab import Lab

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]

CODE = """
import os
code = {"working_dir": os.environ["TAXMETER_CODE"]}
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
    from orchestrator.execution import pack_files
    from orchestrator.files import read_tree
    place = Path(orchestrator.__file__).parents[1]
    return (socket.gethostname(), pack_files(read_tree(place)).digest, os.nice(0),
            sorted(os.sched_getaffinity(0)), importlib.metadata.version("taxmeter"))
hosts = ["h1", "h2", "h3"]
print(json.dumps(ray.get([look.options(label_selector={"taxmeter-host": h}).remote() for h in hosts], timeout=60)))
"""
)
OUTSIDE = """
import sys
from pathlib import Path
from orchestrator.hosts.cluster import Cluster, execute_in_head
cluster = Cluster(sys.argv[1], 1, Path("/nowhere"), Path("/nowhere"), "127.0.0.1", Path(sys.argv[2]))
sys.exit(execute_in_head(cluster, sys.argv[3:]))
"""
# Says that it is ready, and what ended it.
INSIDE = """
import os, signal, sys, time
def end(number, frame):
    print("ended by", number, flush=True)
    if len(sys.argv) > 1:
        open(sys.argv[1], "w").write(str(number))
    sys.exit(7)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
print("ready", os.getpid(), flush=True)
time.sleep(600)
"""


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
        found = Site(shared_lab, tmp_path_factory.mktemp("cluster") / "state")
        yield found
        shared_lab.up(hosts=3)
        found.down()


@pytest.fixture
def cluster(site: Site, lab: Lab) -> Cluster:
    """Up on all three hosts."""
    return site.up()


def test_every_host_is_a_node_whose_tasks_have_our_code_and_the_reserved_core(cluster: Cluster, lab: Lab) -> None:
    assert cluster.unusable == {}
    nodes = ask(cluster, NODES)
    assert len(nodes) == 4
    served = {labels["taxmeter-host"]: (labels, found) for labels, found, _ in nodes if "bench_slot" in found}
    assert set(served) == set(cluster.agents) == {"h1", "h2", "h3"}
    for host in lab.hosts():
        labels, resources = served[host.name]
        assert (labels["gpu_generation"], labels["site"]) == (host.hardware.gpu_generation, "lab")
        assert resources["bench_slot"] == 1
        assert cluster.agents[host.name].address == host.address
    told = ask(cluster, TASKS)
    assert [name for name, *_ in told] == ["h1", "h2", "h3"]
    sent = pack_files(read_tree(cluster.code)).digest
    for (_, *found), agent in zip(told, cluster.agents.values(), strict=True):
        assert found == [sent, 0, list(agent.agent_cores or agent.cores), "0.1.0"]


def test_up_again_changes_nothing(site: Site, cluster: Cluster, lab: Lab, client: DockerClient) -> None:
    def made() -> object:
        return containers(cluster, *lab.hosts()), [found.id for found in ours(client, cluster)]

    before = made()
    assert site.up() == site.up("h2") == cluster
    assert load(site) == cluster
    assert made() == before
    assert site.status().is_healthy
    # nor does looking leave anything that runs in the head
    deadline = time.monotonic() + 30
    while any(
        client.api.exec_inspect(found)["Running"]
        for found in client.api.inspect_container(cluster.head_container)["ExecIDs"] or ()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


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
def test_what_is_wrong_with_agents_or_gone_is_told_and_mended(
    site: Site, cluster: Cluster, lab: Lab, client: DockerClient
) -> None:
    before = containers(cluster, lab.host("h1"))
    other = "import importlib.metadata as m; print(m.distribution('ray')._path)"
    with lab.host("h2").engine() as engine:
        agent = engine.containers.get(cluster.agent_container)
        assert agent.exec_run(["sh", "-c", "echo wrong >/run/taxmeter/token"]).exit_code == 0
        place = run_in(agent, ["python", "-c", other]).stdout.strip()
        assert agent.exec_run(["sed", "-i", "s/^Version: .*/Version: 1.2.3/", f"{place}/METADATA"]).exit_code == 0
    with lab.host("h3").engine() as engine:
        engine.containers.get(cluster.agent_container).kill()
    found = {agent.name: agent for agent in site.status().agents}
    assert "its token is not that of the cluster; `taxmeter cluster up` mends it" in found["h2"].problems
    assert any(re.match(r"it has Ray 1\.2\.3, and the head has \d", problem) for problem in found["h2"].problems)
    assert (found["h3"].container, found["h3"].is_alive) == ("exited", False)
    assert "taxmeter cluster up" in found["h3"].problems[0]
    assert found["h1"].problems == ()
    mended = site.up()
    assert containers(mended, lab.host("h1")) == before
    assert site.status().is_healthy

    client.containers.get(cluster.head_container).kill()
    status = site.status()
    assert (status.head.container, status.is_healthy) == ("exited", False)
    again = site.up()
    assert again.id == cluster.id
    assert not {agent.node for agent in again.agents.values()} & {agent.node for agent in mended.agents.values()}
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


def execute(cluster: Cluster, *argv: str) -> tuple[int, bytes, bytes]:
    """The exit code of a command in the head, its output and its errors."""
    said = {1: b"", 2: b""}
    with execution(cluster, argv) as running:
        for stream, data in running.frames():
            said[stream] += data
        return running.exit_code(), said[1], said[2]


def outside(cluster: Cluster, *argv: str, stdout: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
    """The same from a process of its own, which gets signals."""
    command = [sys.executable, "-c", OUTSIDE, cluster.id, str(cluster.code), *argv]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, cwd=PROJECT)


def test_output_exit_code_directory_and_code_of_a_command_in_the_head(cluster: Cluster) -> None:
    assert execute(cluster, "sh", "-c", "printf out; printf err >&2; exit 3") == (3, b"out", b"err")
    assert execute(cluster, "sh", "-c", "kill -9 $$")[0] == 128 + 9
    code, said, _ = execute(cluster, "python", "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40000)")
    assert (code, said) == (0, bytes(range(256)) * 40000)
    assert execute(cluster, "cat") == (0, b"", b"")
    program = "import orchestrator, os; print(os.getcwd()); print(orchestrator.__file__)"
    directory, file = execute(cluster, "python", "-c", program)[1].decode().splitlines()
    assert directory == str(PROJECT)
    assert Path(file).is_relative_to(cluster.code)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_command(cluster: Cluster, number: signal.Signals) -> None:
    with outside(cluster, "python", "-c", INSIDE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        process.send_signal(number)
        assert process.stdout.read() == f"ended by {int(number)}\n".encode()
        assert process.wait() == 7


def test_the_command_ends_when_nobody_waits_for_it_any_more(cluster: Cluster) -> None:
    told = cluster.token_path.with_name("told")
    with outside(cluster, "python", "-c", INSIDE, str(told)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        process.kill()
    while not (told.exists() and told.read_text()):
        time.sleep(0.05)
    assert told.read_text() == str(int(signal.SIGTERM))


def test_a_terminal_here_is_a_terminal_there(cluster: Cluster) -> None:
    ours, theirs = pty.openpty()
    with outside(cluster, "python", "-c", "import sys; print(sys.stdout.isatty())", stdout=theirs) as process:
        process.wait()
    assert b"True" in os.read(ours, 4096)
    os.close(theirs)
    os.close(ours)


def test_a_cluster_that_is_gone_is_named(lab_possible: None, tmp_path: Path) -> None:
    gone = Cluster("0badcafe", 1, tmp_path, tmp_path)
    with pytest.raises(InfrastructureError, match="taxmeter-head-0badcafe; `taxmeter cluster up`"):
        execute_in_head(gone, ["true"])
