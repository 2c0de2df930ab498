"""Sweeps: the committed ones can be planned as they stand and say how large they are; and what a user may write."""

import re
from collections import Counter
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pytest

from orchestrator.config import Sweep, load_sweep
from orchestrator.environments import Catalogue
from orchestrator.execution.base import time_limit_s
from orchestrator.planning import ANY_SUITABLE, EnvironmentPin, GpuFacts, Isolation, Machine, Plan, PlanningHost, plan
from runners.contract import NO_GUARDS, ClockRule, GuardPolicy, Guards, LoadGuard, Trial
from runners.contract.catalogue import BACKENDS, WORKLOADS
from tests.conftest import PROJECT
from tests.tracked import tracked

SWEEPS = PROJECT / "sweeps"
FILES = tracked("sweeps/*.yaml")
PAPER = ("figure_1", *(f"figure_{number}" for number in range(3, 14)), "table_1", "table_3")


@cache
def loaded(path: Path) -> Sweep:
    return load_sweep(path)


def planned(sweep: Sweep) -> Plan:
    """On a host that has all that the sweep asks for."""
    known = Catalogue.load(PROJECT / "docker" / "images.yaml").entries
    pins = {name: EnvironmentPin(name, Isolation.PROCESS, "for a test", "lock") for name in known}
    cores = tuple(range(max([2, *(threads for threads in sweep.threads if threads != "all")])))
    machine = Machine("580.95.05", (GpuFacts("NVIDIA A100-PCIE-40GB", "8.0", 40 * 2**30),), None, 64 * 2**30)
    demands = {name: entry.demands for name, entry in known.items()}
    labels = sweep.targets if isinstance(sweep.targets, dict) else {}
    return plan(sweep, [PlanningHost("h1", labels, cores, pins, machine=machine, demands=demands)], "c")


@cache
def one_round(path: Path) -> Plan:
    """The plan of a single round; of a grid its first batch only."""
    sweep = loaded(path).model_copy(update={"rounds": 1})
    if path.parent.name == "micro_ops":
        (axis,) = sweep.workloads
        sweep = sweep.model_copy(update={"workloads": (axis.model_copy(update={"batch": axis.batch[:1]}),)})
    return planned(sweep)


def trials_of(found: Plan) -> list[Trial]:
    return [trial for task in found.tasks for trial in task.task.trials]


def in_sweeps(path: Path) -> str:
    return str(path.relative_to(SWEEPS))


@pytest.mark.parametrize("path", FILES, ids=in_sweeps)
def test_a_sweep_is_named_after_its_file_and_has_environments_and_trials_and_only_coverage_skips(path: Path) -> None:
    assert loaded(path).name == re.sub(r"[/_]", "-", in_sweeps(path).removesuffix(".yaml"))
    known = Catalogue.load(PROJECT / "docker" / "images.yaml").entries
    assert set(loaded(path).environments) <= {*known, ANY_SUITABLE}
    assert one_round(path).trials > 0
    reasons = {skip.reason for skip in one_round(path).skips if "hidden_size starts at 2" not in skip.reason}
    assert reasons == set() or "coverage" in in_sweeps(path)


@pytest.mark.parametrize("path", FILES, ids=in_sweeps)
def test_the_head_of_a_sweep_says_how_many_trials_it_has(path: Path) -> None:
    head = path.read_text().partition("version:")[0]
    said = re.findall(r"([\d,]+)\s+trials\s+on\s+one\s+host", " ".join(head.replace("#", " ").split()))
    if path.name in ("quickstart.yaml", "gpu.yaml") or "family:" in path.read_text():
        assert said == []
        return
    planned = one_round(path)
    # Impossible combinations of a grid count, as they have rows; those of a backend with a family do not
    trials = planned.trials + sum("cannot run workload" not in skip.reason for skip in planned.skips)
    batches = len(loaded(path).workloads[0].batch) if path.parent.name == "micro_ops" else 1
    assert said == [f"{trials * batches * loaded(path).rounds:,}"]


def test_names_of_sweeps_are_unique_and_each_figure_and_table_of_the_paper_with_axes_has_one() -> None:
    assert len({loaded(path).name for path in FILES}) == len(FILES)
    assert [name for name in PAPER if not (SWEEPS / "paper" / f"{name}.yaml").exists()] == []
    for path in (SWEEPS / "paper").glob("*.yaml"):
        assert loaded(path).device == "cuda"
        environments = {task.task.environment for task in one_round(path).tasks}
        assert environments == {"cuda126" if path.name == "figure_9.yaml" else "cuda13"}


