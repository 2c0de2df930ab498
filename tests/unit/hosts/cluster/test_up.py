"""Whose a cluster is: one that a sweep brought up goes with it, and another stays. Without hosts and engines."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest

from orchestrator.config import Connection, Host, HostState, Inventory
from orchestrator.environments import ImageIdentity
from orchestrator.errors import InfrastructureError
from orchestrator.files import ProjectFiles
from orchestrator.hosts.cluster import down, keep, lifecycle, state, up
from orchestrator.hosts.cluster.lifecycle import NoHostJoinedError, borrowed, load
from orchestrator.hosts.cluster.plan import AgentImage
from orchestrator.hosts.cluster.settings import Ports
from orchestrator.hosts.cluster.state import ClusterFiles

HERE = Host(connection=Connection.LOCAL)
FIREWALL = "a firewall drops what goes to port 6400"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectFiles:
    monkeypatch.setattr(lifecycle, "local_socket", lambda: None)
    # this machine's engine, which has no container of ours
    monkeypatch.setattr(lifecycle, "connect", lambda: MagicMock(**{"containers.list.return_value": []}))
    monkeypatch.setattr(state, "_SHORT", tmp_path)
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
    refuse = Mock(side_effect=InfrastructureError(FIREWALL))
    image = AgentImage("taxmeter/agent:1", ImageIdentity("sha256:1", "0" * 64, ()))
    monkeypatch.setattr(lifecycle, "ensure_agent_image", lambda *_: image)
    monkeypatch.setattr(lifecycle, "reconciled_head", refuse)
    monkeypatch.setattr(lifecycle, "host_engine", refuse)
    with borrowed(project, print):
        with pytest.raises(InfrastructureError, match=FIREWALL):
            up({"h1": HERE}, Inventory({}), project, print)
        assert ClusterFiles(project).of_a_sweep.exists()
    assert not ClusterFiles(project).of_a_sweep.exists()
