"""Claims on made-up systems: each kind of statistic holds, fails and is not decided, as the world was made."""

import json
import math
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.analysis.axes import axis
from orchestrator.analysis.claiming import Decision, Finding, claim_columns, configurations, decide, load_claims
from orchestrator.analysis.claiming.configurations import Configuration, grouped
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.tax import Regime
from orchestrator.report.claims import claims_document, claims_markdown, render_claims
from orchestrator.store import open_store
from tests.machines import A100, CPU_ONLY, RTX_2080_TI, RTX_3090, RTX_8000, V100, System
from tests.results import taxmeter
from tests.systems import Made, World, make_systems
from tests.world import BACKENDS, Effect, spec

HOLDS, FAILS, UNDECIDED = Finding.HOLDS, Finding.FAILS, Finding.NOT_ENOUGH_DATA
EXPECTED = {
    "frameworks-alike-at-large-batch": FAILS,  # on the A100 eager still waits for the framework at 32
    **dict.fromkeys(
        (
            *("cpu-floor-order-of-the-shrunk-bert", "nested-tensors-win-on-padded-batches"),
            *("bert-not-framework-bound-on-a-1080-ti", "fnet-eager-beats-bert-onnxruntime"),
            *("gpt2-framework-bound-at-batch-1", "wavlm-soon-compute-bound"),
        ),
        UNDECIDED,
    ),
}
"""Of the shipped claims in the whole made-up lab; all others hold."""
CONTRARY = {
    "torchscript-faster-at-batch-1": Effect(2.0, "dispatch", {"backend": "torchscript"}),
    "onnxruntime-much-faster-at-batch-1": Effect(3.0, "dispatch", {"backend": "onnxruntime"}),
    "cuda-graphs-faster-at-batch-1": Effect(3.0, "busy", {"backend": "cuda_graphs"}),
    "cuda-graphs-useless-at-large-batch": Effect(0.7, "busy", {"backend": "cuda_graphs", "batch": 128}),
    "a100-not-faster-than-v100-at-batch-1": Effect(0.5, "dispatch", {"host": "a100-01"}),
    "wider-is-free": Effect(1.5, "dispatch", {"hidden_size": 1536}),
    "deeper-is-not-free": Effect(0.3, "dispatch", {"layers": 24}),
    "funnel-is-slower": Effect(0.3, "dispatch", {"workload": "funnel-small"}),
    "efficient-variants-slower-at-batch-1": Effect(0.5, "both", {"workload": "squeezebert"}),
    "latency-constant-while-framework-bound": Effect(1.3, "dispatch", {"batch": 8, "backend": "eager"}),
    "float16-framework-bound-longer": Effect(0.2, "busy", {"dtype": "float32"}),
    "bert-framework-bound-on-a-3090": Effect(0.1, "dispatch", {"host": "3090-01"}),
    "tax-grows-with-faster-gpus": Effect(0.4, "dispatch", {"host": "a100-01"}),
    "frameworks-alike-while-compute-bound": Effect(0.5, "busy", {"backend": "onnxruntime"}),
    "cpu-floor-order-of-backends": Effect(0.1, "dispatch", {"backend": "eager", "host": "epyc-01"}),
    "cpu-onnxruntime-removes-most-of-the-tax": Effect(3.0, "dispatch", {"backend": "onnxruntime"}),
    "cpu-floor-is-small-for-bert-base": Effect(9.0, "dispatch", {"backend": "eager", "host": "epyc-01"}),
    "cpu-no-batch-is-free": Effect(0.2, "busy", {"batch": 2, "host": "epyc-01"}),
    "cpu-floor-is-less-than-half-from-one-example": Effect(80.0, "dispatch", {"backend": "eager", "host": "epyc-01"}),
}
"""What makes a claim false."""