def all_trials(*paths: Path) -> list[Trial]:
    """What the sweeps would run, and what they skip."""
    plans = [one_round(path) for path in paths]
    return [trial for found in plans for trial in (*trials_of(found), *(skip.trial for skip in found.skips))]


def test_coverage_and_its_parts_visit_every_workload_and_every_backend_of_a_cpu() -> None:
    whole, parts = (all_trials(*SWEEPS.glob(pattern)) for pattern in ("coverage.yaml", "coverage/*.yaml"))
    assert sorted(trial.trial_key for trial in parts) == sorted(trial.trial_key for trial in whole)
    specs = [trial.spec for trial in whole]
    visited = {(spec.workload.name, spec.backend.name) for spec in specs}
    models = {name for name, info in WORKLOADS.items() if info.family != "synthetic"}
    on_a_cpu = {name for name, info in BACKENDS.items() if "cpu" in info.devices and name != "python"}
    assert visited == {(workload, backend) for workload in models for backend in on_a_cpu}
    assert len(specs) == len(visited)
    assert {spec.workload.batch for spec in specs} == {1}
    assert {spec.workload.sequence_length for spec in specs if spec.workload.name == "gpt2"} == {128}


def test_every_trial_of_the_aa_sweep_has_its_twin_in_each_of_eight_rounds() -> None:
    path = SWEEPS / "aa.yaml"
    keys = Counter(trial.trial_key for trial in trials_of(one_round(path)))
    assert set(keys.values()) == {2}
    assert loaded(path).rounds == 8


def test_the_short_visit_of_the_micro_operators_takes_about_an_hour_and_each_has_a_grid_of_its_own() -> None:
    path, paths = SWEEPS / "micro_ops.yaml", sorted((SWEEPS / "micro_ops").glob("*.yaml"))
    assert 0.5 < one_round(path).estimate_s * loaded(path).rounds / 3600 < 1.5
    short = {name for axis in loaded(path).workloads for name in axis.name}
    grids = [[name for axis in loaded(path).workloads for name in axis.name] for path in paths]
    assert grids == [[f"op-{path.stem}"] for path in paths]
    assert {name for (name,) in grids} == short
    assert len(short) == 8


def written(tmp_path: Path, *lines: str, more: str = "rounds: 2") -> Sweep:
    """A sweep of this machine's processors."""
    path = tmp_path / "sweep.yaml"
    head = ("version: 1", "name: s", "environments: cpu", "backends: [eager, torchscript]", more)
    path.write_text("\n".join((*head, *lines)) + "\n")
    return load_sweep(path)


def read_again(sweep: Sweep) -> Sweep:
    """As a driver elsewhere reads it."""
    return Sweep.model_validate_json(sweep.model_dump_json(exclude_unset=True))


def shapes_of(sweep: Sweep) -> set[tuple[str, int, int | None, int | None]]:
    specs = [trial.spec.workload for trial in trials_of(planned(sweep))]
    return {(workload.name, workload.batch, workload.sequence_length, workload.image_size) for workload in specs}


def test_several_workloads_share_their_shapes_or_take_each_its_own_defaults(tmp_path: Path) -> None:
    shared = "workloads: [{name: [bert-base, distilbert], batch: [1, 2], sequence_length: 64}]"
    expected = {(name, batch, 64, None) for name in ("bert-base", "distilbert") for batch in (1, 2)}
    assert shapes_of(written(tmp_path, shared)) == expected
    own = written(tmp_path, "workloads: [{name: [tiny-bert, bert-base, resnet50], batch: 1}]")
    assert shapes_of(own) == {("tiny-bert", 1, 16, None), ("bert-base", 1, 128, None), ("resnet50", 1, None, 224)}
    (axis,) = written(tmp_path, "workloads: [{family: speech, batch: 1}]").workloads
    assert set(axis.name) == {"speecht5-asr", "hubert-large", "wav2vec2-base", "wavlm-base"}


