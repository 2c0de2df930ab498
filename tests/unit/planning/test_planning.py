"""Planning is pure: equal input gives an equal plan, and everything that cannot run is named."""

import itertools
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config import Sweep, load_sweep
from orchestrator.errors import ConfigurationError
from orchestrator.planning import (
    Demands,
    EnvironmentPin,
    GpuFacts,
    Isolation,
    Machine,
    PlanningHost,
    needed_environments,
    plan,
    trial_key,
    visit,
    work_digest,
)
from orchestrator.store import environment_id
from runners.contract import digest
from runners.contract.catalogue import BACKENDS

PROJECT = Path(__file__).parents[3]
PIN = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "lock")
HOST = PlanningHost("h1", {"gpu": "none"}, (0, 1), {"cpu": PIN})


def test_identities_are_digests_of_their_canonical_text(quickstart: Sweep) -> None:
    planned = plan(quickstart, [HOST], "c")
    for place in ("h1", 'h "ö"\n'):
        spec = planned.tasks[0].task.trials[0].spec
        seen = visit("a \\ c", place, "0" * 32, spec, 2, 0, 1, 60)
        identity = {"campaign": "a \\ c", "place": place, "key": "0" * 32, "round": 2, "replicate": 1}
        assert seen.trial_id == digest(identity)[:32]
        visits = [(place, "f" * 32, 2, 1), ("h0", "0" * 32, 1, 0)]
        assert work_digest(place, visits) == digest({"sweep": place, "visits": sorted(visits)})


@pytest.fixture(scope="module")
def quickstart() -> Sweep:
    return load_sweep(PROJECT / "tests" / "data" / "rounds.yaml")


def test_a_sweep_has_its_trials_rounds_and_duplicate(quickstart: Sweep) -> None:
    planned = plan(quickstart, [HOST], "c")
    assert planned.trials == 3 * (3 * 3 * 4 + 1)
    assert planned.skips == ()
    assert [task.task.trials[0].round for task in planned.tasks] == [1, 2, 3]
    twins = [t for task in planned.tasks for t in task.task.trials if t.replicate == 1]
    assert len(twins) == 3
    assert {t.spec.workload.batch for t in twins} == {1}
    assert 300 < planned.estimate_s < 900


def test_a_budget_is_one_task_that_knows_what_it_may_repeat() -> None:
    sweep = load_sweep(PROJECT / "sweeps" / "quickstart.yaml")
    planned = plan(sweep, [HOST], "c")
    [task] = planned.tasks
    assert task.task.allocation is not None
    assert (task.task.allocation.budget_ms, task.task.allocation.precision_ppm) == (330_000, 25_000)
    rounds = {number: [t for t in task.task.trials if t.round == number] for number in (1, 2, 3)}
    assert planned.trials == sum(map(len, rounds.values())) == 3 * (6 * 3 + 1)
    assert task.task.allocation.trials == tuple(rounds[1])
    assert 330 <= planned.estimate_s < 370
    assert plan(sweep.model_copy(update={"budget": 600.0}), [HOST], "c").digest == planned.digest
    host = replace(HOST, environments={"cpu": PIN, "cpu-2022": replace(PIN, name="cpu-2022")})
    several = plan(sweep.model_copy(update={"environments": ("cpu", "cpu-2022")}), [host], "c")
    assert [task.task.allocation.budget_ms for task in several.tasks if task.task.allocation] == [165_000, 165_000]


def test_a_backend_runs_in_the_environments_that_are_named(quickstart: Sweep) -> None:
    host = replace(HOST, environments={"cpu": PIN, "cpu-2022": replace(PIN, name="cpu-2022")})
    backends = [
        axis.model_copy(update={"environments": ("cpu-2022",) if axis.name == "onnxruntime" else ()})
        for axis in quickstart.backends
    ]
    wanted = {"environments": ("cpu", "cpu-2022"), "backends": tuple(backends), "duplicate": ()}
    planned = plan(quickstart.model_copy(update=wanted), [host], "c")
    found = {(task.task.environment, trial.spec.backend.name) for task in planned.tasks for trial in task.task.trials}
    usual = {axis.name for axis in quickstart.backends} - {"onnxruntime"}
    assert found == {*itertools.product(("cpu", "cpu-2022"), usual), ("cpu-2022", "onnxruntime")}
    assert planned.skips == ()


