"""Planning is pure: equal input gives an equal plan, and everything that cannot run is named.

A place stands for the hosts that may do the same work: a trial is the same wherever in its place it runs.
"""

import itertools
import time
from dataclasses import replace

import pytest

from orchestrator.config import Sweep, load_sweep
from orchestrator.errors import ConfigurationError
from orchestrator.planning import (
    Demands,
    EnvironmentPin,
    GpuFacts,
    Isolation,
    Machine,
    Plan,
    PlanningHost,
    needed_environments,
    plan,
    trial_key,
    visit,
    work_digest,
)
from orchestrator.store.origin import environment_id
from runners.contract import METHOD_VERSION, Trial, digest
from runners.contract.catalogue import BACKENDS
from tests.conftest import PROJECT
from tests.scripted_campaign import sweep

PIN = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "lock")
HOST = PlanningHost("h1", {"gpu": "none"}, (0, 1), {"cpu": PIN})
TWO = replace(HOST, environments={name: replace(PIN, name=name) for name in ("cpu", "cpu-2022")})


def planned(wanted: Sweep, *hosts: PlanningHost, **changes: object) -> Plan:
    """The plan of a sweep that is changed in something, by default on a host without a GPU."""
    return plan(wanted.model_copy(update=changes), hosts or (HOST,), "c")


def trials_of(found: Plan) -> list[Trial]:
    return [trial for task in found.tasks for trial in task.task.trials]


def hosts_of(found: Plan) -> set[str]:
    return {task.host for task in found.tasks}


def skips_of(found: Plan) -> set[tuple[str | None, str]]:
    return {(skip.environment, skip.reason) for skip in found.skips}


@pytest.fixture(scope="module")
def quickstart() -> Sweep:
    return load_sweep(PROJECT / "tests" / "data" / "rounds.yaml")


def test_identities_are_digests_of_their_canonical_text(quickstart: Sweep) -> None:
    spec = trials_of(planned(quickstart))[0].spec
    for place in ("h1", 'h "ö"\n'):
        seen = visit("a \\ c", place, "0" * 32, spec, 2, 0, 1, 60)
        identity = {"campaign": "a \\ c", "place": place, "key": "0" * 32, "round": 2, "replicate": 1}
        assert seen.trial_id == digest(identity)[:32]
        visits = [(place, "f" * 32, 2, 1), ("h0", "0" * 32, 1, 0)]
        assert work_digest(place, visits) == digest({"sweep": place, "visits": sorted(visits)})


def test_a_sweep_has_its_trials_rounds_and_duplicate_and_a_point_that_two_axes_name_once(quickstart: Sweep) -> None:
    found = planned(quickstart)
    assert (found.trials, found.skips) == (3 * (3 * 3 * 4 + 1), ())
    assert [task.task.trials[0].round for task in found.tasks] == [1, 2, 3]
    twins = [trial for trial in trials_of(found) if trial.replicate == 1]
    assert [trial.spec.workload.batch for trial in twins] == [1, 1, 1]
    assert 300 < found.estimate_s < 900
    assert planned(quickstart, threads=("all", 2, "all")).trials == found.trials


def test_a_budget_is_one_task_that_knows_what_it_may_repeat() -> None:
    spending = load_sweep(PROJECT / "sweeps" / "quickstart.yaml")
    found = planned(spending)
    [task] = found.tasks
    assert task.task.allocation is not None
    assert (task.task.allocation.budget_ms, task.task.allocation.precision_ppm) == (342_000, 25_000)
    first = [trial for trial in task.task.trials if trial.round == 1]
    assert found.trials == len(task.task.trials) == 3 * len(first) == 3 * (6 * 3 + 1)
    assert task.task.allocation.trials == tuple(first)
    assert 330 <= found.estimate_s < 370
    assert planned(spending, budget=600.0).digest == found.digest
    several = planned(spending, TWO, environments=("cpu", "cpu-2022"))
    assert [task.task.allocation.budget_ms for task in several.tasks if task.task.allocation] == [171_000, 171_000]


def test_a_backend_runs_in_the_environments_that_are_named(quickstart: Sweep) -> None:
    backends = tuple(
        axis.model_copy(update={"environments": ("cpu-2022",) if axis.name == "onnxruntime" else ()})
        for axis in quickstart.backends
    )
    found = planned(quickstart, TWO, environments=("cpu", "cpu-2022"), backends=backends, duplicate=())
    ran = {(task.task.environment, trial.spec.backend.name) for task in found.tasks for trial in task.task.trials}
    usual = {axis.name for axis in quickstart.backends} - {"onnxruntime"}
    assert ran == {*itertools.product(("cpu", "cpu-2022"), usual), ("cpu-2022", "onnxruntime")}
    assert found.skips == ()