def design(system: System) -> tuple:  # type: ignore[type-arg]
    half, device = "float16" if system.is_gpu else "float32", system.device
    return (
        *(spec("bert-base", batch, backend, half, device) for backend in BACKENDS for batch in (1, 2, 8, 32, 128)),
        *(spec("bert-base", batch, "eager", "float32", device) for batch in (1, 2, 8, 32)),
        *(spec("bert", 1, "eager", half, device, layers=layers) for layers in (3, 6, 12, 24)),
        *(spec("bert", 1, "eager", half, device, hidden_size=width) for width in (384, 768, 1536, 3072)),
        *(spec(name, 1, "eager", half, device) for name in ("funnel-small", "squeezebert", "mobilebert", "distilbert")),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_systems(tmp_path_factory.mktemp("claims") / "whole")


def world(*effects: Effect, rounds: int = 5, systems: tuple[System, ...] = (V100, A100, RTX_3090, CPU_ONLY)) -> World:
    return World(systems=systems, rounds=rounds, effects=effects, design=design, updated=())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Configuration]:
    systems = (V100, A100, RTX_3090, RTX_8000, RTX_2080_TI, CPU_ONLY)
    return read(make_systems(tmp_path_factory.mktemp("claims") / "small", world(systems=systems)))


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> list[Configuration]:
    return read(make_systems(tmp_path_factory.mktemp("claims") / "single", world(rounds=1, systems=(V100, A100))))


def read(made: Made) -> list[Configuration]:
    return configurations(Snapshot.of(open_store(made.directory)).rows(claim_columns(), None))


def on_gpu(every: list[Configuration], name: str) -> list[Configuration]:
    return [one for one in every if one.row["gpu_name"] == name]


def scaled(one: Configuration, column: str, factor: float) -> Configuration:
    return replace(one, rows=tuple({**row, column: row[column] and row[column] * factor} for row in one.rows))


def decided(text: str, every: list[Configuration], directory: Path) -> Decision:
    path = directory / "claims.yaml"
    head = "version: 1\nclaims:\n  - {id: it, text: It is so., source: a test, measured_by: sweeps/quickstart.yaml, "
    path.write_text(head + text + "}\n", encoding="utf-8")
    return decide(load_claims([path])["it"], every)


BERT = "device=cuda workload=bert-base dtype=float16 sequence_length=128"
ONE = ["bert-base", "eager", 1]
DEPTHS = "where: workload=bert hidden_size=768 device=cuda"
MODELS = "where: batch=1 backend=eager device=cuda dtype=float16"
RANKS = "rank_correlation: {{x: {x}, y: latency_pipelined, over: {over}, at_least: 4, {bound}}}"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (f"where: {BERT} batch=1, ratio: {{of: backend=torchscript, against: backend=eager, above: 1.5}}", HOLDS),
        (f"where: {BERT} batch=1, ratio: {{of: backend=torchscript, against: backend=eager, above: 1.9}}", FAILS),
        (f"where: {BERT} batch=1, ratio: {{of: backend=torchscript, against: backend=eager, above: 1.7}}", UNDECIDED),
        (f"where: {BERT} batch=1, ratio: {{of: backend=openvino, against: backend=eager, above: 1}}", UNDECIDED),
        (f"where: {BERT} backend=eager batch<=8, flat: {{along: batch, within: 1.1}}", HOLDS),
        (f"where: {BERT} backend=eager, flat: {{along: batch, within: 1.1}}", FAILS),
        (f"where: {BERT} backend=eager batch<=2, flat: {{along: batch, within: 1.1}}", UNDECIDED),
        ("where: workload=bert device=cuda, growth: {along: layers, above: 0.9}", HOLDS),
        ("where: workload=bert device=cuda, growth: {along: layers, below: 0.9}", FAILS),
        ("where: workload=bert device=cuda, growth: {along: heads, above: 0.9}", UNDECIDED),
        (f"{DEPTHS}, {RANKS.format(x='macs', over='options', bound='above: -0.9')}", HOLDS),
        (f"{MODELS}, {RANKS.format(x='latency_sync', over='[workload, options]', bound='below: 0.6')}", FAILS),
        (f"{DEPTHS}, {RANKS.format(x='macs', over='options', bound='above: 0.5')}", UNDECIDED),
        (
            f"where: {BERT} backend=eager, scaling: {{of: transition_batch, by: peak_throughput, over: gpu, above: 0}}",
            HOLDS,
        ),
        (
            f"where: {BERT} backend=eager, scaling: {{of: transition_batch, by: peak_throughput, over: gpu, below: 0}}",
            FAILS,
        ),
        (
            f"where: {BERT} backend=eager gpu~*RTX*, scaling: {{of: transition_batch, by: peak_throughput, over: gpu, above: 0}}",
            UNDECIDED,
        ),
        (f"where: {BERT} backend=eager gpu=V100, transition: {{above: 15}}", HOLDS),
        (f"where: {BERT} backend=eager gpu=V100, transition: {{above: 40}}", FAILS),
        (f"where: {BERT} backend=eager batch=1, transition: {{above: 4}}", UNDECIDED),
        (f"where: {BERT} backend=eager, transition: {{of: gpu=A100, against: gpu=V100, above: 2}}", HOLDS),
        (f"where: {BERT} backend=eager, transition: {{of: gpu=A100, against: gpu=V100, below: 2}}", FAILS),
        (f"where: {BERT} backend=eager, transition: {{of: gpu=A100, against: gpu=H100, below: 2}}", UNDECIDED),
        (f"where: {BERT} batch=1, ordering: {{along: backend, order: [onnxruntime, torchscript, eager]}}", HOLDS),
        (f"where: {BERT} batch=1, ordering: {{along: backend, order: [onnxruntime, eager, torchscript]}}", FAILS),
        (f"where: {BERT} batch=1, ordering: {{along: backend, order: [onnxruntime, tensorrt, eager]}}", UNDECIDED),
        (f"where: {BERT} batch=1 backend=eager, level: {{metric: boundedness, above: 1.1}}", HOLDS),
        (f"where: {BERT} batch=1 backend=eager, level: {{metric: boundedness, below: 1.1}}", FAILS),
        (f"where: {BERT} batch=1 backend=eager, level: {{metric: latency_legacy, below: 1}}", UNDECIDED),
    ],
)
def test_each_statistic_has_all_three_verdicts(
    small: list[Configuration], tmp_path: Path, text: str, finding: Finding
) -> None:
    found = decided(text, small, tmp_path)
    assert found.finding is finding
    if finding is UNDECIDED:
        assert found.missing


