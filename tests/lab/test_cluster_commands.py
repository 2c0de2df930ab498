"""`taxmeter cluster`, as a person types it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.hosts.cluster.reach import listened_here
from orchestrator.hosts.cluster.settings import chosen_ports
from tests.lab.lab import Lab
from tests.lab.workshop import Workshop

pytestmark = [pytest.mark.long, pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]


@pytest.fixture
def project(lab: Lab, tmp_path: Path) -> Iterator[Workshop]:
    """A project whose cluster is taken down at the end."""
    found = Workshop.make(tmp_path, lab)
    yield found
    lab.up(hosts=3)
    found.taxmeter("cluster", "down")


def test_a_cluster_comes_up_is_shown_and_goes(project: Workshop, lab: Lab) -> None:
    def cluster(*arguments: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
        return project.taxmeter("cluster", *arguments, code=code)

    where = ("--inventory", project.inventory())
    some = (*where, "--limit", "h1:h2")
    cluster("status", code=3)
    cluster("up", *where, "--first-port", "80", code=2)
    wrong = cluster("up", *where, "--address", "192.0.2.1", code=2)
    assert "192.0.2.1 is no IPv4 address of this machine" in wrong.stderr
    lab.host("h2").pause()
    port = chosen_ports(None, listened_here()).head
    partly = cluster("up", *some, "--first-port", port, code=1)
    assert "✗ h2: " in partly.stderr
    assert partly.stdout.splitlines()[-1].endswith(f"is up: 1 host, head {lab_gateway(lab)}:{port}")
    lab.host("h2").unpause()
    assert "✗ h2: it was left out: " in cluster("status", code=1).stdout
    assert "2 hosts" in cluster("up", *some).stdout
    table = cluster("status")
    lines = [line.split() for line in table.stdout.splitlines()]
    assert [line[0] for line in lines if "alive" in line] == ["head", "h1", "h2"]
    assert table.stdout.endswith("2 of 2 hosts live\n")
    document = json.loads(cluster("status", "--format", "json").stdout)
    assert {node["ray"] for node in (document["head"], *document["agents"])} == {document["head"]["ray"]}
    checked = project.taxmeter("hosts", "check", *where, "--format", "json")
    assert checked.stdout, checked.stderr
    agents = {host["host"]: host["checks"]["agent"]["shown"] for host in json.loads(checked.stdout)["hosts"]}
    assert agents == {"h1": "live", "h2": "live", "h3": "-"}
    assert cluster("down").stdout.splitlines()[-1] == "no cluster is up"
    cluster("down")
    assert cluster("status", "--format", "json", code=3).stdout == "null\n"


def test_no_host_at_all_is_exit_code_3_and_leaves_nothing(project: Workshop, lab: Lab) -> None:
    lab.host("h3").kill()
    done = project.taxmeter("cluster", "up", "--inventory", project.inventory(), "--limit", "h3", code=3)
    assert "no host can be part of the cluster: h3: " in done.stderr
    assert not (project.root / ".taxmeter" / "cluster").exists()


def lab_gateway(lab: Lab) -> str:
    return str(lab.host("h1").network.attrs["IPAM"]["Config"][0]["Gateway"])
