"""Somebody else's Ray cluster: which node is which host, what is sent, and what nodes answer."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from ruamel.yaml import YAML

from orchestrator.config import Connection, Host, load_inventory, refuse_nodes
from orchestrator.environments import Catalogue
from orchestrator.errors import ConfigurationError, InfrastructureError
from orchestrator.files import ProjectFiles
from orchestrator.hosts import external_cluster as info_module
from orchestrator.hosts import open_hosts
from orchestrator.hosts.cluster import HOST_LABEL, SLOT
from orchestrator.hosts.external_cluster import ClusterInfo, ExternalCluster, RayNode, node_of
from orchestrator.hosts.local import FactsQuestion
from orchestrator.hosts.provision import EnvironmentsWanted, make_environments, read_recipes, unavailable_environments
from orchestrator.hosts.ray import Inbox, RayHost, facts_of_node, rechunked
from orchestrator.planning import Isolation
from tests.conftest import PROJECT
from tests.refusals import refusal

INVENTORY = "version: 1\nray_address: {address}\ndefaults: {{connection: ray}}\nhosts: {{h1: {{}}}}\n"


SEEN = ClusterInfo(
    "10.0.0.1:6379",
    tuple(
        RayNode(f"10.0.0.{number}", f"machine-{number}", {} if host is None else {HOST_LABEL: host}, 1.0)
        for number, host in enumerate((None, "h1", "h3", "h3"))
    ),
)


def test_a_host_that_is_several_nodes_is_told_so() -> None:
    expected = r"several nodes .* taxmeter-host=h3: machine-2 \(10.0.0.2\), machine-3 \(10.0.0.3\)"
    with pytest.raises(InfrastructureError, match=expected):
        node_of("h3", SEEN)


def test_a_machine_without_a_node_and_commands_that_go_another_way_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info_module, "_a_raylet_runs_here", lambda: False)
    inventory = tmp_path / "hosts.yaml"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        inventory.write_text(INVENTORY.format(address=address))
        known = load_inventory(inventory)
        told = rf"hosts.yaml:2: ray_address: this machine is no node .* {address}"
        with pytest.raises(ConfigurationError, match=told), open_hosts(known.hosts, known, ProjectFiles(PROJECT)):
            pytest.fail("it was opened")
    with pytest.raises(ConfigurationError, match="hosts.yaml:2: ray_address: .*nothing to reach"):
        refuse_nodes(known.hosts, known)


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("defaults: {connection: ray}\nhosts: {a: {}}", "2: defaults.connection", "`ray_address: HOST:PORT`"),
        ("ray_address: x:1\nhosts: {a: {connection: local}}", "3: hosts.a.connection", "write `connection: ray`"),
        ("ray_address: ray://x:1\nhosts: {a: {connection: ray}}", "2: ray_address", "without ray://"),
        ("ray_address: x:1\nhosts: {a: {connection: ray, address: y}}", "3: hosts.a.address", "takes no address"),
        ("ray_address: x:1\nhosts: {a: {connection: ray, engine: 'tcp://x:1'}}", "3: hosts.a.engine", "or a socket"),
    ],
)
def test_a_mistake_in_the_inventory_is_one_line_with_its_place(
    tmp_path: Path, text: str, place: str, told: str
) -> None:
    line = refusal(load_inventory, tmp_path / "hosts.yaml", f"version: 1\n{text}\n")
    assert line.startswith(f":{place}: ")
    assert told in line


def test_pieces_have_one_size_and_lose_nothing() -> None:
    assert list(rechunked([b"abc", b"", b"d", b"efghijk", b"l"], 4)) == [b"abcd", b"efgh", b"ijkl"]
    assert list(rechunked([b"abcde"], 4)) == [b"abcd", b"e"]


def test_a_host_that_fails_wants_no_more() -> None:
    def full(_: None, pieces: Iterator[bytes]) -> None:
        next(pieces)
        raise InfrastructureError("the disk is full")

    inbox = Inbox(full, None)
    inbox.put(b"a")
    while inbox.put(b"b"):
        pass
    with pytest.raises(InfrastructureError, match="the disk is full"):
        inbox.answer()


def wanted(work: Path, *environments: str) -> EnvironmentsWanted:
    return EnvironmentsWanted(environments, str(work), read_recipes(Catalogue.load(PROJECT / "docker/images.yaml")))


def test_a_node_tells_what_it_cannot_have_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(connection=Connection.RAY, engine="unix:///nonexistent.sock")
    facts = facts_of_node(FactsQuestion("h1", host, str(tmp_path / "work")))
    assert facts.isolation is Isolation.PROCESS
    assert facts.isolation_reason.startswith("no Docker engine answers at unix:///nonexistent.sock")
    monkeypatch.setattr("orchestrator.environments.virtualenv.find_python", lambda _: None)
    assert "needs Python 3.9" in unavailable_environments(wanted(tmp_path / "work", "cpu", "cpu-2022"))["cpu-2022"]
    assert not (tmp_path / "work").exists()
    with pytest.raises(InfrastructureError, match="the environment cpu needs Python 3.11"):
        make_environments(wanted(tmp_path, "cpu"))


def test_recipes_are_written_where_the_project_is_not(tmp_path: Path) -> None:
    recipes, lock = replace(wanted(tmp_path, "cpu").recipes, project="/nonexistent"), "docker/environments/cpu.lock"
    found = recipes.catalogue(tmp_path / "work")
    assert found.path.is_relative_to(tmp_path / "work")
    other = replace(recipes, files={**recipes.files, lock: "of another project"}).catalogue(tmp_path / "work")
    assert other.entry("cpu").lock_path.read_text() == "of another project"
    assert found.entry("cpu").lock_path.read_text() == recipes.files[lock] == (PROJECT / lock).read_text()


def test_a_work_directory_that_cannot_be_made_is_told_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    question = FactsQuestion("h1", Host(connection=Connection.RAY), str(tmp_path / "file" / "work"))
    told = "may not write into .*/file/work: give them the directory, or name"
    with pytest.raises(InfrastructureError, match=told):
        facts_of_node(question)
    # below a directory that is closed, as none is for root
    monkeypatch.setattr(Path, "exists", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(InfrastructureError, match=told):
        facts_of_node(question)


class Skewed(ExternalCluster):
    """Each of its nodes has another version of a package, and lacks one."""

    def run(self, host: str, function: Callable[[str], Any], text: str, timeout_s: float) -> Any:
        return {**function(text), "pyarrow": "1.0", "docker": None}


def test_other_packages_are_told_before_our_code_is_imported(tmp_path: Path) -> None:
    host = RayHost("h1", Host(connection=Connection.RAY), SEEN, Skewed("", tmp_path))
    with pytest.raises(InfrastructureError, match=r"requirements/base\.lock") as caught:
        host.facts()
    assert all(told in str(caught.value) for told in ("docker is missing there, and ", "pyarrow is 1.0 there, and "))


class FailedTaskError(Exception):
    """What Ray raises for a task that raised."""


class OneTask(ExternalCluster):
    """A cluster whose task has ended, or never does."""

    def __init__(self, ended: bool) -> None:
        super().__init__("", PROJECT)
        self.ray = MagicMock()
        self.ray.exceptions.RayError = FailedTaskError
        self.ray.wait.side_effect = lambda references, **_: (references if ended else [], [])
        self.ray.get.side_effect = FailedTaskError("it raised")

    def join(self) -> Any:
        return self.ray


def test_only_a_task_that_has_not_ended_is_cancelled() -> None:
    # Ray aborts the process that cancels a task while it takes note of its end
    failed, silent = OneTask(ended=True), OneTask(ended=False)
    with pytest.raises(InfrastructureError, match="^it raised$"):
        failed.run("h1", str, "", 0.01)
    with pytest.raises(InfrastructureError, match=r"^it gave no answer within 0.01 s$"):
        silent.run("h1", str, "", 0.01)
    assert (failed.ray.cancel.call_count, silent.ray.cancel.call_count) == (0, 1)


def test_the_manifest_of_kuberay_has_what_a_node_needs() -> None:
    document = YAML(typ="safe").load((PROJECT / "docs" / "kuberay.yaml").read_text())
    assert (document["apiVersion"], document["kind"]) == ("ray.io/v1", "RayCluster")
    lock = (PROJECT / "requirements" / "base.lock").read_text()
    spec = document["spec"]
    assert f"ray=={spec['rayVersion']}" in lock
    assert spec["authOptions"] == {"mode": "token"}
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert "labels" not in group["rayStartParams"]  # KubeRay refuses them there
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        [container] = group["template"]["spec"]["containers"]
        assert container["readinessProbe"]["tcpSocket"]
        assert container["livenessProbe"]["tcpSocket"]
        named, mounted = group["template"]["spec"]["volumes"], container["volumeMounts"]
        assert {volume["name"] for volume in mounted} == {volume["name"] for volume in named}
    for group in spec["workerGroupSpecs"]:
        assert group["labels"] == {HOST_LABEL: group["groupName"]}
        assert group["minReplicas"] == group["maxReplicas"] == group["replicas"] == 1
        # quoted once for the shell that KubeRay starts Ray with
        assert YAML(typ="safe").load(YAML(typ="safe").load(group["rayStartParams"]["resources"])) == {SLOT: 1}
    with_gpu, with_engine = spec["workerGroupSpecs"]
    [container] = with_gpu["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    paths = {volume.get("hostPath", {}).get("path") for volume in with_engine["template"]["spec"]["volumes"]}
    assert paths == {"/var/lib/taxmeter", "/var/run/docker.sock", "/tmp/taxmeter-locks"}
