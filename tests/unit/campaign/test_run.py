"""The pipeline of a sweep on pretended hosts: who takes part, what each gets, and why the others do not."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock, Mock

import pytest

from orchestrator.campaign import CampaignRequest, ResumePolicy, RunRequest, choose_campaign, look
from orchestrator.campaign import recovery as recovery_module
from orchestrator.campaign import run as run_module
from orchestrator.campaign.progress import StageClock
from orchestrator.campaign.provision import Images
from orchestrator.config import Connection, Exclusive, Host, Inventory, Sweep, load_sweep
from orchestrator.environments import Catalogue
from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.files import ProjectFiles
from orchestrator.hosts import HostFacts
from orchestrator.hosts import local as local_module
from orchestrator.hosts.connection import Connections
from orchestrator.hosts.fleet import Hosts
from orchestrator.hosts.provision import make_environments, unavailable_environments
from orchestrator.planning import GpuFacts, needed_environments, plan
from orchestrator.store import Stage, Store
from runners.system import collect
from tests.conftest import PROJECT
from tests.fake_host import FakeHost
from tests.fake_host import host_facts as facts
from tests.scripted_campaign import Frozen, Lab, sweep
from tests.scripted_campaign import ready as scripted_host

HERE = Host(connection=Connection.LOCAL)
FIREWALL = "a firewall drops what goes to port 6400"
FULL = "its disk is full"
PASCAL = GpuFacts("NVIDIA GeForce GTX 1080 Ti", "6.1", 11 * 2**30)


class Fleet(Hosts):
    """Hosts of which some cannot join a cluster, and some cannot be made ready."""

    def __init__(self, *known: HostFacts) -> None:
        self.fakes = {found.host: FakeHost(found.host, HERE, found) for found in known}
        self.lacks()
        super().__init__(self.fakes, Connections({}), Inventory(hosts={}), ProjectFiles(Path()))
        self.unjoinable: dict[str, str] = {}
        self.brought: list[list[str]] = []

    def join(self, names: Iterable[str], say: Callable[[str], None]) -> tuple[dict[str, HostFacts], dict[str, str]]:
        self.brought.append(sorted(names))
        joined, problems = super().join([name for name in self.brought[-1] if name not in self.unjoinable], say)
        return joined, problems | {name: self.unjoinable[name] for name in self.brought[-1] if name in self.unjoinable}

    def mend(self, name: str, say: Callable[[str], None], campaign_id: str | None = None) -> HostFacts:
        return self.fakes[name].facts()

    def fails(self, name: str, why: str) -> None:
        self.fakes[name].answers = {**ANSWERS, make_environments: InfrastructureError(why)}

    def lacks(self, **problems: str) -> None:
        for host in self.fakes.values():
            host.answers = {**ANSWERS, unavailable_environments: problems}


ANSWERS: Mapping[Callable[..., Any], Any] = {
    unavailable_environments: {},
    make_environments: {"cpu": "/nowhere/cpu/bin/python"},
}


def request_for(fleet: Fleet, wanted: Sweep, **settings: Any) -> RunRequest:
    hosts = {name: HERE.model_copy(update=settings) for name in fleet.fakes}
    return RunRequest(wanted, Inventory(hosts=hosts), hosts, ProjectFiles(PROJECT), Path("results"))


def chosen(fleet: Fleet, targets: str) -> tuple[list[str], Mapping[str, str]]:
    """The hosts that take part, and those that are left out."""
    request = request_for(fleet, sweep(targets))
    ready, left_out, _ = run_module._ready(request, fleet, look(request, fleet), lambda text: None, StageClock())
    return [host.planning.name for host in ready], left_out


def test_another_host_takes_the_place_of_one_that_cannot_join_and_every_reason_is_told_when_none_is_left() -> None:
    fleet = Fleet(facts("h1"), facts("h2"))
    fleet.unjoinable = {"h1": FIREWALL}
    assert chosen(fleet, "any") == (["h2"], {"h1": FIREWALL})
    assert fleet.brought == [["h1"], ["h2"]]
    fleet.fails("h2", FULL)
    with pytest.raises(NoUsableHostError, match=f"no host can be used: h1: {FIREWALL}; h2: {FULL}"):
        chosen(fleet, "any")


def test_each_model_of_gpu_has_its_own_that_stand_for_each_other() -> None:
    models = (("a1", "A"), ("a2", "A"), ("b1", "B"), ("b2", "B"))
    fleet = Fleet(*(facts(name, GpuFacts(model, "9.0", 80 * 2**30)) for name, model in models))
    fleet.unjoinable = {"a1": FIREWALL}
    fleet.fails("b1", FULL)
    assert chosen(fleet, "each-gpu-model") == (["a2", "b2"], {"a1": FIREWALL, "b1": FULL})


def test_a_node_that_takes_too_few_tasks_at_once_is_left_out() -> None:
    fleet = Fleet(facts("h1", PASCAL, PASCAL))
    fleet.fakes["h1"].offered = 1
    on_a_gpu = {"environments": "cuda126", "device": "cuda", "threads": (1,)}
    wanted = sweep(workloads=("tiny-bert",), backends=("eager",), **on_a_gpu)
    request = request_for(fleet, wanted, exclusive=Exclusive.GPU)
    with pytest.raises(NoUsableHostError, match="h1: with `exclusive: gpu` 2 trials run at once, .* bench_slot 1; st"):
        run_module._ready(request, fleet, look(request, fleet), lambda text: None, StageClock())


def test_a_host_lacks_what_has_no_lock_or_interpreter_and_a_sweep_that_no_host_can_serve_ends() -> None:
    fleet = Fleet(facts("here"))
    known = Catalogue.load(ProjectFiles(PROJECT).catalogue).entries
    problems = {name: f"no Python for {name}" for name in known}
    both, unlocked, partly = (
        request_for(fleet, sweep("any", environments=environments))
        for environments in (("cpu", "cpu-2022"), "tensorrt", ("tensorrt", "cpu"))
    )
    with pytest.raises(NoUsableHostError, match="tensorrt: this environment has no lock: "):
        look(unlocked, fleet)
    assert look(partly, fleet).hosts
    fleet.lacks(**{"cpu-2022": problems["cpu-2022"]})
    host = look(both, fleet).hosts["here"]
    assert (host.unavailable, set(host.environments)) == ({"cpu-2022": problems["cpu-2022"]}, {"cpu", "cpu-2022"})
    fleet.lacks(**problems)
    for request in (both, request_for(fleet, sweep("any", environments="any-suitable"))):
        with pytest.raises(NoUsableHostError, match="no Python for cpu; no Python for cpu-"):
            look(request, fleet)


def test_planning_knows_the_gpus_of_the_facts_and_what_environments_need() -> None:
    fleet = Fleet(facts("here", PASCAL))
    changes = {"threads": (1,), "environments": ("any-suitable",)}
    wanted = load_sweep(PROJECT / "sweeps/paper/figure_3.yaml").model_copy(update=changes)
    host = look(request_for(fleet, wanted), fleet).hosts["here"]
    assert host.machine is not None
    assert (host.machine.gpus, host.machine.driver_version, host.machine.gpu_reason) == ((PASCAL,), "535.183.01", None)
    assert (host.machine.trial_memory_bytes, host.machine.architecture) == (9_000_000_000, "x86_64")
    assert set(host.environments) == {*host.demands, "any-suitable"} > {"cpu", "cuda126", "tensorrt"}
    assert host.environments["tensorrt"].lock_sha256 is None
    assert needed_environments(plan(wanted, [host], "c")) == {"here": {"cuda126"}}


def test_a_spare_host_that_cannot_be_made_ready_says_why(tmp_path: Path) -> None:
    fleet = Fleet(facts("h1"), facts("h2"))
    fleet.fails("h2", FULL)
    request = request_for(fleet, sweep("any"))
    preview = look(request, fleet)
    store = Store.open(tmp_path / "results")
    continuation = choose_campaign(request.sweep, [preview.hosts["h1"]], store, ResumePolicy.NEVER)
    order = CampaignRequest(continuation, [], "s", "sweep", "inventory", None, sweep=request.sweep)
    spares = recovery_module.Spares(
        {"h2": preview.hosts["h2"]}, request.hosts, request.inventory, Images({}, None), preview.known
    )
    recovery = recovery_module._Recovery(order, fleet, spares, cast("Any", None), print)
    assert recovery._spare_for("h1") == "h2"
    with pytest.raises(InfrastructureError, match=FULL):
        recovery._offer("h2")


def test_a_lost_host_is_brought_back_again_and_again_until_the_campaign_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_module, "PAUSE_S", 0.01)
    said: list[str] = []
    attempts: list[str] = []

    def mend(name: str, say: object, campaign_id: str) -> None:
        attempts.append(name)
        if len(attempts) == 3:
            recovery.left.set()
        raise InfrastructureError("ssh: no route")

    nothing = cast("Any", MagicMock())
    recovery = recovery_module._Recovery(nothing, MagicMock(mend=mend), nothing, nothing, said.append)
    recovery.lost = {"h1"}
    recovery._recover("h1")
    assert attempts == ["h1"] * 3
    assert said == ["h1 is lost: ssh: no route; it is tried again every 0.01 s"], "the same is said once"


def test_every_second_belongs_to_one_stage_and_those_of_before_are_added() -> None:
    moments = iter([100.0, 103.0, 110.0, 112.0, 112.5])
    clock = StageClock(Stage.SETUP, {Stage.IMAGES: 5.0}, {Stage.RUNNING: 1.0}, clock=lambda: next(moments))
    for stage in (Stage.RUNNING, Stage.WAITING, Stage.RUNNING):
        clock.enter(stage)
    told = {stage: seconds for stage, seconds in clock.seconds().items() if seconds}
    assert told == {Stage.IMAGES: 5.0, Stage.SETUP: 3.0, Stage.RUNNING: 8.5, Stage.WAITING: 2.0}


def test_a_campaign_fingerprints_its_machine_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Mock(side_effect=collect)
    monkeypatch.setattr(local_module, "collect", counted)
    local_module.fingerprint_here.cache_clear()
    lab = Lab(tmp_path)
    lab.run(sweep(rounds=3), Frozen(), [scripted_host("h1")])
    assert len(lab.rows()) == 6
    assert counted.call_count == 1
    local_module.fingerprint_here.cache_clear()
