"""A place stands for the hosts that may do the same work: a trial is the same wherever in its place it runs."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config import Sweep, load_sweep
from orchestrator.planning import EnvironmentPin, GpuFacts, Isolation, Machine, Plan, PlanningHost, plan, trial_key
from runners.contract import METHOD_VERSION, digest

PLANS = Path(__file__).parents[2] / "data" / "plans"
CAMPAIGN = "golden-20260101T000000Z-abc123"
PIN = EnvironmentPin(
    "cpu", Isolation.DOCKER, "for a test", "lock", image_id="sha256:1", image_layers=("a", "b"), image_config_sha256="c"
)
HOSTS = (
    PlanningHost("h1", {"rack": "a"}, (1, 2, 3), {"cpu": PIN}),
    PlanningHost("h2", {"rack": "b"}, (1,), {"cpu": PIN}),
)


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return load_sweep(PLANS / "each-host.yaml")


def ids(planned: Plan, host: str | None = None) -> list[str]:
    tasks = [task for task in planned.tasks if host in (None, task.host)]
    return [trial.trial_id for task in tasks for trial in task.task.trials]


def with_gpus(name: str, *models: str) -> PlanningHost:
    machine = Machine("580.65.06", tuple(GpuFacts(model, "8.0", 80 * 2**30) for model in models), None, None, "x86_64")
    return PlanningHost(name, {}, (1, 2), {"cpu": PIN}, machine=machine)


def on(sweep: Sweep, hosts: Iterable[PlanningHost], targets: str | dict[str, str]) -> Plan:
    return plan(sweep.model_copy(update={"targets": targets}), tuple(hosts), CAMPAIGN)


def test_campaigns_of_the_store_keep_their_ids(sweep: Sweep) -> None:
    """What changes these digests makes another trial of every trial in every store; a new method must."""
    planned = plan(sweep, HOSTS, CAMPAIGN)
    assert METHOD_VERSION == 2
    assert planned.digest == "efdcc194707cf148d34383bbdef387a84b88ee032330bda94d71c840f9b5984c"
    assert (
        digest([ids(planned), [skip.trial.trial_id for skip in planned.skips]])
        == "5a2b7b6b2a7607e3d4dab89c718d0890f8954507d58be51236603f78b56b0f4a"
    )


def test_with_labels_a_host_is_its_own_place(sweep: Sweep) -> None:
    assert ids(on(sweep, HOSTS, {"rack": "b"})) == ids(plan(sweep, HOSTS, CAMPAIGN), "h2")
    assert plan(sweep, HOSTS, CAMPAIGN).places == {"h1": "h1", "h2": "h2"}


def test_any_host_does_the_same_trials_in_the_same_order(sweep: Sweep) -> None:
    hosts = [replace(HOSTS[0], name=name) for name in ("h1", "h7")]
    first, second = (on(sweep, [host], "any") for host in hosts)
    assert ids(first) == ids(second)
    assert first.digest == second.digest
    assert (first.places, second.places) == ({"h1": "any"}, {"h7": "any"})
    assert {task.host for task in second.tasks} == {"h7"}
    assert not set(ids(first)) & set(ids(plan(sweep, hosts, CAMPAIGN)))


def test_hosts_with_the_same_models_of_gpu_do_the_same_trials(sweep: Sweep) -> None:
    first, same, other = with_gpus("g1", "A", "B"), with_gpus("g2", "B", "A", "A"), with_gpus("g3", "A")
    planned = on(sweep, [first, same, other], "each-gpu-model")
    assert planned.places == {"g1": "A, B", "g3": "A"}
    assert ids(planned, "g1") == ids(on(sweep, [same], "each-gpu-model"))
    assert not set(ids(planned, "g1")) & set(ids(planned, "g3"))


def test_what_differs_on_another_host_is_another_trial_there_too(sweep: Sweep) -> None:
    """`all` threads are not as many everywhere: only what both can do in the same way may move."""
    wide, narrow = (set(ids(on(sweep, [host], "any"))) for host in HOSTS)
    assert wide & narrow
    assert wide - narrow


def test_a_key_says_nothing_of_the_place(sweep: Sweep) -> None:
    trial = on(sweep, HOSTS, "any").tasks[0].task.trials[0]
    assert trial.trial_key == trial_key(trial.spec, PIN)
