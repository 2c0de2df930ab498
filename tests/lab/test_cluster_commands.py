"""`taxmeter cluster`, as a person types it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.clusters import free_ports
from tests.lab.image import PROJECT
from tests.lab.lab import Lab

pytestmark = [pytest.mark.long, pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster, pytest.mark.timeout(600)]

Taxmeter = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def taxmeter(lab: Lab, tmp_path: Path) -> Iterator[Taxmeter]:
    """Runs a command in a project of its own; its cluster is taken down at the end."""
    shutil.copytree(PROJECT / "docker", tmp_path / "docker", ignore=shutil.ignore_patterns("*.whl"))
    (tmp_path / "requirements").mkdir()
    shutil.copy(PROJECT / "requirements/base.lock", tmp_path / "requirements")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "orchestrator", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    yield run
    lab.up(hosts=3)
    run("cluster", "down")


def test_a_cluster_comes_up_is_shown_and_goes(taxmeter: Taxmeter, lab: Lab) -> None:
    where = ["--inventory", str(lab.inventory())]
    assert taxmeter("cluster", "status").returncode == 3
    assert taxmeter("cluster", "up", *where, "--first-port", "80").returncode == 2
    wrong = taxmeter("cluster", "up", *where, "--address", "192.0.2.1")
    assert (wrong.returncode, "192.0.2.1 is no IPv4 address of this machine" in wrong.stderr) == (2, True)
    lab.host("h2").pause()
    port = str(free_ports())
    partly = taxmeter("cluster", "up", *where, "--limit", "h1:h2", "--first-port", port)
    assert partly.returncode == 1, partly.stderr
    assert "✗ h2: " in partly.stderr
    assert partly.stdout.splitlines()[-1].endswith(f"is up: 1 host, head {lab_gateway(lab)}:{port}")
    lab.host("h2").unpause()
    assert taxmeter("cluster", "status").returncode == 1
    whole = taxmeter("cluster", "up", *where, "--limit", "h1:h2")
    assert (whole.returncode, "2 hosts" in whole.stdout) == (0, True)
    table = taxmeter("cluster", "status")
    assert table.returncode == 0, table.stdout
    lines = [line.split() for line in table.stdout.splitlines()]
    assert [line[0] for line in lines if "alive" in line] == ["head", "h1", "h2"]
    assert table.stdout.endswith("2 of 2 hosts live\n")
    document = json.loads(taxmeter("cluster", "status", "--format", "json").stdout)
    assert {node["ray"] for node in (document["head"], *document["agents"])} == {document["head"]["ray"]}
    checked = taxmeter("hosts", "check", *where, "--format", "json")
    assert checked.stdout, checked.stderr
    agents = {one["host"]: one["checks"]["agent"]["shown"] for one in json.loads(checked.stdout)["hosts"]}
    assert agents == {"h1": "live", "h2": "live", "h3": "-"}
    gone = taxmeter("cluster", "down")
    assert (gone.returncode, gone.stdout.splitlines()[-1]) == (0, "no cluster is up")
    assert taxmeter("cluster", "down").returncode == 0
    assert taxmeter("cluster", "status", "--format", "json").stdout == "null\n"


def test_no_host_at_all_is_exit_code_3_and_leaves_nothing(taxmeter: Taxmeter, lab: Lab, tmp_path: Path) -> None:
    lab.host("h3").kill()
    done = taxmeter("cluster", "up", "--inventory", str(lab.inventory()), "--limit", "h3")
    assert done.returncode == 3
    assert "no host can be part of the cluster: h3: " in done.stderr
    assert not (tmp_path / ".taxmeter" / "cluster").exists()


def lab_gateway(lab: Lab) -> str:
    return str(lab.host("h1").network.attrs["IPAM"]["Config"][0]["Gateway"])
