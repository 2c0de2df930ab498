"""`taxmeter explain` on made-up systems: what it says is what was put in."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.analysis.explanation import Direction, Explanation, Lack, explain, explain_columns
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import Regime
from orchestrator.analysis.transition import Side
from orchestrator.report.explain import render_explanation
from orchestrator.store import open_store
from runners.contract import Status
from tests.conftest import Captured
from tests.machines import A100, CPU_ONLY, RTX_2080_TI, V100, System
from tests.printing import printed
from tests.records import Noise
from tests.results import known, refused, told
from tests.systems import Made, World, make_systems
from tests.world import BACKENDS, BATCHES, spec, times, transition_batch

ONE = ("workload=bert-base", "sequence_length=128", "backend=eager")


def design(system: System) -> tuple:  # type: ignore[type-arg]
    half, device = "float16" if system.is_gpu else "float32", system.device
    return (
        *(spec("bert-base", batch, backend, half, device) for backend in BACKENDS for batch in BATCHES),
        *(spec("bert", 1, "eager", half, device, layers=layers) for layers in (6, 24)),
        *(spec("bert", 1, "eager", half, device, hidden_size=width) for width in (384, 1536)),
        spec("funnel-small", 1, "eager", half, device),
        spec("funnel-small", 1, "torchscript", half, device),
        spec("bert-base", 128, "eager", "float32", device),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    world = World(systems=(V100, A100, RTX_2080_TI, CPU_ONLY), design=design)
    return make_systems(tmp_path_factory.mktemp("explain") / "results", world)


def explained(made: Made, **wanted: object) -> Explanation:
    rows = Snapshot.of(open_store(made.directory)).rows(explain_columns(), None)
    usual = {"host": "v100-01", "workload": "bert-base", "dtype": "float16", "sequence_length": 128}
    wanted = {**usual, "backend": "eager", "batch": 1, **wanted}
    target = next(row for row in rows if all(row[name] == value for name, value in wanted.items()))
    return explain([row for row in rows if row["system_id"] == target["system_id"]], target)


def shown(found: Explanation, width: int) -> str:
    return printed(render_explanation(found, {}), width)


def test_the_parts_of_a_call_are_what_was_put_in(made: Made) -> None:
    found = explained(made)
    truth = times(V100, spec("bert-base", 1))
    overhead_s = truth.pipelined_s - truth.busy_s
    parts = {"dispatch_s": truth.dispatch_s, "busy_s": truth.busy_s, "latency_pipelined_median_s": truth.pipelined_s}
    shares = {"exposed_overhead_s": overhead_s, "framework_fraction": overhead_s / truth.pipelined_s}
    for column, value in (parts | shares).items():
        estimate = found.tax.parts[column]
        assert estimate.value == pytest.approx(value, rel=0.04)
        assert estimate.low is not None
        assert estimate.processes == 5
    assert known(found.tax.load).proven is Regime.FRAMEWORK_BOUND


@pytest.mark.parametrize(("host", "system"), [("v100-01", V100), ("a100-01", A100), ("2080ti-01", RTX_2080_TI)])
def test_the_transition_is_where_it_was_put(made: Made, host: str, system: System) -> None:
    found = known(explained(made, host=host, driver_version="535.54.03").transition)
    assert found.batch == pytest.approx(transition_batch(system, spec("bert-base", 1)), rel=0.06)
    assert found.interval is not None


def test_at_a_large_batch_the_kernels_decide(made: Made) -> None:
    found = explained(made, batch=128)
    assert known(found.tax.load).regime is Regime.COMPUTE_BOUND
    free = known(found.free)
    assert (free.base, free.batch, free.next_batch) == (1, 16, 32)


def test_other_backends_remove_what_they_were_made_to(made: Made) -> None:
    found = {one.backend: one for one in explained(made).alternatives}
    ours, theirs = (times(V100, spec("bert-base", 1, backend)) for backend in ("eager", "onnxruntime"))
    assert known(found["onnxruntime"].speedup).value == pytest.approx(ours.pipelined_s / theirs.pipelined_s, rel=0.03)
    expected = 1 - (theirs.pipelined_s - theirs.busy_s) / (ours.pipelined_s - ours.busy_s)
    assert known(found["onnxruntime"].removed_share).value == pytest.approx(expected, abs=0.02)
    assert found["onnxruntime"].is_paired
    assert next(iter(found)) == "cuda_graphs"


def test_wider_is_free_and_deeper_is_not(made: Made) -> None:
    found = {(one.direction, one.size): one for one in explained(made).variants}
    wide, deep = found[Direction.WIDTH, 1536], found[Direction.DEPTH, 24]
    assert wide.is_free
    assert wide.work == pytest.approx(4, rel=0.05)
    assert not deep.is_free
    assert deep.cost.value == pytest.approx(2, rel=0.03)


def test_what_noise_hides_is_not_called_free(tmp_path: Path) -> None:
    noisy = World(systems=(V100,), design=design, rounds=3, updated=(), noise=Noise(of_process=0.3))
    found = explained(make_systems(tmp_path / "results", noisy))
    free = known(found.free)
    assert (free.batch, free.next_batch, free.is_decided) == (1, 2, False)
    wide = next(one for one in found.variants if (one.direction, one.size) == (Direction.WIDTH, 1536))
    assert wide.is_free is None
    text = shown(found, 120)
    assert re.search(r"none shown; batch 2 costs x[\d.]+ \[[\d., ]+\], which does not decide", text)
    assert "not decided" in text
    vague = shown(replace(found, free=replace(free, next_cost=Estimate(620.38, 0.31, 1.2e6, 2, 2))), 120)
    assert "none shown; what batch 2 costs is too wide to tell" in " ".join(vague.split())
    assert "x620" not in vague


def test_a_processor_is_explained_by_its_own_formulae(made: Made) -> None:
    found = explained(made, host="epyc-01", dtype="float32")
    truth = times(CPU_ONLY, spec("bert-base", 1, "eager", "float32", "cpu"))
    assert found.tax.parts["dispatch_floor_s"].value == pytest.approx(truth.dispatch_s, rel=0.03)
    assert "dispatch_s" not in found.tax.parts
    load, execution = known(found.tax.load), known(found.execution)
    assert (load.regime, load.is_by_lower_bound) == (Regime.COMPUTE_BOUND, True)
    assert load.estimate.value == pytest.approx(truth.sync_s / truth.dispatch_s / 2, rel=0.03)
    assert known(found.transition).side is Side.BELOW
    best = times(CPU_ONLY, spec("bert-base", 1, execution.best, "float32", "cpu"))
    assert execution.seconds.value == pytest.approx(truth.sync_s - best.sync_s, rel=0.2)
    assert execution.by_floors_s == pytest.approx(truth.dispatch_s - best.dispatch_s, rel=0.05)
    said = " ".join(shown(found, 80).split())
    assert re.search(r"the framework's share +[\d.]+% .*at least", said)
    for words in (
        "floor: the tax, at least",
        "compute-bound by the floor: the framework takes at least that, and may take more",
        "by the floor below 1, the smallest batch",
        f"which {execution.best} does without; the floors differ by",
    ):
        assert words in said
    skipped = next(one for one in found.alternatives if one.backend == "cuda_graphs")
    assert skipped.status is Status.SKIPPED


def test_what_failed_or_was_not_measured_with_this_backend_is_lacking(made: Made) -> None:
    failed = explained(made, host="2080ti-01", dtype="float32", batch=128)
    assert not failed.tax.parts
    assert (failed.failed[0].status, failed.failed[0].count) == (Status.OOM, 5)
    assert Lack.TAX in failed.lacks
    alone = explained(made, host="a100-01", backend="cuda_graphs")
    assert Lack.VARIANTS in alone.lacks
    assert "no wider or deeper model was measured with this backend on this system" in shown(alone, 80)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("host", ["v100-01", "epyc-01", "2080ti-01"])
def test_the_text_fits_the_terminal(made: Made, width: int, host: str) -> None:
    dtype = "float32" if host == "epyc-01" else "float16"
    text = shown(explained(made, host=host, dtype=dtype), width)
    assert max(map(len, text.splitlines())) <= width
    for words in ("Regime: ", "Transition batch: ", "Free batch", "Other backends"):
        assert words in text


def test_the_command_takes_conditions_and_ids(made: Made, capsys: Captured) -> None:
    place = ("--results", made.directory)
    question = ("explain", *ONE, "batch=1", "gpu=V100", *place)
    assert "framework-bound" in told(capsys, *question)
    document = json.loads(told(capsys, *question, "--format", "json"))
    assert document["transition"]["side"] == "inside"
    assert document["backends"][0]["backend"] == "cuda_graphs"
    rows = made.store.trials(["trial_id", "host", "batch", "backend", "workload"]).to_pylist()
    trial_id = next(row["trial_id"] for row in rows if (row["host"], row["workload"]) == ("v100-01", "funnel-small"))
    out = told(capsys, "explain", trial_id[:14], *place)
    for words in ("funnel-small", "unsupported", "To say more:"):
        assert words in out


def test_a_lack_comes_with_the_sweep_that_measures_it(made: Made, capsys: Captured, in_project: Path) -> None:
    question = ("explain", "workload=funnel-small", "backend=eager", "gpu=V100", "--results", made.directory)
    lacks = json.loads(told(capsys, *question, "--format", "json"))["lacks"]
    commands = {lack["what"]: lack["command"] for lack in lacks}
    assert commands["batches"] == "make cluster-sweep SWEEP=sweeps/paper/figure_7.yaml"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("zzz",), "no trial zzz"),
        (("workload=bert-base",), "several configurations: gpu is one of "),
        (("workload=bert-base", "gpu=H100"), "no trial has gpu=H100"),
        (("wrkload=bert-base",), "did you mean workload"),
        (("workload=funnel-small", "batch=128"), "taken together"),
    ],
)
def test_a_question_without_one_answer_is_an_error(
    made: Made, capsys: Captured, arguments: tuple[str, ...], words: str
) -> None:
    assert words in refused(capsys, "explain", *arguments, "--results", made.directory)


def test_one_round_gives_numbers_without_intervals(tmp_path: Path, capsys: Captured) -> None:
    made = make_systems(tmp_path / "results", World(systems=(V100,), design=design, rounds=1, updated=()))
    out = told(capsys, "explain", *ONE, "batch=1", "--results", made.directory)
    for words in ("one process: no interval", "a single session gives no interval", "taxmeter reproduce"):
        assert words in out


def test_conditions_on_campaigns_alone_ask_where_their_time_went(made: Made, capsys: Captured) -> None:
    question = ("explain", "campaign=newest", "--results", made.directory)
    assert "trials took" in told(capsys, *question)
    spent = json.loads(told(capsys, *question, "--format", "json"))
    assert spent["trials"] > 0
    parts = [value for name, value in spent.items() if name not in ("trials", "total_s", "campaigns")]
    assert spent["total_s"] == pytest.approx(sum(parts))
