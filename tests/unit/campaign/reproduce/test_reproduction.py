"""Stored trials once more: where, in what, with which limits. Decided from what the store says, without running."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from orchestrator.campaign import Allowed, ReadyHost, ReproduceRequest, refuse_another_method, targets
from orchestrator.campaign.reproduce import run as run_module
from orchestrator.campaign.reproduce.reproduction import AS_THEN, ReadyTarget, Reproduction, decide, plan_again
from orchestrator.campaign.reproduce.run import make_ready, preview
from orchestrator.campaign.reproduce.stored import Configuration, Limits, StoredTrials
from orchestrator.config import Connection, ExecutorChoice, Host, Inventory
from orchestrator.environments import ImageIdentity
from orchestrator.errors import ConfigurationError, InfrastructureError, NoUsableHostError, TaxmeterError
from orchestrator.execution import DockerSettings, ExecutionSettings, FakeSettings
from orchestrator.files import ProjectFiles
from orchestrator.hosts.connection import Connections
from orchestrator.hosts.fleet import Hosts
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost, trial_key
from orchestrator.store.origin import Reproduces
from runners.contract import METHOD_VERSION, BackendSpec, Protocol, TrialSpec, WorkloadSpec
from tests.conftest import Patch
from tests.fake_host import FakeEngine, FakeHost, host_facts

LAYERS = ("sha256:" + "a" * 64, "sha256:" + "b" * 64)
IMAGE = ImageIdentity("sha256:" + "1" * 64, "c" * 64, LAYERS)
PIN = EnvironmentPin(
    "cpu", Isolation.DOCKER, "for a test", "0" * 64, IMAGE.image_id, IMAGE.image_id, LAYERS, IMAGE.config_sha256
)
PROCESS = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "0" * 64)
HERE = Host(connection=Connection.LOCAL)
INVENTORY = Inventory(hosts={"h1": HERE})


def configuration(batch: int) -> Configuration:
    workload, backend = WorkloadSpec("synthetic-null", batch), BackendSpec("python", {})
    spec, none = TrialSpec(workload, backend, "float32", "cpu", 1, 7, Protocol()), Limits(None, None)
    return Configuration("h1", trial_key(spec, PIN), spec, 60, ("t",), 4, PIN, {}, none, METHOD_VERSION)


WANTED = StoredTrials({"campaign_id": "c", "sweep": "s"}, None, (configuration(1), configuration(2)))


def with_each(**changes: Any) -> StoredTrials:
    return replace(WANTED, configurations=tuple(replace(trial, **changes) for trial in WANTED.configurations))


def decided(
    wanted: StoredTrials, pin: EnvironmentPin = PIN, *, execution: ExecutionSettings | None = None, cores: int = 2,
    host: str | None = None, inventory: Inventory = INVENTORY, image: bool = False,
    installed: dict[str, str] | None = None,
) -> Reproduction:  # fmt: skip
    [target] = targets(wanted, inventory, host)
    planning = PlanningHost(target.name, {}, tuple(range(cores)), {"cpu": pin})
    ready = ReadyHost(planning, {"cpu": execution or FakeSettings()})
    return decide(wanted, [ReadyTarget(target, ready, {"cpu": installed or {}})], Allowed(image))


def differences(reproduction: Reproduction) -> dict[str, str | None]:
    [trials] = reproduction.reproduces.trials.values()
    return {trial.trial_key: trial.differs for trial in trials.values()}


def test_another_method_is_refused_unless_allowed() -> None:
    first, *rest = WANTED.configurations
    other = replace(WANTED, configurations=(replace(first, method_version=METHOD_VERSION + 1), *rest))
    refusal = f"method version {METHOD_VERSION + 1} then, .*--allow-different-method"
    with pytest.raises(ConfigurationError, match=refusal):
        refuse_another_method(other, allowed=False)
    lost = replace(first, trial_key="f" * 32)
    with pytest.raises(ConfigurationError, match="specification with key f{32} then"):
        refuse_another_method(replace(WANTED, configurations=(lost,)), allowed=False)
    both = replace(other, configurations=(*other.configurations, lost))
    assert {key: text[:23] for key, text in refuse_another_method(both, allowed=True).items()} == {
        first.trial_key: f"method version {METHOD_VERSION + 1} then, ",
        lost.trial_key: "specification with key ",
    }


def test_a_specification_that_this_version_does_not_know_is_one_error() -> None:
    for change, problem in (
        ({"workload": WorkloadSpec("forgotten", 1)}, "this version has no workload forgotten"),
        ({"backend": BackendSpec("forgotten", {})}, "this version has no backend forgotten"),
        ({"dtype": "float16"}, "this version cannot run it: dtype float16 is not served"),
    ):
        other = with_each(spec=replace(WANTED.configurations[0].spec, **change))
        for allowed in (False, True):
            with pytest.raises(ConfigurationError, match=f"cannot be reproduced: {problem}.*use the version that meas"):
                refuse_another_method(other, allowed=allowed)


def test_of_two_environments_of_then_only_the_one_that_differs_is_said_to() -> None:
    first, second = WANTED.configurations
    other = replace(PIN, image_layers=(LAYERS[0], "sha256:" + "d" * 64))
    reproduction = decided(replace(WANTED, configurations=(replace(first, pin=other), second)), image=True)
    assert differences(reproduction) == {
        first.trial_key: "layer 2 of 2: expected dddddddddddd, found bbbbbbbbbbbb",
        second.trial_key: None,
    }
    assert [note.split()[3] for note in reproduction.notes[:2]] == ["DIFFERS,", "is"]


def test_of_a_virtual_environment_the_lock_and_every_version_must_be_those_of_then() -> None:
    then = with_each(pin=PROCESS, versions={"numpy": "1.26", "torch": "2.1"})
    reproduction = decided(then, PROCESS, installed={"numpy": "1.26", "torch": "2.1"})
    assert set(differences(reproduction).values()) == {None}
    assert "h1: environment cpu is identical to the stored one (lock and installed versions)" in reproduction.notes
    with pytest.raises(ConfigurationError, match="lock: expected 0{12}, found 9{12}; torch: .*2.1.*2.2.*; --allow"):
        decided(then, replace(PROCESS, lock_sha256="9" * 64), installed={"numpy": "1.26", "torch": "2.2"})


def test_an_isolation_is_kept_where_the_inventory_leaves_the_choice() -> None:
    plain = with_each(pin=PROCESS)
    [target] = targets(plain, INVENTORY, None)
    assert (target.host.executor, target.is_as_then) == (ExecutorChoice.PROCESS, True)
    [ready] = decided(plain, PROCESS).hosts
    assert ready.planning.environments["cpu"].reason == AS_THEN
    assert [targets(WANTED, INVENTORY, None, Allowed(image))[0].is_as_then for image in (False, True)] == [True, False]
    far = Inventory(hosts={"h1": Host(connection=Connection.SSH, address="far")})
    [target] = targets(plain, far, None)
    assert (target.host.executor, target.is_as_then) == (ExecutorChoice.AUTO, False)
    mixed = replace(plain, configurations=(plain.configurations[0], WANTED.configurations[1]))
    with pytest.raises(ConfigurationError, match="some trials in containers and some without"):
        targets(mixed, INVENTORY, None)
    with pytest.raises(ConfigurationError, match="isolation: expected docker, found process .no engine"):
        decided(WANTED, replace(PROCESS, reason="no engine"))


def test_the_container_gets_the_cores_and_the_memory_of_then() -> None:
    given = with_each(limits=Limits((2, 3), 10**9))
    settings = DockerSettings("sha256:1", None, (0, 1, 2, 3), 2 * 10**9, Path())
    [ready] = decided(given, execution=settings, cores=4).hosts
    assert ready.executions["cpu"] == replace(settings, cores=(2, 3), memory_bytes=10**9)
    fewer = decided(given, execution=replace(settings, cores=(0, 1)))
    assert fewer.hosts[0].executions["cpu"] == replace(settings, cores=(0, 1), memory_bytes=10**9)
    assert set(differences(fewer).values()) == {"cores: expected 2-3, found 0-1"}
    assert "h1: cores: expected 2-3, found 0-1" in fewer.notes
    with pytest.raises(NoUsableHostError, match="the trials had 2 cores .2-3., h1 has 1"):
        decided(given, execution=settings, cores=1)
    with pytest.raises(NoUsableHostError, match="bytes of memory"):
        decided(given, execution=replace(settings, memory_bytes=10**8), cores=4)


def test_hosts_that_are_not_there() -> None:
    other = Inventory(hosts={"h2": HERE})
    with pytest.raises(NoUsableHostError, match="ran on h1, which .* does not have; .*--host .known: h2"):
        targets(WANTED, other, None)
    with pytest.raises(ConfigurationError, match="--host h3: no host is called so; known: h2"):
        targets(WANTED, other, "h3")
    lab = Inventory(hosts={f"h{number}": HERE for number in range(100, 300)})
    for host in (None, "h3"):
        with pytest.raises(TaxmeterError, match=r"and 1\d\d more") as caught:
            targets(WANTED, lab, host)
        assert len(str(caught.value)) < 400
    reproduction = decided(WANTED, host="h2", inventory=other)
    assert set(differences(reproduction).values()) == {"host: expected h1, found h2"}
    assert set(reproduction.reproduces.trials) == {"h2"}
    # as it goes to a driver in the head of a cluster
    adapter = TypeAdapter(Reproduces)
    assert adapter.validate_json(adapter.dump_json(reproduction.reproduces)) == reproduction.reproduces


def fleet(*fakes: FakeHost) -> Hosts:
    return Hosts({fake.name: fake for fake in fakes}, Connections({}), INVENTORY, ProjectFiles(Path()))


def fake(name: str, engine: FakeEngine | None) -> FakeHost:
    isolation = Isolation.PROCESS if engine is None else Isolation.DOCKER
    facts = host_facts(name, cores=(0, 1, 2), isolation=isolation, work_directory="/work")
    return FakeHost(name, HERE, facts, engine)


def request(wanted: StoredTrials, project: Path) -> ReproduceRequest:
    """On another host than then."""
    inventory = Inventory(hosts={"h1": HERE, "h2": HERE})
    found = targets(wanted, inventory, "h2", Allowed())
    return ReproduceRequest(wanted, found, Allowed(), None, inventory, ProjectFiles(project), project / "results")


def test_trials_of_one_host_run_again_on_another_that_has_or_gets_their_image(project: Path) -> None:
    wanted = with_each(limits=Limits((0, 1), 10**9))
    engine = FakeEngine(IMAGE)
    hosts, asked = fleet(fake("h2", engine)), request(wanted, project)
    preview(asked, hosts)
    said: list[str] = []
    reproduction = decide(wanted, make_ready(asked, hosts, said.append), asked.allowed)
    assert said == [f"h2: trials run in containers ({AS_THEN})"]
    [ready] = reproduction.hosts
    assert ready.executions["cpu"] == DockerSettings(IMAGE.image_id, None, (0, 1), 10**9, Path(), IMAGE)
    assert set(differences(reproduction).values()) == {"host: expected h1, found h2"}
    again = plan_again(reproduction, "again")
    assert {task.host for task in again.tasks} == {"h2"}
    keys = sorted(trial.trial_key for trial in wanted.configurations)
    assert [sorted(trial.trial_key for trial in task.task.trials) for task in again.tasks] == [keys] * 4

    pushed = with_each(pin=replace(PIN, image_digest=f"lab:5000/cpu@{IMAGE.image_id}"))
    asked, engine.images = request(pushed, project), {}
    engine.pulls.add(IMAGE.image_id)
    expected = "and lab:5000/cpu@sha256:1*, which a row names, is pulled only if --pull"
    with pytest.raises(ConfigurationError, match=expected):
        make_ready(asked, hosts, said.append)
    assert engine.images == {}
    asked = replace(asked, may_pull=lambda _reference: True)
    assert make_ready(asked, hosts, said.append)[0].host.executions["cpu"]


def test_a_host_that_cannot_run_them_is_named_with_the_reason(project: Path, monkeypatch: Patch) -> None:
    asked = request(WANTED, project)
    away, silent = fake("h2", None), fake("h2", FakeEngine())
    away.told, silent.fake_engine = InfrastructureError("ssh: no route to host"), None
    for host, why in (
        (fake("h2", None), "^h2: the trials ran in containers, but no Docker engine answers; .* --allow-different-im"),
        (away, "^h2: ssh: no route to host$"),
        (silent, "^h2: no Docker engine answers$"),
    ):
        with pytest.raises(NoUsableHostError, match=why):
            preview(asked, fleet(host))
    engine = FakeEngine(IMAGE, shares=False)
    with pytest.raises(NoUsableHostError, match="^h2: its engine does not see /work"):
        make_ready(asked, fleet(fake("h2", engine)), print)
    monkeypatch.setattr(run_module, "remove_leftovers", lambda *_: {"h2": "its engine is stuck"})
    with pytest.raises(NoUsableHostError, match="^h2: its engine is stuck$"):
        make_ready(asked, fleet(fake("h2", engine)), print)


def test_trials_of_one_key_that_had_other_limits_are_reproduced_by_campaigns_of_their_own() -> None:
    def digest_with(limits: Limits) -> str:
        settings = DockerSettings(IMAGE.image_id, None, (0, 1, 2, 3), 2**33, Path(), IMAGE)
        return plan_again(decided(with_each(limits=limits), execution=settings, cores=4), "x").digest

    limits = [Limits((0,), 2**30), Limits((0, 1), 2**30), Limits((0,), 2**31)]
    assert len({digest_with(each) for each in limits}) == 3
    assert digest_with(limits[0]) == digest_with(Limits((0,), 2**30))