def test_each_process_of_a_session_costs_its_turns(quickstart: Sweep) -> None:
    longer = replace(quickstart.protocol, cycles=20)
    found = planned(quickstart)
    more_s = planned(quickstart, protocol=longer).estimate_s - found.estimate_s
    assert more_s == pytest.approx(found.trials * 10 * 0.12)
    assert planned(quickstart, protocol=replace(longer, procedure="legacy")).estimate_s < found.estimate_s


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_first_round_compiles_what_the_others_find(quickstart: Sweep, rounds: int) -> None:
    def estimate(name: str, **options: int) -> float:
        axis = quickstart.backends[0].model_copy(update={"name": name, "options": options})
        return planned(quickstart, backends=(axis,), rounds=rounds, duplicate=()).estimate_s

    trials = 3 * 4
    assert estimate("tvm") - estimate("eager") == pytest.approx(2 * 50 * trials)
    tuned = estimate("tvm", tuning_budget_s=120) - estimate("tvm", tuning_budget_s=0)
    assert tuned == pytest.approx(2 * 120 * trials)


def test_each_round_visits_the_same_trials_in_another_order_and_each_visit_has_an_id(quickstart: Sweep) -> None:
    first, again, other = (plan(quickstart, [HOST], campaign) for campaign in ("c1", "c1", "c2"))
    rounds = [[trial.trial_key for trial in task.task.trials] for task in first.tasks]
    assert sorted(rounds[0]) == sorted(rounds[1]) == sorted(rounds[2])
    assert rounds[0] != rounds[1] != rounds[2]
    assert first == again
    ids = [trial.trial_id for found in (first, other) for trial in trials_of(found)]
    assert len(set(ids)) == len(ids)
    assert first.digest == other.digest, "it ignores the campaign"


ANOTHER: list[dict[str, object]] = [
    {"lock_sha256": "another"}, {"isolation": Isolation.DOCKER}, {"name": "other"}, {"image_layers": ("a", "x")},
    {"image_config_sha256": "d"}, {"image_layers": ()},
]  # fmt: skip
THE_SAME: list[dict[str, object]] = [
    {"reason": "another"},
    # an image is known by its content, whatever engines and registries call it
    {"image_id": "sha256:2", "image_digest": "lab:5000/cpu@sha256:3"},
]


@pytest.mark.parametrize("change", [*ANOTHER, *THE_SAME])
def test_another_environment_is_another_trial(quickstart: Sweep, change: dict[str, object]) -> None:
    is_another = change in ANOTHER
    spec = trials_of(planned(quickstart))[0].spec
    pin = replace(PIN, image_id="sha256:1", image_layers=("a", "b"), image_config_sha256="c")
    changed = replace(pin, **change)  # type: ignore[arg-type]
    assert (trial_key(spec, pin) != trial_key(spec, changed)) is is_another
    if "image" in next(iter(change)):
        assert (environment_id(pin, {"torch": "2"}) != environment_id(changed, {"torch": "2"})) is is_another
    assert (replace(PIN, image_id="sha256:1").content, PIN.content) == ("sha256:1", None)


def test_what_cannot_run_is_skipped_with_its_reason() -> None:
    found = planned(sweep(workloads=("synthetic-null", "tiny-bert"), backends=("python", "eager"), threads=(1, 3)))
    able = [name for name, info in BACKENDS.items() if "language" in info.families]
    assert {skip.reason for skip in found.skips} == {
        f"backend python cannot run workload tiny-bert; these can: {', '.join(able)}",
        "backend eager cannot run workload synthetic-null; these can: python",
        "3 threads on 2 cores of h1",
    }
    assert (found.trials, len(found.skips)) == (2 * (2 + 2), 16 - 4)


def gpu_host(capability: str, driver: str, name: str = "h1", memory_bytes: int = 16 * 2**30) -> PlanningHost:
    """A host with one GPU and a catalogue of three environments."""
    demands = {
        "cpu": Demands("2026-10"),
        "gpu-old": Demands("2025-10", "12.6", "525.60", ("7.0", "8.0", "9.0")),
        "gpu-new": Demands("2026-10", "13.0", "580", ("8.0", "9.0")),
    }
    pins = {environment: replace(PIN, name=environment) for environment in (*demands, "any-suitable")}
    machine = Machine(driver, (GpuFacts("a GPU", capability, memory_bytes),), None, 20 * 2**30)
    return PlanningHost(name, {}, (0, 1), pins, machine=machine, demands=demands)


