"""Comparisons over a made-up lab whose truth is known: every injected effect is found, and its confounder named."""

import math
from pathlib import Path

import pytest

from orchestrator.analysis import Verdict
from orchestrator.analysis.axes import AXES
from orchestrator.analysis.comparison import ComparisonTable, Entry, Outcome, compare, compare_selections, gate
from orchestrator.store import Results, open_store
from tests.machines import A100, SYSTEMS, with_driver
from tests.systems import DRIVER_EFFECT, FIRST, NEW_DRIVER, World, make_systems
from tests.world import BACKENDS, Effect, spec, times

V100_EFFECT = Effect(1.25, "dispatch", {"host": "v100-01", "backend": "torchscript", "workload": "bert-base"})
"""A framework that is slower on one machine alone."""
EFFECTS = (DRIVER_EFFECT, V100_EFFECT)
BY_GPU = {system.fingerprint.gpus[0].name: system for system in SYSTEMS if system.is_gpu}
PAPER = f"campaign={FIRST}"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Six systems; the A100 once more after an update of its driver."""
    return open_store(make_systems(tmp_path_factory.mktemp("lab") / "results", World(effects=EFFECTS)).directory)


def require_truth(table: ComparisonTable, truths: dict[tuple[object, ...], float], share: float = 1.0) -> None:
    """Intervals hold the truth, no verdict says the contrary, and of what is clearly different this share is found."""
    assert len(table.ratios) == len(truths)
    held = 0
    found = []
    for entry in table.ratios:
        assert entry.ratio is not None
        truth, estimate = truths[entry.key], entry.ratio.estimate
        assert estimate.low is not None
        assert estimate.high is not None
        held += estimate.low <= truth <= estimate.high
        assert entry.ratio.judgement.least is not None
        beyond = abs(math.log(truth)) / math.log1p(entry.ratio.judgement.least)
        right = int(math.copysign(1, math.log(truth))) if beyond > 0 else 0
        assert entry.ratio.verdict.direction in (right, 0), table.text(entry)
        if beyond > 2:
            found.append(entry.ratio.verdict.direction == right)
    assert held / len(truths) > 0.85
    assert sum(found) >= share * len(found) > 0


def test_backends_are_as_they_were_made_and_an_effect_on_one_machine_is_found_there_alone(lab: Results) -> None:
    where = [PAPER, "device=cuda", "dtype=float16", "batch=1", "workload=bert-base,resnet50", "image_size=none,224"]
    table = compare(lab, ["gpu", "workload"], ["backend"], "backend=eager", [*where, "sequence_length=128,none"])
    truths = {
        (gpu, workload, backend): times(system, spec(workload, 1), EFFECTS).pipelined_s
        / times(system, spec(workload, 1, backend), EFFECTS).pipelined_s
        for gpu, system in BY_GPU.items()
        for workload in ("bert-base", "resnet50")
        for backend in BACKENDS
        if backend != "eager"
    }
    require_truth(table, truths)
    torchscript = {
        entry.key[0]: entry.ratio.estimate.value
        for entry in table.ratios
        if entry.ratio is not None and entry.key[1:] == ("bert-base", "torchscript")
    }
    assert {gpu for gpu, ratio in torchscript.items() if ratio < 0.93 * 1.7} == {"Tesla V100-PCIE-32GB"}
    # All of a host ran in one environment, so that between backends nothing else differs.
    assert table.differences == ()


def test_two_gpus_side_by_side_are_as_they_were_made(lab: Results) -> None:
    where = [PAPER, "dtype=float32", "workload=bert-base", "backend=eager,onnxruntime"]
    table = compare_selections(lab, "gpu=V100", "gpu=A100", ["batch", "backend"], where)
    v100, a100 = BY_GPU["Tesla V100-PCIE-32GB"], A100
    truths = {}
    for entry in table.ratios:
        batch, backend = entry.key[0], str(entry.key[1])
        one = spec("bert-base", int(str(batch)), backend, "float32")
        truths[entry.key] = times(v100, one, EFFECTS).pipelined_s / times(a100, one, EFFECTS).pipelined_s
    require_truth(table, truths)
    told = {one.change.field for one in table.differences}
    assert {"cpu.model_name", "host"} <= told
    assert not any(name.startswith("gpus") for name in told)


@pytest.mark.parametrize(("where", "share"), [("dtype=float32 batch<=8", 1.0), ("batch=1", 1.0), ("batch>=1", 0.75)])
def test_the_driver_is_found_and_named(lab: Results, where: str, share: float) -> None:
    """Among all 67 ratios some of the 10 % stay in doubt: five rounds are few for so large a family."""
    table = compare_selections(lab, "campaign=previous", "campaign=newest", where=f"gpu=A100 {where}")
    updated = with_driver(A100, NEW_DRIVER, "12.4")
    truths = {}
    for entry in table.ratios:
        batch, length, dtype = (entry.cell.value(AXES[name]) for name in ("batch", "sequence_length", "dtype"))
        one = spec("bert-base", int(str(batch)), backend_of(entry), str(dtype), sequence_length=length)
        truths[entry.key] = times(A100, one, EFFECTS).pipelined_s / times(updated, one, EFFECTS).pipelined_s
    require_truth(table, truths, share)
    assert {round(truth, 2) for truth in truths.values()} >= {1.0, 0.91}
    slower = [entry for entry in table.ratios if entry.ratio and entry.ratio.verdict is Verdict.SLOWER]
    assert {truths[entry.key] < 0.99 for entry in slower} == {True}
    [driver] = [one for one in table.differences if one.change.field == "gpu_driver_version"]
    assert (driver.change.then, driver.change.now) == ("535.54.03", NEW_DRIVER)
    assert len(driver.entries) == len(table.ratios)


def backend_of(entry: Entry) -> str:
    return str(entry.cell.value(AXES["backend"]))


def test_the_gate_fails_on_the_driver_and_says_so(lab: Results) -> None:
    found = gate(lab, "campaign=previous", where="gpu=A100 workload=bert-base")
    slower = [one for one in found.cells if one.outcome is Outcome.SLOWER]
    assert not found.passed
    assert slower
    assert all(_is_slower(one.entry) for one in slower)
    assert "gpu_driver_version" in {one.change.field for one in found.table.differences}
    assert gate(lab, "campaign=previous", where="gpu=A100 workload=bert-base backend=cuda_graphs").passed


@pytest.mark.slow
def test_a_store_of_many_trials_is_compared_at_once(tmp_path: Path) -> None:
    """No claim about speed: what is quadratic in cells or campaigns would not end."""
    made = make_systems(tmp_path / "results", World(trials=15_000))
    table = compare(
        open_store(made.directory), ["gpu", "workload", "batch", "campaign", "sequence_length", "options", "system"],
        ["backend"], "backend=eager", ["device=cuda", "dtype=float16"],
    )  # fmt: skip
    assert len(table.ratios) > 500


def _is_slower(entry: Entry) -> bool:
    return entry.ratio is not None and entry.ratio.estimate.value < 0.97