def test_a_series_along_an_option_keeps_the_other_options(small: list[Configuration]) -> None:
    here = [one for one in small if (one.row["workload"], one.row["gpu_name"]) == ("bert", "Quadro RTX 8000")]
    depths = grouped(here, [axis("layers")])
    # Four depths at the usual width, and each other width by itself.
    assert sorted(map(len, depths.values())) == [1, 1, 1, 4]


@pytest.mark.parametrize("any_or_all", ["any", "all"])
def test_one_case_is_enough_where_it_says_so(small: list[Configuration], tmp_path: Path, any_or_all: str) -> None:
    text = f"where: {BERT} backend=eager batch=32, holds_for: {any_or_all}, level: {{metric: boundedness, above: 1.1}}"
    assert decided(text, small, tmp_path).finding is (HOLDS if any_or_all == "any" else FAILS)


@pytest.mark.parametrize("mean", ["", "mean_over: [workload], "])
def test_what_meets_several_makes_a_case_with_each(small: list[Configuration], tmp_path: Path, mean: str) -> None:
    ratio = f'ratio: {{of: backend=cuda_graphs, against: "backend=eager,onnxruntime", {mean}above: 2}}'
    here = on_gpu(small, "Tesla V100-PCIE-32GB")
    found = {
        one.case.label: one.case.figure for one in decided(f"where: {BERT} batch=1, {ratio}", here, tmp_path).cases
    }
    assert set(found) == {"against backend=eager", "against backend=onnxruntime"}
    for label, figure in found.items():
        alone = f"where: {BERT} batch=1, ratio: {{of: backend=cuda_graphs, {label.replace(' ', ': ')}, above: 2}}"
        (expected,) = decided(alone, here, tmp_path).cases
        assert figure is not None
        assert expected.case.figure is not None
        assert figure.low == pytest.approx(expected.case.figure.low)
        assert figure.processes == expected.case.figure.processes == 5


def test_a_mean_holds_each_pair_once(small: list[Configuration], tmp_path: Path) -> None:
    where = "where: workload=bert-base dtype=float16 sequence_length=128 gpu=V100 batch<=2"
    ratio = 'ratio: {of: backend=cuda_graphs, against: "backend=eager,onnxruntime", mean_over: [batch], above: 2}'
    found = decided(f"{where}, {ratio}", small, tmp_path)
    assert [one.case.note for one in found.cases] == ["mean of 2", "mean of 2"]
    for one in found.cases:
        pair = "ratio: {of: backend=cuda_graphs, " + one.case.label.replace(" ", ": ") + ", above: 2}"
        singles = [each.case.figure for each in decided(f"{where}, {pair}", small, tmp_path).cases]
        values = [figure.value for figure in singles if figure is not None and figure.value is not None]
        assert one.case.figure is not None
        assert one.case.figure.value == pytest.approx(math.prod(values) ** 0.5)


