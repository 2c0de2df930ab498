"""What of a cluster needs no machine: settings, state, what a host's answer means, and with whom a cluster goes."""

import os
import re
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest

from orchestrator.config import Connection, Host, HostState, Inventory
from orchestrator.environments import ImageIdentity
from orchestrator.errors import ConfigurationError, InfrastructureError
from orchestrator.files import ProjectFiles
from orchestrator.hosts.cluster import down, keep, lifecycle, state, up
from orchestrator.hosts.cluster.lifecycle import NoHostJoinedError, borrowed, load
from orchestrator.hosts.cluster.plan import AgentImage, Site
from orchestrator.hosts.cluster.reach import choose_address, listened_here, survey
from orchestrator.hosts.cluster.reconcile import _refuse_taken_ports as refuse_taken_ports
from orchestrator.hosts.cluster.reconcile import last_words
from orchestrator.hosts.cluster.settings import (
    Ports,
    agent_command,
    chosen_ports,
    chosen_tls,
    environment,
    head_command,
)
from orchestrator.hosts.cluster.state import Agent, Cluster, ClusterFiles
from orchestrator.hosts.connection import CommandOutput, Connections

HERE = Host(connection=Connection.LOCAL)
AGENT = Agent("h1", "10.0.0.7", "/var/lib/taxmeter", (0, 1), (0,), "sha256:1", ("GPU-1",), "n1")


def test_all_ports_of_a_cluster_lie_in_its_block_and_fit_onto_one_machine() -> None:
    ports = Ports(20000)
    options = [*head_command("10.0.0.1", ports), *agent_command("h", "a", ports, {"a": "b"}, {"slot": 1})]
    single = [int(option.partition("=")[2]) for option in options if "port=" in option and "worker" not in option]
    assert len(set(single)) == len(single) == 13
    assert all(20000 <= port < 20100 for port in single)
    assert (ports.driver_workers, ports.agent_workers) == ((20100, 20199), (20200, 20299))


def test_ports_are_those_asked_for_then_those_of_the_environment_then_the_first_that_are_free_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert chosen_ports(None).head == 20000
    assert chosen_ports(None, {19999, 22, 20300}).head == 20000
    assert chosen_ports(None, {20007, 20599}).head == 20600
    assert chosen_ports(20000, {20007}).head == 20000
    assert chosen_ports(None, range(20000, 32100)).head == 32300
    with pytest.raises(ConfigurationError, match="from 20000 to 32767 no 300 in a row are free"):
        chosen_ports(None, range(20000, 33000))
    for wrong in (80, 65500):
        with pytest.raises(ConfigurationError, match="the cluster takes 300 ports"):
            chosen_ports(wrong)
    monkeypatch.setenv("TAXMETER_FIRST_PORT", "30000")
    assert (chosen_ports(None, {30007}).head, chosen_ports(25000).head) == (30000, 25000)
    monkeypatch.setenv("TAXMETER_FIRST_PORT", "many")
    with pytest.raises(ConfigurationError, match="300 ports from many on"):
        chosen_ports(None)


