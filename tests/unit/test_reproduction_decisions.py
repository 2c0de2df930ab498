"""Stored trials once more: where, in what, with which limits. Decided from what the store says, without running."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign import Allowed, ProjectFiles, ReadyHost, decide, preview, refuse_another_method, targets
from orchestrator.campaign.reproducing.stored import Configuration, Limits, Wanted
from orchestrator.config.inventory import Connection, ExecutorChoice, Host, Inventory
from orchestrator.errors import ConfigurationError, NoUsableHostError
from orchestrator.execution import DockerSettings, ExecutionSettings, FakeSettings
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost, trial_key
from runners.contract import METHOD_VERSION, BackendSpec, Protocol, TrialSpec, WorkloadSpec

LAYERS = ("sha256:" + "a" * 64, "sha256:" + "b" * 64)
PIN = EnvironmentPin(
    "cpu", Isolation.DOCKER, "for a test", "0" * 64, "sha256:" + "1" * 64, "sha256:" + "1" * 64, LAYERS, "c" * 64
)
INVENTORY = Inventory(hosts={"h1": Host(connection=Connection.LOCAL)})


def configuration(batch: int) -> Configuration:
    spec = TrialSpec(
        WorkloadSpec("synthetic-null", batch), BackendSpec("python", {}), "float32", "cpu", 1, 7, Protocol()
    )
    none = Limits(None, None)
    return Configuration("h1", trial_key(spec, PIN), spec, 60, ("t",), 4, PIN, {}, none, METHOD_VERSION)


WANTED = Wanted({"campaign_id": "c", "sweep": "s"}, None, (configuration(1), configuration(2)))


def host(
    pin: EnvironmentPin = PIN, execution: ExecutionSettings | None = None, name: str = "h1", cores: int = 2
) -> ReadyHost:
    planning = PlanningHost(name, {}, tuple(range(cores)), {"cpu": pin})
    return ReadyHost(planning, {"cpu": execution or FakeSettings()}, None)


def test_another_method_is_refused_unless_allowed() -> None:
    first, *rest = WANTED.configurations
    other = replace(WANTED, configurations=(replace(first, method_version=1), *rest))
    with pytest.raises(ConfigurationError, match="method version 1 then, .*--allow-different-method"):
        refuse_another_method(other, allowed=False)
    [(key, text)] = refuse_another_method(other, allowed=True).items()
    assert (key, text[:24]) == (first.trial_key, "method version 1 then, 2")
    lost = replace(other, configurations=(*other.configurations, replace(first, trial_key="f" * 32)))
    with pytest.raises(ConfigurationError, match="specification with key f{32} then"):
        refuse_another_method(replace(lost, configurations=lost.configurations[-1:]), allowed=False)
    assert [text[:20] for text in refuse_another_method(lost, allowed=True).values()] == [
        "method version 1 the",
        "specification with k",
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"workload": WorkloadSpec("forgotten", 1)}, "this version has no workload forgotten"),
        ({"backend": BackendSpec("forgotten", {})}, "this version has no backend forgotten"),
        ({"dtype": "float16"}, "this version cannot run it: dtype float16 is not served"),
    ],
)
def test_a_specification_that_this_version_does_not_know_is_one_error(change: dict[str, Any], problem: str) -> None:
    [first, *_] = WANTED.configurations
    other = replace(WANTED, configurations=(replace(first, spec=replace(first.spec, **change)),))
    for allowed in (False, True):
        with pytest.raises(ConfigurationError, match=f"cannot be reproduced: {problem}.*use the version that measured"):
            refuse_another_method(other, allowed=allowed)


def test_of_two_environments_of_then_only_the_one_that_differs_is_said_to() -> None:
    first, second = WANTED.configurations
    other = replace(PIN, image_layers=(LAYERS[0], "sha256:" + "d" * 64))
    mixed = replace(WANTED, configurations=(replace(first, pin=other), second))
    [target] = targets(mixed, INVENTORY, Path("inventory"), None)
    reproduction = decide(mixed, [(target, host())], Allowed(image=True))
    differs = {one.trial_key: one.differs for one in reproduction.reproduces.trials.values()}
    assert differs == {
        first.trial_key: "layer 2 of 2: expected dddddddddddd, found bbbbbbbbbbbb",
        second.trial_key: None,
    }
    assert [note.split()[3] for note in reproduction.notes[:2]] == ["DIFFERS,", "is"]


def test_rows_without_layers_are_compared_by_image_id() -> None:
    old = replace(PIN, image_layers=(), image_config_sha256=None)
    older = replace(WANTED, configurations=tuple(replace(one, pin=old) for one in WANTED.configurations))
    [target] = targets(older, INVENTORY, Path("inventory"), None)
    reproduction = decide(older, [(target, host())], Allowed())
    assert any("since the store has no layers of this row" in note for note in reproduction.notes)
    other = host(replace(PIN, image_id="sha256:" + "2" * 64, image_digest=None))
    with pytest.raises(ConfigurationError, match="image id .*: expected 1{12}, found 2{12}"):
        decide(older, [(target, other)], Allowed())


def test_without_an_engine_containers_have_no_host(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    [target] = targets(WANTED, INVENTORY, Path("inventory"), None)
    with pytest.raises(NoUsableHostError, match="h1: the trials ran in containers, but no Docker engine .*; start it"):
        preview(target, Path("inventory"), ProjectFiles(project), Allowed())


def test_an_isolation_is_kept_where_the_inventory_leaves_the_choice() -> None:
    process = replace(PIN, isolation=Isolation.PROCESS, image_id=None, image_digest=None)
    plain = replace(WANTED, configurations=tuple(replace(one, pin=process) for one in WANTED.configurations))
    [target] = targets(plain, INVENTORY, Path("inventory"), None)
    assert (target.host.executor, target.is_as_then) == (ExecutorChoice.PROCESS, True)
    [ready] = decide(plain, [(target, host(process))], Allowed()).hosts
    assert ready.planning.environments["cpu"].reason == "as in the campaign that is reproduced"
    [container] = targets(WANTED, INVENTORY, Path("inventory"), None)
    assert (container.host.executor, container.is_as_then) == (ExecutorChoice.DOCKER, True)
    [free] = targets(WANTED, INVENTORY, Path("inventory"), None, Allowed(image=True))
    assert (free.host.executor, free.is_as_then) == (ExecutorChoice.AUTO, False)
    mixed = replace(plain, configurations=(plain.configurations[0], WANTED.configurations[1]))
    with pytest.raises(ConfigurationError, match="some trials in containers and some without"):
        targets(mixed, INVENTORY, Path("inventory"), None)


def test_the_container_gets_the_cores_and_the_memory_of_then() -> None:
    limits = replace(WANTED.configurations[0].limits, cores=(2, 3), memory_bytes=10**9)
    given = replace(WANTED, configurations=tuple(replace(one, limits=limits) for one in WANTED.configurations))
    [target] = targets(given, INVENTORY, Path("inventory"), None)
    settings = DockerSettings("sha256:1", None, (0, 1, 2, 3), 2 * 10**9, Path())
    [ready] = decide(given, [(target, host(execution=settings, cores=4))], Allowed()).hosts
    assert ready.executions["cpu"] == replace(settings, cores=(2, 3), memory_bytes=10**9)
    fewer = decide(given, [(target, host(execution=replace(settings, cores=(0, 1)), cores=2))], Allowed())
    [ready] = fewer.hosts
    assert ready.executions["cpu"] == replace(settings, cores=(0, 1), memory_bytes=10**9)
    assert {one.differs for one in fewer.reproduces.trials.values()} == {"cores: expected 2-3, found 0-1"}
    assert "h1: cores: expected 2-3, found 0-1" in fewer.notes
    with pytest.raises(NoUsableHostError, match="the trials had 2 cores .2-3., h1 has 1"):
        decide(given, [(target, host(execution=settings, cores=1))], Allowed())
    with pytest.raises(NoUsableHostError, match="bytes of memory"):
        decide(given, [(target, host(execution=replace(settings, memory_bytes=10**8), cores=4))], Allowed())


def test_hosts_that_are_not_there() -> None:
    other = Inventory(hosts={"h2": Host(connection=Connection.LOCAL)})
    with pytest.raises(NoUsableHostError, match="ran on h1, which inventory does not have; .*--host .known: h2"):
        targets(WANTED, other, Path("inventory"), None)
    with pytest.raises(ConfigurationError, match="--host h3: no host is called so; known: h2"):
        targets(WANTED, other, Path("inventory"), "h3")
    [target] = targets(WANTED, other, Path("inventory"), "h2")
    reproduction = decide(WANTED, [(target, host(name="h2"))], Allowed())
    assert {one.differs for one in reproduction.reproduces.trials.values()} == {"host: expected h1, found h2"}
    assert {place for place, _ in reproduction.reproduces.trials} == {"h2"}