def test_back_to_back_calls_are_measured_on_a_gpu_and_elsewhere_if_asked_for(tmp_path: Path) -> None:
    for lines, pipelined_ms, turn_ms in (
        ((), 0, 120),
        (("protocol: {turn_ms: 60}",), 0, 60),
        (("protocol: {pipelined_budget_ms: 70}",), 70, 120),
        (("device: cuda",), 5000, 120),
        (("device: cuda", "protocol: {turn_ms: 60}"), 5000, 60),
        (("device: cuda", "protocol: {pipelined_budget_ms: 0}"), 0, 120),
    ):
        protocol = written(tmp_path, "workloads: [{name: bert-base, batch: 1}]", *lines).protocol
        assert (protocol.pipelined_budget_ms, protocol.turn_ms) == (pipelined_ms, turn_ms)


TWO = "[{workload: bert-base, backend: eager, batch: 2}, {workload: distilbert, backend: torchscript, batch: 1}]"


@pytest.mark.parametrize("line", ["", "duplicate: null", "duplicate: []", f"duplicate: {TWO}"])
def test_several_trials_may_have_a_twin_and_none_needs_one(tmp_path: Path, line: str) -> None:
    sweep = written(tmp_path, "workloads: [{name: [bert-base, distilbert], batch: [1, 2]}]", line, more="rounds: 1")
    trials = trials_of(planned(sweep))
    twins = [trial.spec for trial in trials if trial.replicate == 1]
    expected = [("bert-base", "eager", 2), ("distilbert", "torchscript", 1)] if TWO in line else []
    assert sorted((twin.workload.name, twin.backend.name, twin.workload.batch) for twin in twins) == expected
    assert len(trials) == 8 + len(expected)


@pytest.mark.parametrize(("text", "seconds"), [("90 s", 90), ("6 min", 360), ("10m", 600), ("1.5 h", 5400)])
def test_a_budget_takes_the_place_of_rounds(tmp_path: Path, text: str, seconds: float) -> None:
    more = f"workloads: [{{name: tiny-bert, batch: 1}}]\nbudget: {text}\nprecision: 2.5 %"
    sweep = written(tmp_path, more=more)
    assert (sweep.budget, sweep.precision, sweep.planned_rounds) == (seconds, 0.025, 3)
    again = read_again(sweep)
    assert (again.budget, again.precision) == (sweep.budget, sweep.precision)


def guarded(tmp_path: Path, guards: str) -> Sweep:
    path = tmp_path / "sweep.yaml"
    path.write_text((PROJECT / "tests" / "data" / "rounds.yaml").read_text() + guards)
    return load_sweep(path)


def test_a_guard_is_a_policy_or_a_mapping_with_its_limits_and_one_policy_can_stand_for_all(tmp_path: Path) -> None:
    usual = guarded(tmp_path, "").guards
    assert usual == Guards()
    every = (usual.gpu_processes, usual.load, usual.throttling, usual.clocks)
    assert {guard.policy for guard in every} == {GuardPolicy.FLAG}
    guards = guarded(
        tmp_path,
        "guards:\n  gpu_processes: error\n  load: {policy: wait, max_busy_permille: 50, wait_s: 20}\n"
        "  clocks: {policy: flag, require: fixed}\n  throttling: off",
    ).guards
    assert guards.gpu_processes.policy is GuardPolicy.ERROR
    assert guards.load == LoadGuard(GuardPolicy.WAIT, max_busy_permille=50, wait_s=20)
    assert guards.clocks.require is ClockRule.FIXED
    assert guards.throttling.policy is GuardPolicy.OFF
    off = guarded(tmp_path, "guards: off")
    assert off.guards == read_again(off).guards == NO_GUARDS


def test_tasks_have_the_guards_and_time_to_wait_and_keys_do_not_know_them(tmp_path: Path) -> None:
    texts = ("", "guards: error", "guards:\n  load: {policy: wait, wait_s: 600}\n  clocks: off")
    plain, strict, patient = (planned(guarded(tmp_path, text)) for text in texts)
    assert plain.digest == strict.digest
    assert {task.task.guards for task in plain.tasks} == {Guards()}
    [guards] = {task.task.guards for task in strict.tasks}
    assert guards.load.policy is GuardPolicy.ERROR
    task = patient.tasks[0].task
    assert time_limit_s(task) >= time_limit_s(replace(task, guards=NO_GUARDS)) + 600 * len(task.trials)


def test_the_documented_guards_are_the_defaults(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "measurement.md").read_text()
    [block] = re.findall(r"^```yaml\n(guards:\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    sweep = guarded(tmp_path, block)
    assert sweep.guards == Guards()
    documented = {name: {*keys, "wait_s"} for name, keys in sweep.file.tree["guards"].items()}
    assert documented == {name: set(keys) for name, keys in asdict(Guards()).items()}