def test_what_listens_on_this_machine_is_seen_and_a_port_that_somebody_has_is_named(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        assert port in listened_here()
        assert port in survey("here", HERE, Connections({}), ProjectFiles(tmp_path)).listened
        with pytest.raises(InfrastructureError, match=f"port {port} of this machine is taken .*--first-port"):
            refuse_taken_ports(Ports(port))


def test_tls_takes_three_files_and_names_the_one_that_is_missing(tmp_path: Path) -> None:
    assert chosen_tls({}) == {}
    names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
    given = {"RAY_USE_TLS": "1"}
    with pytest.raises(ConfigurationError, match="RAY_TLS_SERVER_CERT: RAY_USE_TLS is 1"):
        chosen_tls(given)
    for name in names:
        (tmp_path / name).write_text(name)
        given[name] = str(tmp_path / name)
    tls = chosen_tls(given)
    assert tls["RAY_TLS_CA_CERT"] == b"RAY_TLS_CA_CERT"
    settings = environment("/token", tls)
    assert settings["RAY_USE_TLS"] == "1"
    assert all(settings[name].startswith("/run/taxmeter/tls-") for name in names)
    (tmp_path / names[2]).unlink()
    with pytest.raises(ConfigurationError, match=r"RAY_TLS_CA_CERT: \S+: No such file"):
        chosen_tls(given)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterFiles:
    monkeypatch.setattr(state, "_SHORT", tmp_path)
    return ClusterFiles(ProjectFiles(tmp_path))


def test_what_is_remembered_comes_back_as_it_was(files: ClusterFiles) -> None:
    assert files.load() is None
    cluster = files.create(Ports(21000))
    host, gate = (Host(connection=Connection.SSH, address=address) for address in ("10.0.0.7", "10.0.0.1"))
    host = host.model_copy(update={"jump": "gate", "labels": {"rack": "b"}})
    cluster = replace(cluster, head_address="10.0.0.2", code=files.code, agents={"h1": AGENT}, unusable={"h2": "off"})
    cluster = cluster.with_touched("h1", {"h1": host, "gate": gate, "other": gate})
    files.save(cluster)
    assert files.load() == cluster
    assert set(cluster.hosts) == {"h1", "gate"}
    circle = {"a": host.model_copy(update={"jump": "b"}), "b": host.model_copy(update={"jump": "a"})}
    assert set(replace(cluster, hosts={}).with_touched("a", circle).hosts) == {"a", "b"}
    assert cluster.ray_address == "10.0.0.2:21000"
    assert cluster.token_path.stat().st_mode & 0o777 == 0o600
    assert cluster.token_path.read_text() not in (files.directory / "state.json").read_text()
    files.forget(cluster)
    assert files.load() is None
    assert not cluster.token_path.exists()


def test_a_directory_of_sockets_that_somebody_else_made_since_is_not_used(
    files: ClusterFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = files.create(Ports(21000)).sockets
    (tmp_path / "theirs").mkdir(mode=0o700)
    user = os.geteuid()

    def is_refused() -> None:
        with pytest.raises(InfrastructureError, match=f"{sockets} is not ours alone; find out who made it"):
            files.load()

    sockets.chmod(0o750)
    is_refused()
    sockets.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    is_refused()
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert files.load() is not None
    sockets.rmdir()
    sockets.symlink_to(tmp_path / "theirs")
    is_refused()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("10.0.0.7", "$(touch x)", r"hosts\.h1\.address: "),
        ('"sockets"', '"socket"', r"sockets?: (Missing|Field required|Unexpected)"),
        ('"version": 1', '"version": 99', "version: Input should be 1"),
        ("}", "", "no JSON: "),
    ],
    ids=["refused", "unknown", "of another version", "cut"],
)
def test_what_was_remembered_and_cannot_be_read_is_named(
    files: ClusterFiles, tmp_path: Path, old: str, new: str, why: str
) -> None:
    far = {"h1": Host(connection=Connection.SSH, address="10.0.0.7")}
    files.save(Cluster("c", 21000, tmp_path / "token", tmp_path, hosts=far))
    path = files.directory / "state.json"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InfrastructureError, match=f"damaged, or of another version of taxmeter: .*state.json: {why}"):
        files.load()


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("one\n  two\n", "one two"),
        ("", "it said nothing"),
        ('before\n  File "a.py", line 3, in start\n    node = Node(\nException: it timed out\n', "before Exception: it timed out"),
        ('  File "a.py", line 3, in start\n    node = Node(\n', 'File "a.py", line 3, in start node = Node('),
        ('    x()\nTraceback (most recent call last):\n  File "a.py", line 3\nE: no GCS\nSome died:\n  raylet\n\nKilled.\n', "E: no GCS Some died: raylet Killed."),
        ("x" * 700, "x" * 600),
    ],
)  # fmt: skip
def test_of_an_agent_that_ended_one_line_is_told(log: str, words: str) -> None:
    assert last_words(log) == words


