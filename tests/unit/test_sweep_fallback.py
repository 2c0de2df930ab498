"""A sweep that does not want every host: where one cannot take part after all, another takes its place. Without hosts."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.campaign import CampaignOrder, ProjectFiles, ReadyHost, ResumePolicy, choose_campaign
from orchestrator.campaign.remote import Charge, caretaking, preparation
from orchestrator.cli import remote_sweep
from orchestrator.cli.ordering import Wanted
from orchestrator.config.inventory import Connection, Host, HostState, Inventory
from orchestrator.config.sweep import Sweep
from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.hosts.cluster import Agent, Cluster, NoHostJoinedError, borrowed, lifecycle, up
from orchestrator.hosts.cluster.state import State, StateFiles
from orchestrator.hosts.cluster.survey import Survey
from orchestrator.hosts.connection import Connections
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.planning.feasibility import GpuFacts, Machine
from orchestrator.store import Store

PIN = EnvironmentPin("cpu", Isolation.DOCKER, "for a test", "0" * 64)
HERE = Host(connection=Connection.LOCAL)
FIREWALL = "a firewall drops what goes to port 6400"
FULL = "its disk is full"


def planning(name: str, gpu: str = "NVIDIA H100") -> PlanningHost:
    machine = Machine("580.1", (GpuFacts(gpu, "9.0", 80 * 2**30),), None, 2**33)
    return PlanningHost(name, {}, (0, 1), {"cpu": PIN}, machine=machine)


def sweep(targets: str) -> Sweep:
    return Sweep.model_validate(
        {
            "version": 1,
            "name": "s",
            "environments": "cpu",
            "workloads": ({"name": "synthetic-null", "batch": 1},),
            "backends": ("python",),
            "targets": targets,
        }
    )


class Fleet:
    """Hosts of which some cannot join a cluster, and some cannot be made ready. The rest of this is real."""

    def __init__(self, directory: Path) -> None:
        self.files = ProjectFiles(directory)
        self.unjoinable: dict[str, str] = {}
        self.unready: dict[str, str] = {}
        self.brought: list[list[str]] = []

    def up(self, hosts: Mapping[str, Host], *_: object) -> Cluster:
        self.brought.append(list(hosts))
        unusable = {name: self.unjoinable[name] for name in hosts if name in self.unjoinable}
        if len(unusable) == len(hosts):
            raise NoHostJoinedError(unusable)
        agents = {name: Agent(name, "", "/work", (0, 1), (), "", (), "") for name in hosts if name not in unusable}
        return Cluster("c", "127.0.0.1", 1, 2, agents, Path("token"), Path("sockets"), unusable, Path("code"))

    def ready(self, order: Any, *_: object) -> ReadyHost | str:
        name = order.planning.name
        return self.unready.get(name) or ReadyHost(order.planning, {}, None, work_directory="/work")

    def chosen(self, targets: str, *known: PlanningHost) -> tuple[list[str], dict[str, str]]:
        """The hosts that take part, and those that are left out."""
        hosts = {one.name: HERE for one in known}
        wanted = Wanted(sweep(targets), Path("sweep.yaml"), hosts, Path("hosts.yaml"), self.files)
        left_out: dict[str, str] = {}
        with Connections({}) as connections:
            ready = remote_sweep._ready_hosts(wanted, known, connections, left_out)
        return [one.planning.name for one in ready.hosts], left_out


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    fleet = Fleet(tmp_path)
    monkeypatch.setattr(remote_sweep, "up", fleet.up)
    monkeypatch.setattr(remote_sweep, "load_inventory", lambda _: Inventory({}))
    monkeypatch.setattr(remote_sweep, "build_images", lambda *_: {"cpu": None})
    monkeypatch.setattr(remote_sweep, "pinned", lambda host, _: host)
    monkeypatch.setattr(preparation, "_ready", fleet.ready)
    return fleet


def test_another_host_takes_the_place_of_one_that_cannot_join(fleet: Fleet) -> None:
    fleet.unjoinable = {"h1": FIREWALL}
    assert fleet.chosen("any", planning("h1"), planning("h2")) == (["h2"], {"h1": FIREWALL})
    assert fleet.brought == [["h1"], ["h2"]]


def test_another_host_takes_the_place_of_one_that_cannot_be_made_ready(fleet: Fleet) -> None:
    fleet.unready = {"h1": FULL}
    assert fleet.chosen("any", planning("h1"), planning("h2")) == (["h2"], {"h1": FULL})


def test_each_model_of_gpu_has_its_own_that_stand_for_each_other(fleet: Fleet) -> None:
    fleet.unjoinable, fleet.unready = {"a1": FIREWALL}, {"b1": FULL}
    known = [planning(name, model) for name, model in (("a1", "A"), ("a2", "A"), ("b1", "B"), ("b2", "B"))]
    assert fleet.chosen("each-gpu-model", *known) == (["a2", "b2"], {"a1": FIREWALL, "b1": FULL})


def test_every_reason_is_told_when_no_host_is_left(fleet: Fleet) -> None:
    fleet.unjoinable, fleet.unready = {"h1": FIREWALL}, {"h2": FULL}
    with pytest.raises(NoUsableHostError, match=f"no host can be used: h1: {FIREWALL}; h2: {FULL}"):
        fleet.chosen("any", planning("h1"), planning("h2"))


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


def test_a_spare_host_that_cannot_be_made_ready_says_why(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.unready = {"h2": FULL}
    monkeypatch.setattr(caretaking, "mend", lambda name, *_: fleet.up({name: HERE}))
    lost, spare, hosts = planning("h1"), planning("h2"), {"h1": HERE, "h2": HERE}
    chosen = choose_campaign(sweep("any"), [lost], Store.open(fleet.files.root / "results"), ResumePolicy.NEVER)
    order = CampaignOrder(chosen, [], "s", "sweep", "inventory", "0", None, sweep=sweep("any"))
    charge = Charge(order, fleet.up({"h1": HERE}), hosts, {"h2": spare}, {}, fleet.files)
    with Connections({}) as connections:
        caretaker = caretaking._Caretaker(charge, connections, print)
        with pytest.raises(InfrastructureError, match=FULL):
            caretaker._offer("h2")


def test_a_host_that_is_lost_as_a_campaign_ends_does_not_disturb_its_end() -> None:
    lost: dict[str, caretaking._Lost] = {}

    class Meanwhile(caretaking._Lost):
        """While the threads are listed, the watching one takes up another host."""

        def __getattribute__(self, name: str) -> Any:
            if name == "worker":
                lost["h2"] = caretaking._Lost(0, 0)
            return super().__getattribute__(name)

    lost["h1"] = Meanwhile(0, 0, threading.current_thread())
    nothing = cast("Any", None)
    caretaker = caretaking._Caretaker(nothing, nothing, print, lost)
    assert caretaker._threads() == [threading.current_thread()]
