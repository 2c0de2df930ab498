"""The committed sweeps: each can be planned as it stands, and says truly how large it is."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from orchestrator.config import Sweep, load_sweep
from orchestrator.environments import Catalogue
from orchestrator.planning import ANY_SUITABLE, EnvironmentPin, GpuFacts, Isolation, Machine, Plan, PlanningHost, plan
from runners.contract import Trial
from runners.contract.catalogue import BACKENDS, WORKLOADS
from tests.conftest import PROJECT
from tests.refusals import refusal
from tests.tracked import tracked

SWEEPS = PROJECT / "sweeps"
FILES = tracked("sweeps/*.yaml")
PAPER = ("figure_1", *(f"figure_{number}" for number in range(3, 14)), "table_1", "table_3")


@cache
def loaded(path: Path) -> Sweep:
    return load_sweep(path)


@cache
def one_round(path: Path) -> Plan:
    """The plan of a single round on a host that has all that the sweep asks for; of a grid its first batch only."""
    sweep = loaded(path)
    if path.parent.name == "micro_ops":
        (axis,) = sweep.workloads
        sweep = sweep.model_copy(update={"workloads": (axis.model_copy(update={"batch": axis.batch[:1]}),)})
    known = Catalogue.load(PROJECT / "docker" / "images.yaml").entries
    pins = {name: EnvironmentPin(name, Isolation.PROCESS, "for a test", "lock") for name in known}
    cores = tuple(range(max([2, *(threads for threads in sweep.threads if threads != "all")])))
    machine = Machine("580.95.05", (GpuFacts("NVIDIA A100-PCIE-40GB", "8.0", 40 * 2**30),), None, 64 * 2**30)
    demands = {name: entry.demands for name, entry in known.items()}
    labels = sweep.targets if isinstance(sweep.targets, dict) else {}
    host = PlanningHost("h1", labels, cores, pins, machine=machine, demands=demands)
    return plan(sweep.model_copy(update={"rounds": 1}), [host], "c")


def in_sweeps(path: Path) -> str:
    return str(path.relative_to(SWEEPS))


@pytest.mark.parametrize("path", FILES, ids=in_sweeps)
def test_every_sweep_has_environments_that_exist_and_trials_and_only_coverage_some_that_cannot_run(path: Path) -> None:
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


def test_names_of_sweeps_are_unique_and_tell_their_file() -> None:
    names = [loaded(path).name for path in FILES]
    assert names == [re.sub(r"[/_]", "-", in_sweeps(path).removesuffix(".yaml")) for path in FILES]
    assert len(set(names)) == len(names)


def test_each_figure_and_table_of_the_paper_with_axes_has_its_sweep() -> None:
    assert [name for name in PAPER if not (SWEEPS / "paper" / f"{name}.yaml").exists()] == []
    for path in (SWEEPS / "paper").glob("*.yaml"):
        assert loaded(path).device == "cuda"
        environments = {task.task.environment for task in one_round(path).tasks}
        assert environments == {"cuda126" if path.name == "figure_9.yaml" else "cuda13"}


def all_trials(*paths: Path) -> list[Trial]:
    """What the sweeps would run, and what they skip."""
    plans = [one_round(path) for path in paths]
    ran = [trial for planned in plans for task in planned.tasks for trial in task.task.trials]
    return ran + [skip.trial for planned in plans for skip in planned.skips]


def test_the_parts_of_coverage_are_the_whole() -> None:
    parts, whole = (all_trials(*SWEEPS.glob(pattern)) for pattern in ("coverage/*.yaml", "coverage.yaml"))
    assert sorted(trial.trial_key for trial in parts) == sorted(trial.trial_key for trial in whole)


def test_coverage_visits_every_workload_and_every_backend_of_a_cpu() -> None:
    specs = [trial.spec for trial in all_trials(SWEEPS / "coverage.yaml")]
    visited = {(spec.workload.name, spec.backend.name) for spec in specs}
    models = {name for name, info in WORKLOADS.items() if info.family != "synthetic"}
    on_a_cpu = {name for name, info in BACKENDS.items() if "cpu" in info.devices and name != "python"}
    assert visited == {(workload, backend) for workload in models for backend in on_a_cpu}
    assert len(specs) == len(visited)
    assert {spec.workload.batch for spec in specs} == {1}
    assert {spec.workload.sequence_length for spec in specs if spec.workload.name == "gpt2"} == {128}


def test_every_trial_of_the_aa_sweep_has_its_twin_in_each_of_eight_rounds() -> None:
    path = SWEEPS / "aa.yaml"
    keys = Counter(trial.trial_key for task in one_round(path).tasks for trial in task.task.trials)
    assert set(keys.values()) == {2}
    assert loaded(path).rounds == 8


SHORT = SWEEPS / "micro_ops.yaml"
GRIDS = sorted((SWEEPS / "micro_ops").glob("*.yaml"))


def test_the_short_visit_of_the_micro_operators_takes_about_an_hour() -> None:
    assert 0.5 < one_round(SHORT).estimate_s * loaded(SHORT).rounds / 3600 < 1.5


def test_each_operator_of_the_short_visit_has_a_grid_of_its_own() -> None:
    short = {name for axis in loaded(SHORT).workloads for name in axis.name}
    grids = [[name for axis in loaded(path).workloads for name in axis.name] for path in GRIDS]
    assert grids == [[f"op-{path.stem}"] for path in GRIDS]
    assert {name for (name,) in grids} == short
    assert len(short) == 8


def written(tmp_path: Path, *lines: str, backends: str = "[eager, torchscript]", more: str = "rounds: 2") -> Path:
    path = tmp_path / "sweep.yaml"
    head = ("version: 1", "name: s", "environments: cpu", f"backends: {backends}", more)
    path.write_text("\n".join((*head, *lines)) + "\n")
    return path


def spending(tmp_path: Path, *lines: str) -> Path:
    return written(tmp_path, *lines, backends="[eager]", more="workloads: [{name: tiny-bert, batch: 1}]")


def shapes_of(path: Path) -> set[tuple[str, int, int | None, int | None]]:
    specs = [trial.spec.workload for task in one_round(path).tasks for trial in task.task.trials]
    return {(workload.name, workload.batch, workload.sequence_length, workload.image_size) for workload in specs}


def test_several_workloads_share_their_shapes_or_take_each_its_own_defaults(tmp_path: Path) -> None:
    shared = "workloads: [{name: [bert-base, distilbert], batch: [1, 2], sequence_length: 64}]"
    expected = {(name, batch, 64, None) for name in ("bert-base", "distilbert") for batch in (1, 2)}
    assert shapes_of(written(tmp_path, shared)) == expected
    (tmp_path / "own").mkdir()
    own = written(tmp_path / "own", "workloads: [{name: [tiny-bert, bert-base, resnet50], batch: 1}]")
    assert shapes_of(own) == {("tiny-bert", 1, 16, None), ("bert-base", 1, 128, None), ("resnet50", 1, None, 224)}


@pytest.mark.parametrize(
    ("lines", "expected_ms"),
    [
        ((), 0),
        (("protocol: {turn_ms: 60}",), 0),
        (("protocol: {pipelined_budget_ms: 70}",), 70),
        (("device: cuda",), 5000),
        (("device: cuda", "protocol: {turn_ms: 60}"), 5000),
        (("device: cuda", "protocol: {pipelined_budget_ms: 0}"), 0),
    ],
)
def test_back_to_back_calls_are_measured_on_a_gpu_and_elsewhere_if_asked_for(
    tmp_path: Path, lines: tuple[str, ...], expected_ms: int
) -> None:
    sweep = load_sweep(written(tmp_path, "workloads: [{name: bert-base, batch: 1}]", *lines))
    assert sweep.protocol.pipelined_budget_ms == expected_ms
    assert sweep.protocol.turn_ms == (60 if "turn_ms" in str(lines) else 120)


def test_several_trials_may_have_a_twin(tmp_path: Path) -> None:
    wanted = "{workload: bert-base, backend: eager, batch: 2}, {workload: distilbert, backend: torchscript, batch: 1}"
    workloads = "workloads: [{name: [bert-base, distilbert], batch: [1, 2]}]"
    path = written(tmp_path, workloads, f"duplicate: [{wanted}]")
    twins = [t.spec for task in one_round(path).tasks for t in task.task.trials if t.replicate == 1]
    assert sorted((twin.workload.name, twin.backend.name, twin.workload.batch) for twin in twins) == [
        ("bert-base", "eager", 2),
        ("distilbert", "torchscript", 1),
    ]
    assert one_round(path).trials == 8 + 2


@pytest.mark.parametrize("nothing", ["duplicate: null", "duplicate: []", ""])
def test_no_trial_needs_a_twin(tmp_path: Path, nothing: str) -> None:
    path = written(tmp_path, "workloads: [{name: bert-base, batch: 1}]", nothing)
    assert one_round(path).trials == 2


MISTAKES = (
    ["workloads: [{name: [bert-base, resnet5], batch: 1}]"],
    ["workloads: [{name: [], batch: 1}]"],
    ["workloads: [{name: [bert-base, resnet50], batch: 1, sequence_length: 8}]"],
    ["workloads: [{name: [bert, bert-base], batch: 1, options: {layers: 2}}]"],
    ["workloads: [{name: bert-base, batch: 1}]", "duplicate:", "  - {workload: bert-base, backend: eager}"],
    ["workloads: [{name: bert-base, batch: 1}]", "duplicate:", "  - {workload: bert-base, backend: tvm, batch: 1}"],
    ["workloads: [{family: speach, batch: 1}]"],
    ["workloads: [{family: speech, name: gpt2, batch: 1}]"],
    ["workloads: [{family: speech, batch: 1, sequence_length: 8}]"],
)


def test_what_is_wrong_in_a_list_is_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    def said(lines: list[str]) -> str:
        path = written(tmp_path, *lines)
        return refusal(load_sweep, path, path.read_text())

    assert {"\n".join(lines): said(lines) for lines in MISTAKES} == snapshot


@pytest.mark.parametrize(("text", "seconds"), [("90 s", 90), ("6 min", 360), ("10m", 600), ("1.5 h", 5400)])
def test_a_budget_takes_the_place_of_rounds(tmp_path: Path, text: str, seconds: float) -> None:
    sweep = load_sweep(spending(tmp_path, f"budget: {text}", "precision: 2.5 %"))
    assert (sweep.budget, sweep.precision, sweep.planned_rounds) == (seconds, 0.025, 3)
    again = Sweep.model_validate_json(sweep.model_dump_json(exclude_unset=True))
    assert (again.budget, again.precision) == (sweep.budget, sweep.precision)


def test_guards_that_are_off_can_be_read_again_by_a_driver_elsewhere(tmp_path: Path) -> None:
    sweep = load_sweep(spending(tmp_path, "guards: off"))
    assert Sweep.model_validate_json(sweep.model_dump_json(exclude_unset=True)).guards == sweep.guards


def test_a_wrong_budget_is_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    head = spending(tmp_path).read_text()
    mistakes = ("360", "0 s", "6 min\nrounds: 3", "6 min\nprecision: 0.03", "6 min\nprotocol: {procedure: legacy}")
    path = tmp_path / "sweep.yaml"
    assert {text: refusal(load_sweep, path, f"{head}budget: {text}") for text in mistakes} == snapshot


def test_a_family_stands_for_its_workloads(tmp_path: Path) -> None:
    (axis,) = load_sweep(written(tmp_path, "workloads: [{family: speech, batch: 1}]")).workloads
    assert set(axis.name) == {"speecht5-asr", "hubert-large", "wav2vec2-base", "wavlm-base"}