def test_one_measurement_is_one_case(small: list[Configuration], tmp_path: Path) -> None:
    """The floor is measured once for all shapes, and stands in the trials of each."""
    text = "where: device=cpu workload=bert-base batch=1, "
    floors = text + "ratio: {of: backend=onnxruntime, against: backend=eager, metric: floor, above: 1}"
    levels = text + "level: {metric: floor, below: 1}"
    means = floors.replace("above", "mean_over: sequence_length, above")
    here = [one for one in small if one.device == "cpu"]
    longer = [replace(one, rows=tuple({**row, "sequence_length": 512} for row in one.rows)) for one in here]
    (alone,), (once,) = (decided(floors, every, tmp_path).cases for every in (here, [*here, *longer]))
    assert once.case.figure == alone.case.figure
    assert once.case.note == "measured once for sequence_length=128 and sequence_length=512"
    assert len(decided(levels, here, tmp_path).cases) == len(decided(levels, [*here, *longer], tmp_path).cases)
    # What is measured for one of them alone has a name of its own.
    eager = next(one for one in here if [one.row[name] for name in ("workload", "backend", "batch")] == ONE)
    failed = replace(eager, rows=tuple({**row, "sequence_length": 64, "status": "failed"} for row in eager.rows))
    names = [one.case.label for one in decided(levels, [*here, *longer, failed], tmp_path).cases]
    assert len(set(names)) == len(names)
    (mean,) = decided(means, [*here, *longer], tmp_path).cases
    assert (mean.case.figure, mean.case.note) == (decided(means, here, tmp_path).cases[0].case.figure, "mean of 1")
    # Their latencies are measured for each.
    latencies = floors.replace("metric: floor, ", "")
    shifted = [scaled(one, "latency_sync_median_s", 4) for one in longer]
    assert len(decided(latencies, [*here, *shifted], tmp_path).cases) == 2


def test_what_is_not_framework_bound_does_not_refute_that_wider_is_free(tmp_path: Path, project: Path) -> None:
    slow = Effect(30.0, "busy", {"workload": "bert", "host": "v100-01"})
    every = read(make_systems(tmp_path / "results", world(slow, rounds=4, systems=(V100,))))
    found = decide(load_claims([project / "claims"])["wider-is-free"], every)
    assert found.finding is UNDECIDED
    assert "no configuration is proven to be framework-bound" in found.missing


def test_one_round_decides_nothing(single: list[Configuration], project: Path) -> None:
    decisions = [decide(claim, single) for claim in load_claims([project / "claims"]).values()]
    # But for those whose scatter is that around a line through several processes, or that of models.
    decided_by_rounds = [one for one in decisions if not (one.claim.growth or one.claim.rank_correlation)]
    assert {one.finding for one in decided_by_rounds} == {UNDECIDED}
    assert any("so no interval" in text for one in decisions for text in one.missing)


def test_the_shipped_claims_in_the_whole_lab(whole: Made, project: Path) -> None:
    every = read(whole)
    found = {name: decide(claim, every).finding for name, claim in load_claims([project / "claims"]).items()}
    assert found == {name: EXPECTED.get(name, HOLDS) for name in found}


@pytest.mark.parametrize("name", sorted(CONTRARY))
def test_a_shipped_claim_fails_where_the_world_is_the_contrary(name: str, tmp_path: Path, project: Path) -> None:
    systems = (CPU_ONLY,) if name.startswith("cpu-") else (V100, A100)
    systems = (RTX_3090,) if name in ("bert-framework-bound-on-a-3090", "float16-framework-bound-longer") else systems
    made = make_systems(tmp_path / "results", world(CONTRARY[name], rounds=4, systems=systems))
    assert decide(load_claims([project / "claims"])[name], read(made)).finding is FAILS


def test_what_cannot_run_is_left_out_and_told(whole: Made, project: Path) -> None:
    found = decide(load_claims([project / "claims"])["cuda-graphs-useless-at-large-batch"], read(whole))
    assert found.finding is HOLDS
    assert "CUDA out of memory" in found.left_out[0].note


def test_a_word_does_not_stand_for_another_workload(small: list[Configuration], tmp_path: Path) -> None:
    without = [one for one in small if one.row["workload"] != "bert"]
    found = decided("where: workload=bert, level: {metric: boundedness, above: 0}", without, tmp_path)
    assert found.missing == ("no trial has workload=bert",)


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(whole: Made, project: Path, width: int) -> None:
    every = read(whole)
    out = StringIO()
    decisions = [decide(claim, every) for claim in load_claims([project / "claims"]).values()]
    Console(file=out, width=width).print(render_claims(decisions, detailed=True))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "35 claims: 28 hold, 1 fail, 6 have not enough data" in text
    assert "Measured by: make cluster-sweep SWEEP=sweeps/paper/figure_10.yaml" in text
    assert "no data" not in text
    page = claims_markdown(decisions)
    assert page.count("\n## ") == len(decisions)