def test_each_process_of_a_session_costs_its_turns(quickstart: Sweep) -> None:
    longer = quickstart.model_copy(update={"protocol": replace(quickstart.protocol, cycles=20)})
    [planned, more] = [plan(sweep, [HOST], "c") for sweep in (quickstart, longer)]
    assert more.estimate_s - planned.estimate_s == pytest.approx(planned.trials * 10 * 0.12)
    legacy = quickstart.model_copy(update={"protocol": replace(longer.protocol, procedure="legacy")})
    assert plan(legacy, [HOST], "c").estimate_s < planned.estimate_s


def test_the_first_round_compiles_what_the_others_find(quickstart: Sweep) -> None:
    def estimate(name: str, rounds: int, options: dict[str, int]) -> float:
        axis = quickstart.backends[0].model_copy(update={"name": name, "options": options})
        changes = {"backends": (axis,), "rounds": rounds, "duplicate": ()}
        return plan(quickstart.model_copy(update=changes), [HOST], "c").estimate_s

    trials = 3 * 4
    for rounds in (1, 3):
        assert estimate("tvm", rounds, {}) - estimate("eager", rounds, {}) == pytest.approx(2 * 50 * trials)
        tuned = estimate("tvm", rounds, {"tuning_budget_s": 120})
        assert tuned - estimate("tvm", rounds, {"tuning_budget_s": 0}) == pytest.approx(2 * 120 * trials)


def test_each_round_visits_the_same_trials_in_another_order(quickstart: Sweep) -> None:
    rounds = [[t.trial_key for t in task.task.trials] for task in plan(quickstart, [HOST], "c").tasks]
    assert sorted(rounds[0]) == sorted(rounds[1]) == sorted(rounds[2])
    assert rounds[0] != rounds[1] != rounds[2]
    assert plan(quickstart, [HOST], "c") == plan(quickstart, [HOST], "c")


def test_ids_are_unique_and_the_digest_ignores_the_campaign(quickstart: Sweep) -> None:
    first, other = plan(quickstart, [HOST], "c1"), plan(quickstart, [HOST], "c2")
    ids = [t.trial_id for p in (first, other) for task in p.tasks for t in task.task.trials]
    assert len(set(ids)) == len(ids)
    assert first.digest == other.digest


@pytest.mark.parametrize(
    ("change", "is_another"),
    [
        ({"lock_sha256": "another"}, True),
        ({"isolation": Isolation.DOCKER}, True),
        ({"name": "other"}, True),
        ({"image_layers": ("a", "x")}, True),
        ({"image_config_sha256": "d"}, True),
        ({"image_layers": ()}, True),
        ({"reason": "another"}, False),
        # an image is known by its content, whatever engines and registries call it
        ({"image_id": "sha256:2", "image_digest": "lab:5000/cpu@sha256:3"}, False),
    ],
)
def test_another_environment_is_another_trial(quickstart: Sweep, change: dict[str, object], is_another: bool) -> None:
    spec = plan(quickstart, [HOST], "c").tasks[0].task.trials[0].spec
    pin = replace(PIN, image_id="sha256:1", image_layers=("a", "b"), image_config_sha256="c")
    changed = replace(pin, **change)  # type: ignore[arg-type]
    assert (trial_key(spec, pin) != trial_key(spec, changed)) is is_another
    if "image" in next(iter(change)):
        assert (environment_id(pin, {"torch": "2"}) != environment_id(changed, {"torch": "2"})) is is_another
    assert (replace(PIN, image_id="sha256:1").content, PIN.content) == ("sha256:1", None)


def test_what_cannot_run_is_skipped_with_its_reason(quickstart: Sweep) -> None:
    sweep = Sweep.model_validate(
        {
            "version": 1,
            "name": "s",
            "environments": ("cpu",),
            "workloads": ({"name": "synthetic-null", "batch": 1}, {"name": "tiny-bert", "batch": (1, 2)}),
            "backends": ("python", "eager"),
            "threads": (1, 3),
            "rounds": 2,
        }
    )
    planned = plan(sweep, [HOST], "c")
    able = [name for name, info in BACKENDS.items() if "language" in info.families]
    reasons = {skip.reason for skip in planned.skips}
    assert reasons == {
        f"backend python cannot run workload tiny-bert; these can: {', '.join(able)}",
        "backend eager cannot run workload synthetic-null; these can: python",
        "3 threads on 2 cores of h1",
    }
    assert planned.trials == 2 * (1 + 2)
    assert len(planned.skips) == 2 * (3 * 2) - 3