def test_what_a_host_cannot_have_run_or_hold_is_skipped_with_its_reason_and_the_others_run(quickstart: Sweep) -> None:
    host = replace(TWO, unavailable={"cpu-2022": "there is no Python 3.9"})
    found = planned(quickstart, host, environments=("cpu", "cpu-2022"))
    assert found.trials == planned(quickstart).trials
    assert skips_of(found) == {("cpu-2022", "there is no Python 3.9")}
    assert len({skip.trial.trial_key for skip in found.skips}) == len(found.skips) == 36

    found = planned(quickstart, gpu_host("6.1", "470.82"), environments=("cpu", "gpu-new"), device="cuda")
    assert (found.trials, needed_environments(found)) == (0, {})
    assert skips_of(found) >= {
        ("gpu-new", "driver 470.82 is older than 580, which CUDA 13.0 needs"),
        ("cpu", "this environment is made for processors: it has no CUDA, which device cuda needs"),
    }

    host = gpu_host("8.0", "580.65.06", memory_bytes=5 * 10**8)
    axes = tuple(quickstart.workloads[0].model_copy(update={"name": (name,)}) for name in ("bert-base", "bert-large"))
    wanted = {"environments": ("gpu-new",), "device": "cuda", "dtypes": ("float16",)}
    found = planned(quickstart, host, workloads=axes, backends=quickstart.backends[:1], **wanted)
    assert {trial.spec.workload.name for trial in trials_of(found)} == {"bert-base"}
    assert skips_of(found) == {("gpu-new", "the weights of bert-large are 0.6 GiB in float16, and a GPU has 0.5 GiB")}


def test_any_suitable_is_planned_as_the_environment_that_it_stands_for(quickstart: Sweep) -> None:
    suitable = {"environments": ("any-suitable",), "device": "cuda"}
    old, new = gpu_host("7.0", "580.65.06", name="h1"), gpu_host("9.0", "580.65.06", name="h2")
    found = planned(quickstart, old, new, **suitable)
    assert needed_environments(found) == {"h1": {"gpu-old"}, "h2": {"gpu-new"}}
    again = planned(quickstart, new, environments=("gpu-new", "any-suitable"), device="cuda")
    assert list(again.tasks) == [task for task in found.tasks if task.host == "h2"]
    # if nothing is suitable every trial is skipped once with all reasons
    found = planned(quickstart, gpu_host("5.2", "580.65.06"), **suitable)
    [(environment, reason)] = skips_of(found)
    assert (found.trials, environment) == (0, "any-suitable")
    assert reason.startswith("no environment of the catalogue is suitable: ")
    assert "gpu-new: compute capability 5.2 of a GPU cannot run machine code for 8.0, 9.0" in reason


def with_gpu(name: str, *models: str) -> PlanningHost:
    gpus = tuple(GpuFacts(model, "8.0", 40 * 2**30) for model in models)
    machine = Machine("580.95" if gpus else None, gpus, None if gpus else "none", 64 * 2**30)
    return replace(HOST, name=name, machine=machine)


FLEET = [with_gpu("h1"), with_gpu("h2", "A100"), with_gpu("h3", "A100", "A100"), with_gpu("h4", "H100")]


def test_targets_choose_hosts_also_by_what_was_found_on_them(quickstart: Sweep) -> None:
    for targets, wanted, reason in (
        ("each-host", {"h1", "h2", "h3", "h4"}, None),
        ("each-gpu-model", {"h2", "h4"}, "h3: h2 is measured, and has the same model of GPU"),
        ("any", {"h1"}, "h4: h1 is measured, and targets are any"),
        ({"gpu_model": "*a100*"}, {"h2", "h3"}, None),
        ({"gpu_model": "A100", "gpu_count": "2"}, {"h3"}, None),
        ({"gpu_model": "none"}, {"h1"}, None),
        ({"driver": "580.*", "gpu_model": "H*"}, {"h4"}, None),
    ):
        found = planned(quickstart, *FLEET, targets=targets)
        assert hosts_of(found) == wanted
        assert {line.partition(":")[0] for line in found.unmatched} == {host.name for host in FLEET} - wanted
        assert reason is None or reason in found.unmatched


def test_a_label_of_the_inventory_selects_too_but_does_not_hide_a_fact(quickstart: Sweep) -> None:
    lying = replace(with_gpu("h2", "V100"), labels={"gpu_model": "A100", "rack": "a"})
    found = planned(quickstart, HOST, lying, targets={"rack": "a"})
    assert (found.unmatched, hosts_of(found)) == (("h1: label rack is not set, not a",), {"h2"})
    found = planned(quickstart, lying, targets={"gpu_model": "A100"})
    assert found.unmatched == ("h2: label gpu_model is V100, not A100",)


