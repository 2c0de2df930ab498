"""A cluster that no host can join, and one that a sweep brings up for itself. Without hosts and engines."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.campaign import ProjectFiles
from orchestrator.config import Connection, Host, HostState, Inventory
from orchestrator.hosts.cluster import NoHostJoinedError, borrowed, lifecycle, up
from orchestrator.hosts.cluster.state import State, StateFiles
from orchestrator.hosts.cluster.survey import Survey

HERE = Host(connection=Connection.LOCAL)
FIREWALL = "a firewall drops what goes to port 6400"


@pytest.fixture
def inventory(monkeypatch: pytest.MonkeyPatch) -> Inventory:
    """Of no hosts; this machine's engine is not asked."""

    class Client:
        def close(self) -> None:
            pass

    monkeypatch.setattr(lifecycle, "local_socket", lambda: None)
    monkeypatch.setattr(lifecycle, "connect", Client)
    return Inventory({"other": HERE})


def test_a_cluster_that_no_host_can_join_says_why_of_each(tmp_path: Path, inventory: Inventory) -> None:
    hosts = {
        "h1": Host(connection=Connection.LOCAL, state=HostState.DRAIN),
        "h2": Host(connection=Connection.LOCAL, labels={"bad label": "x"}),
    }
    with pytest.raises(NoHostJoinedError) as caught:
        up(hosts, inventory, ProjectFiles(tmp_path), print)
    assert caught.value.reasons["h1"] == "the inventory drains it"
    assert "Ray does not take its label" in caught.value.reasons["h2"]


def test_a_cluster_that_a_sweep_brings_up_for_the_next_host_goes_with_the_sweep(
    tmp_path: Path, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = ProjectFiles(tmp_path)
    mark = StateFiles(project).of_a_sweep

    def brought(client: object, state: State, *_: object) -> State:
        return replace(state, unusable={"h1": FIREWALL})

    def taken_down(files: StateFiles, *_: object) -> None:
        files.forget()

    monkeypatch.setattr(
        lifecycle, "_survey_all", lambda *_: ({"h1": Survey(None, None, False, False, frozenset(), None)}, {})
    )
    monkeypatch.setattr(lifecycle, "ensure_agent_image", lambda *_: None)
    monkeypatch.setattr(lifecycle, "_reconciled", brought)
    monkeypatch.setattr(lifecycle, "_take_down", taken_down)
    with borrowed(project, print):
        with pytest.raises(NoHostJoinedError) as caught:
            up({"h1": HERE}, inventory, project, print)
        assert caught.value.reasons == {"h1": FIREWALL}
        assert mark.exists()
    assert not mark.exists()