class Told(Connections):
    """To a host that says something else than this machine, where what is to run there runs."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__({})
        self.old, self.new = old, new

    def run(self, name: str, argv: Sequence[str], timeout_s: float, stdin: str | bytes = b"") -> CommandOutput:
        said = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=True).stdout
        return CommandOutput(0, re.sub(self.old, self.new, said, flags=re.MULTILINE), "")


FAR = Host(connection=Connection.SSH, address="h", work_directory="/not/yet")
CONNECTED = "^@connection\n.*"


def surveyed(old: str, new: str) -> Site:
    return survey("h", FAR, Told(old, new), ProjectFiles(Path("/p")))


def test_a_host_tells_both_addresses_of_its_connection() -> None:
    site = surveyed(CONNECTED, "@connection\n10.0.0.1 5000 10.0.0.7 22")
    assert (site.ours, site.address, site.work_directory) == ("10.0.0.1", "10.0.0.7", "/not/yet")


@pytest.mark.parametrize(
    ("said", "instead", "problem"),
    [
        (r"\|.*\|/not/yet$", "|nfs|/not/yet", r"on a network file system \(nfs\).*`work_directory:`"),
        (CONNECTED, "@connection\nfe80::1%eth0 5000 fe80::2%eth0 22", r"IPv6 \(fe80::1%eth0\)"),
        (CONNECTED, "@connection\nUNKNOWN 65535 UNKNOWN 65535", r"without TCP \(UNKNOWN\)"),
    ],
)
def test_a_host_that_cannot_be_part_of_a_cluster_is_refused(said: str, instead: str, problem: str) -> None:
    with pytest.raises(InfrastructureError, match=problem):
        surveyed(said, instead)


def test_the_head_has_the_address_that_most_hosts_see_and_keeps_it() -> None:
    def seen(ours: str | None) -> Site:
        return Site("h", FAR, "/work", "127.0.0.9", ours, has_gpus=False, has_os_release=True)

    many = [seen("127.0.0.2"), seen("127.0.0.3"), seen("127.0.0.3"), seen(None)]
    assert choose_address(many, None) == "127.0.0.3"
    assert choose_address(many, "127.0.0.2") == "127.0.0.2"
    assert choose_address(many, "127.0.0.4") == "127.0.0.3"
    # a jump host's address is none of ours: the way from here to the host counts
    assert choose_address([seen("192.0.2.77")], None) == "127.0.0.1"


@pytest.fixture
def project(files: ClusterFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectFiles:
    """Of a machine whose engine has no container of ours."""
    monkeypatch.setattr(lifecycle, "local_socket", lambda: None)
    monkeypatch.setattr(lifecycle, "connect", lambda: MagicMock(**{"containers.list.return_value": []}))
    return ProjectFiles(tmp_path)


def brought_up(project: ProjectFiles) -> None:
    files = ClusterFiles(project)
    files.save(replace(files.create(Ports(20000)), head_address="10.0.0.1"))


def test_a_cluster_that_no_host_can_join_says_why_of_each(project: ProjectFiles) -> None:
    hosts = {
        "h1": HERE.model_copy(update={"state": HostState.DRAIN}),
        "h2": HERE.model_copy(update={"labels": {"bad label": "x"}}),
    }
    with pytest.raises(NoHostJoinedError) as caught:
        up(hosts, Inventory({"other": HERE}), project, print)
    assert caught.value.reasons["h1"] == "the inventory drains it"
    assert "Ray does not take its label `bad label: x`" in caught.value.reasons["h2"]


def test_a_cluster_of_a_sweep_goes_with_it_and_another_stays(project: ProjectFiles) -> None:
    with borrowed(project, print):
        brought_up(project)
    assert load(project) is None

    brought_up(project)
    with borrowed(project, print):
        pass
    assert load(project) is not None, "it was up for its own sake"
    down(project, print)

    # A killed sweep leaves its cluster, which is the next sweep's as if that had brought it up ...
    for asked_for in (False, True):
        ClusterFiles(project).of_a_sweep.touch()
        brought_up(project)
        if asked_for:  # ... unless somebody asked for it meanwhile.
            keep(project)
        with borrowed(project, print):
            pass
        assert (load(project) is not None) is asked_for
    ClusterFiles(project).of_a_sweep.touch()
    assert down(project, print) == {}
    assert not ClusterFiles(project).of_a_sweep.exists(), "the mark goes with the cluster"


def test_a_cluster_that_a_sweep_brings_up_for_the_next_host_goes_with_the_sweep(
    project: ProjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Mock(side_effect=InfrastructureError("a firewall"))
    image = AgentImage("taxmeter/agent:1", ImageIdentity("sha256:1", "0" * 64, ()))
    monkeypatch.setattr(lifecycle, "ensure_agent_image", lambda *_: image)
    monkeypatch.setattr(lifecycle, "reconciled_head", refuse)
    monkeypatch.setattr(lifecycle, "host_engine", refuse)
    with borrowed(project, print):
        with pytest.raises(InfrastructureError, match="a firewall"):
            up({"h1": HERE}, Inventory({}), project, print)
        assert ClusterFiles(project).of_a_sweep.exists()
    assert not ClusterFiles(project).of_a_sweep.exists()