def test_numbers_have_units(small: list[Configuration], tmp_path: Path) -> None:
    text = f"where: {BERT} batch=1 backend=eager gpu=V100, level: {{metric: latency_pipelined, below: 0.02}}"
    level = decided(text, small, tmp_path)
    page = claims_markdown([level])
    assert re.search(r"\| 9\.\d+ ms \[9\.\d+, [\d.]+\] \| below 0\.02 s \|", page)
    assert "latency_pipelined must be below 0.02 s in all cases" in page
    (document,) = claims_document([level])
    assert document["kind"] == "level"
    assert [(one["metric"], one["unit"]) for one in document["cases"]] == [("latency_pipelined", "s")]
    kinds = {
        f"where: {BERT} batch=1, ratio: {{of: backend=torchscript, against: backend=eager, above: 1}}": (
            *("ratio", "latency_pipelined", "1"),
        ),
        "where: workload=bert device=cpu, growth: {along: layers, metric: floor, above: 0}": ("exponent", "floor", "1"),
        f"where: {BERT} backend=eager, transition: {{above: 1}}": ("level", "transition_batch", "examples"),
        f"{DEPTHS}, {RANKS.format(x='macs', over='options', bound='above: 0')}": (
            *("rank correlation", "latency_pipelined", "1"),
        ),
    }
    for text, (kind, metric, unit) in kinds.items():
        (document,) = claims_document([decided(text, small, tmp_path)])
        assert document["kind"] == kind
        assert {(one["metric"], one["unit"]) for one in document["cases"]} == {(metric, unit)}


def test_without_claims_it_says_where_to_find_them(
    whole: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert taxmeter("claims", "--results", whole.directory) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "--claims PATH, or run it in the project's directory" in error


def test_the_command_and_its_exit_codes(whole: Made, capsys: pytest.CaptureFixture[str], in_project: Path) -> None:
    place = ("--results", whole.directory)
    assert taxmeter("claims", "wider-is-free", *place, "--format", "json") == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["finding"] == "holds"
    assert len(document["cases"]) == 5
    assert all(case["figure"]["low"] is not None for case in document["cases"])
    assert taxmeter("claims", *place) == 0
    assert taxmeter("claims", *place, "--require", "holds") == 1
    assert taxmeter("claims", "wider-is-free", *place, "--require", "holds") == 0
    assert taxmeter("claims", "gpt2-framework-bound-at-batch-1", *place, "--require", "no-failure") == 0
    assert taxmeter("claims", "frameworks-alike-at-large-batch", *place, "--require", "no-failure") == 1
    capsys.readouterr()
    without_a100 = (*place, "--where", "gpu!=A100", "--require", "holds")
    assert taxmeter("claims", "frameworks-alike-at-large-batch", *without_a100) == 0
    assert "holds" in capsys.readouterr().out
    assert taxmeter("claims", "wider-is-fre", *place) == 2
    assert "did you mean wider-is-free?" in capsys.readouterr().err


def test_campaigns_are_pooled_where_the_system_is_the_same(tmp_path: Path, small: list[Configuration]) -> None:
    made = make_systems(tmp_path / "results", replace(world(systems=(V100,)), updated=(V100,), rounds=3))
    text = f"where: {BERT} batch=1 backend=eager, level: {{metric: boundedness, above: 1.1}}"
    (case,) = decided(text, read(made), tmp_path).cases
    assert case.case.figure is not None
    assert case.case.figure.processes == 6


@pytest.mark.parametrize(("effect", "regime"), [(None, None), (Effect(400.0, "dispatch", {}), Regime.FRAMEWORK_BOUND)])
def test_a_floor_proves_framework_bound_and_never_compute_bound(
    tmp_path: Path, effect: Effect | None, regime: Regime | None
) -> None:
    effects = () if effect is None else (effect,)
    every = read(make_systems(tmp_path / "results", world(*effects, rounds=4, systems=(CPU_ONLY,))))
    eager = next(one for one in every if [one.row[name] for name in ("workload", "backend", "batch")] == ONE)
    assert len(eager.loads) == 4
    assert eager.regime is regime