def test_any_host_is_one_that_can_run_most(quickstart: Sweep) -> None:
    poor = replace(HOST, name="h0", unavailable={"cpu": "there is no Python 3.11"})
    assert hosts_of(planned(quickstart, poor, HOST, targets="any")) == {"h1"}


def test_what_nobody_could_measure_is_refused_before_it_is_expanded(quickstart: Sweep) -> None:
    began_s = time.monotonic()
    many = {"sequence_length": tuple(range(1, 10_001)), "batch": tuple(range(1, 10_001))}
    wide = quickstart.workloads[0].model_copy(update=many)
    hosts = [replace(HOST, name=f"h{number}") for number in range(30)]
    for on, change, told in (
        ((HOST,), {"rounds": 10**9}, ":13: rounds: 36000000000 trials, at most 1000000 can be planned; lower rounds"),
        ((HOST,), {"workloads": (wide,)}, r"900000000 trials, at most 1000000 can be planned"),
        (hosts, {"rounds": 1000}, "name fewer hosts"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            planned(quickstart, *on, **change)
    assert time.monotonic() - began_s < 30


IMAGE = replace(PIN, isolation=Isolation.DOCKER, image_id="sha256:1", image_layers=("a", "b"), image_config_sha256="c")
PLACES = (
    PlanningHost("h1", {"rack": "a"}, (1, 2, 3), {"cpu": IMAGE}),
    PlanningHost("h2", {"rack": "b"}, (1,), {"cpu": IMAGE}),
)


@pytest.fixture(scope="module")
def golden() -> Sweep:
    return load_sweep(PROJECT / "tests" / "data" / "plans" / "each-host.yaml")


def ids(found: Plan, host: str | None = None) -> list[str]:
    return [trial.trial_id for task in found.tasks if host in (None, task.host) for trial in task.task.trials]


def test_campaigns_of_the_store_keep_their_ids(golden: Sweep) -> None:
    """What changes these digests makes another trial of every trial in every store; a new method must."""
    found = plan(golden, PLACES, "golden-20260101T000000Z-abc123")
    assert METHOD_VERSION == 2
    assert found.digest == "efdcc194707cf148d34383bbdef387a84b88ee032330bda94d71c840f9b5984c"
    all_ids = digest([ids(found), [skip.trial.trial_id for skip in found.skips]])
    assert all_ids == "5a2b7b6b2a7607e3d4dab89c718d0890f8954507d58be51236603f78b56b0f4a"


def test_with_labels_a_host_is_its_own_place(golden: Sweep) -> None:
    each = planned(golden, *PLACES)
    assert each.places == {"h1": "h1", "h2": "h2"}
    assert ids(planned(golden, *PLACES, targets={"rack": "b"})) == ids(each, "h2")


def test_any_host_does_the_same_trials_in_the_same_order_and_their_keys_do_not_know_the_place(golden: Sweep) -> None:
    hosts = [replace(PLACES[0], name=name) for name in ("h1", "h7")]
    first, second = (planned(golden, host, targets="any") for host in hosts)
    assert ids(first) == ids(second)
    assert first.digest == second.digest
    assert (first.places, second.places) == ({"h1": "any"}, {"h7": "any"})
    assert hosts_of(second) == {"h7"}
    assert not set(ids(first)) & set(ids(planned(golden, *hosts)))
    trial = trials_of(first)[0]
    assert trial.trial_key == trial_key(trial.spec, IMAGE)


def test_hosts_with_the_same_models_of_gpu_do_the_same_trials(golden: Sweep) -> None:
    first, same, other = with_gpu("g1", "A", "B"), with_gpu("g2", "B", "A", "A"), with_gpu("g3", "A")
    found = planned(golden, first, same, other, targets="each-gpu-model")
    assert found.places == {"g1": "A, B", "g3": "A"}
    assert ids(found, "g1") == ids(planned(golden, same, targets="each-gpu-model"))
    assert not set(ids(found, "g1")) & set(ids(found, "g3"))


def test_what_differs_on_another_host_is_another_trial_there_too(golden: Sweep) -> None:
    """`all` threads are not as many everywhere: only what both can do in the same way may move."""
    wide, narrow = (set(ids(planned(golden, host, targets="any"))) for host in PLACES)
    assert wide & narrow
    assert wide - narrow