def test_an_environment_that_a_host_cannot_have_is_skipped_and_the_others_run(quickstart: Sweep) -> None:
    both = quickstart.model_copy(update={"environments": ("cpu", "cpu-2022")})
    pins = {"cpu": PIN, "cpu-2022": replace(PIN, name="cpu-2022")}
    host = replace(HOST, environments=pins, unavailable={"cpu-2022": "there is no Python 3.9"})
    planned = plan(both, [host], "c")
    assert planned.trials == plan(quickstart, [HOST], "c").trials
    assert {(skip.environment, skip.reason) for skip in planned.skips} == {("cpu-2022", "there is no Python 3.9")}
    assert len({skip.trial.trial_key for skip in planned.skips}) == len(planned.skips) == 36


def test_a_trial_that_a_host_cannot_run_is_skipped_with_its_reason_and_its_environment_is_not_needed(
    quickstart: Sweep,
) -> None:
    sweep = quickstart.model_copy(update={"environments": ("cpu", "gpu-new"), "device": "cuda"})
    host = gpu_host("6.1", "470.82")
    planned = plan(sweep, [host], "c")
    assert planned.trials == 0
    assert needed_environments(planned) == {}
    reasons = {(skip.environment, skip.reason) for skip in planned.skips}
    assert ("gpu-new", "driver 470.82 is older than 580, which CUDA 13.0 needs") in reasons
    assert ("cpu", "this environment is made for processors: it has no CUDA, which device cuda needs") in reasons


def test_a_model_that_does_not_fit_is_skipped_and_the_others_run(quickstart: Sweep) -> None:
    host = gpu_host("8.0", "580.65.06", memory_bytes=5 * 10**8)
    sweep = quickstart.model_copy(update={"environments": ("gpu-new",), "device": "cuda", "dtypes": ("float16",)})
    axes = tuple(
        axis.model_copy(update={"name": (name,)})
        for axis in sweep.workloads[:1]
        for name in ("bert-base", "bert-large")
    )
    planned = plan(sweep.model_copy(update={"workloads": axes, "backends": sweep.backends[:1]}), [host], "c")
    assert {trial.spec.workload.name for task in planned.tasks for trial in task.task.trials} == {"bert-base"}
    [reason] = {skip.reason for skip in planned.skips}
    assert reason == "the weights of bert-large are 0.6 GiB in float16, and a GPU has 0.5 GiB"


def test_any_suitable_is_planned_as_the_environment_that_it_stands_for(quickstart: Sweep) -> None:
    sweep = quickstart.model_copy(update={"environments": ("any-suitable",), "device": "cuda"})
    old, new = gpu_host("7.0", "580.65.06", name="h1"), gpu_host("9.0", "580.65.06", name="h2")
    planned = plan(sweep, [old, new], "c")
    assert needed_environments(planned) == {"h1": {"gpu-old"}, "h2": {"gpu-new"}}
    again = plan(sweep.model_copy(update={"environments": ("gpu-new", "any-suitable")}), [new], "c")
    assert list(again.tasks) == [task for task in planned.tasks if task.host == "h2"]


def test_if_nothing_is_suitable_every_trial_is_skipped_once_with_all_reasons(quickstart: Sweep) -> None:
    sweep = quickstart.model_copy(update={"environments": ("any-suitable",), "device": "cuda"})
    planned = plan(sweep, [gpu_host("5.2", "580.65.06")], "c")
    assert (planned.trials, {skip.environment for skip in planned.skips}) == (0, {"any-suitable"})
    [reason] = {skip.reason for skip in planned.skips}
    assert reason.startswith("no environment of the catalogue is suitable: ")
    assert "gpu-new: compute capability 5.2 of a GPU cannot run machine code for 8.0, 9.0" in reason


def test_a_host_of_which_nothing_is_known_is_refused_nothing(quickstart: Sweep) -> None:
    sweep = quickstart.model_copy(update={"device": "cuda"})
    able = [skip for skip in plan(sweep, [HOST], "c").skips if "made for processors" in skip.reason]
    assert able == []
    assert plan(sweep, [HOST], "c").trials > 0


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


def test_a_point_that_two_axes_name_is_one_trial(quickstart: Sweep) -> None:
    both = quickstart.model_copy(update={"threads": ("all", 2, "all")})
    assert plan(both, [HOST], "c").trials == plan(quickstart, [HOST], "c").trials


def with_gpu(name: str, *models: str) -> PlanningHost:
    gpus = tuple(GpuFacts(model, "8.0", 40 * 2**30) for model in models)
    machine = Machine("580.95" if gpus else None, gpus, None if gpus else "none", 64 * 2**30)
    return replace(HOST, name=name, machine=machine)


FLEET = [with_gpu("h1"), with_gpu("h2", "A100"), with_gpu("h3", "A100", "A100"), with_gpu("h4", "H100")]


@pytest.mark.parametrize(
    ("targets", "wanted", "reason"),
    [
        ("each-host", {"h1", "h2", "h3", "h4"}, None),
        ("each-gpu-model", {"h2", "h4"}, "h3: h2 is measured, and has the same model of GPU"),
        ("any", {"h1"}, "h4: h1 is measured, and targets are any"),
    ],
)
def test_targets_choose_hosts(quickstart: Sweep, targets: str, wanted: set[str], reason: str | None) -> None:
    planned = plan(quickstart.model_copy(update={"targets": targets}), FLEET, "c")
    assert {task.host for task in planned.tasks} == wanted
    assert {line.partition(":")[0] for line in planned.unmatched} == {host.name for host in FLEET} - wanted
    assert reason is None or reason in planned.unmatched


@pytest.mark.parametrize(
    ("targets", "wanted"),
    [
        ({"gpu_model": "*a100*"}, {"h2", "h3"}),
        ({"gpu_model": "A100", "gpu_count": "2"}, {"h3"}),
        ({"gpu_model": "none"}, {"h1"}),
        ({"driver": "580.*", "gpu_model": "H*"}, {"h4"}),
    ],
)
def test_targets_select_by_what_was_found_on_a_host(
    quickstart: Sweep, targets: dict[str, str], wanted: set[str]
) -> None:
    planned = plan(quickstart.model_copy(update={"targets": targets}), FLEET, "c")
    assert {task.host for task in planned.tasks} == wanted


def test_a_label_of_the_inventory_selects_too_but_does_not_hide_a_fact(quickstart: Sweep) -> None:
    lying = replace(with_gpu("h2", "V100"), labels={"gpu_model": "A100", "rack": "a"})
    planned = plan(quickstart.model_copy(update={"targets": {"gpu_model": "A100"}}), [lying], "c")
    assert planned.unmatched == ("h2: label gpu_model is V100, not A100",)
    planned = plan(quickstart.model_copy(update={"targets": {"rack": "a"}}), [HOST, lying], "c")
    assert planned.unmatched == ("h1: label rack is not set, not a",)
    assert {task.host for task in planned.tasks} == {"h2"}


def test_any_host_is_one_that_can_run_most(quickstart: Sweep) -> None:
    poor = replace(HOST, name="h0", unavailable={"cpu": "there is no Python 3.11"})
    planned = plan(quickstart.model_copy(update={"targets": "any"}), [poor, HOST], "c")
    assert {task.host for task in planned.tasks} == {"h1"}


def test_other_targets_are_refused_with_what_there_is(tmp_path: Path) -> None:
    text = (PROJECT / "tests" / "data" / "rounds.yaml").read_text()
    (tmp_path / "sweep.yaml").write_text(text + "targets: each-gpu\n")
    with pytest.raises(ConfigurationError, match=r"expected each-host, each-gpu-model, any, or labels such as \{gpu"):
        load_sweep(tmp_path / "sweep.yaml")
    (tmp_path / "sweep.yaml").write_text(text + "targets: {gpu: 4}\n")
    with pytest.raises(ConfigurationError, match=r"targets.*string"):
        load_sweep(tmp_path / "sweep.yaml")


def test_what_nobody_could_measure_is_refused_before_it_is_expanded(quickstart: Sweep) -> None:
    began_s = time.monotonic()
    many = {"sequence_length": tuple(range(1, 10_001)), "batch": tuple(range(1, 10_001))}
    wide = quickstart.workloads[0].model_copy(update=many)
    for change, told in (
        (
            {"rounds": 10**9},
            r"rounds.yaml:13: rounds: 36000000000 trials, at most 1000000 can be planned; lower rounds",
        ),
        ({"workloads": (wide,)}, r"900000000 trials, at most 1000000 can be planned"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            plan(quickstart.model_copy(update=change), [HOST], "c")
    hosts = [replace(HOST, name=f"h{number}") for number in range(30)]
    with pytest.raises(ConfigurationError, match="name fewer hosts"):
        plan(quickstart.model_copy(update={"rounds": 1000}), hosts, "c")
    assert time.monotonic() - began_s < 30
