"""Claims on made-up systems: each kind of statistic holds, fails and is not decided, as the world was made."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.analysis.axes import axis
from orchestrator.analysis.claims import Agreement, Finding, configurations, decide, load_claims
from orchestrator.analysis.claims.configurations import Configuration, alike
from orchestrator.report.claims import claims_document, claims_markdown
from tests.claim_systems import decided, of_eager_bert, read, world
from tests.machines import A100, CPU_ONLY, RTX_2080_TI, RTX_3090, RTX_8000, V100
from tests.systems import make_systems
from tests.world import spec, transition_batch

HOLDS, FAILS, UNDECIDED = Finding
INSIDE, OUTSIDE, UNKNOWN = Agreement


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Configuration]:
    systems = (V100, A100, RTX_3090, RTX_8000, RTX_2080_TI, CPU_ONLY)
    return read(make_systems(tmp_path_factory.mktemp("claims") / "small", world(systems=systems)))


def with_values(one: Configuration, **values: object) -> Configuration:
    return replace(one, rows=tuple({**row, **values} for row in one.rows))


BERT = "device=cuda workload=bert-base dtype=float16 sequence_length=128"
EAGER = f"where: {BERT} backend=eager"
FIRST = f"where: {BERT} batch=1"
DEPTHS = "where: workload=bert hidden_size=768 batch=1 device=cuda"
_NAMES = "bert-base,bert,funnel-small,squeezebert,mobilebert,distilbert"
MODELS = f'where: "workload={_NAMES} batch=1 device=cuda dtype=float16'
RANKS = f'{MODELS} backend=eager", rank_correlation: {{x: latency_sync, y: latency_pipelined'
TREND = "trend: {over: gpu"
GAIN = "ratio: {of: backend=cuda_graphs, against: backend=eager, at: batch=1, than: batch=128"
DEPTH_EXPONENT = 0.9869
"""Of 2 + 24 · layers operators for 3, 6, 12 and 24 layers."""
V100_BATCH = transition_batch(V100, spec("bert-base", 1))


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (f"{FIRST}, ratio: {{of: backend=torchscript, against: backend=eager, above: 1.5}}", HOLDS),
        (f"{FIRST}, ratio: {{of: backend=torchscript, against: backend=eager, above: 1.9}}", FAILS),
        (f"{FIRST}, ratio: {{of: backend=torchscript, against: backend=eager, above: 1.69}}", UNDECIDED),
        (f"{FIRST}, ratio: {{of: backend=openvino, against: backend=eager, above: 1}}", UNDECIDED),
        (f"where: {BERT} gpu=V100, {GAIN}, above: 4}}", HOLDS),
        (f"where: {BERT} gpu=V100, {GAIN}, below: 4}}", FAILS),
        (f"where: {BERT} batch=1, {GAIN}, above: 1}}", UNDECIDED),
        (f"{EAGER} batch<=8, flat: {{along: batch, within: 1.1}}", HOLDS),
        (f"{EAGER}, flat: {{along: batch, within: 1.1}}", FAILS),
        (f"{EAGER} batch<=2, flat: {{along: batch, within: 1.1}}", UNDECIDED),
        (f"{DEPTHS}, growth: {{along: layers, above: 0.9, below: 1.1}}", HOLDS),
        (f"{DEPTHS}, growth: {{along: layers, below: 0.9}}", FAILS),
        (f"{DEPTHS}, growth: {{along: heads, above: 0.9}}", UNDECIDED),
        (f"{RANKS}, at_least: 6, above: 0.2}}", HOLDS),
        (f"{RANKS}, below: -0.5}}", FAILS),
        (f"{RANKS}, above: 0.9}}", UNDECIDED),
        (f"{RANKS}, at_least: 7, above: 0.2}}", UNDECIDED),
        (f"{EAGER}, {TREND}, above: 0.5}}", HOLDS),
        (f"{EAGER}, {TREND}, below: 0.5}}", FAILS),
        (f"{EAGER} gpu~*RTX*, {TREND}, above: 0}}", UNDECIDED),
        (f"{EAGER} gpu=V100, transition: {{above: 15, below: 40}}", HOLDS),
        (f"{EAGER} gpu=V100, transition: {{above: 40}}", FAILS),
        (f"{EAGER} batch=1, transition: {{above: 4}}", UNDECIDED),
        # Beyond the measured batches the side is known.
        (f"{EAGER} gpu=A100 batch<=32, transition: {{above: 30}}", HOLDS),
        (f"{EAGER} gpu=V100 batch>=32, transition: {{above: 32}}", FAILS),
        (f"{EAGER}, transition: {{of: gpu=A100, against: gpu=V100, above: 2}}", HOLDS),
        (f"{EAGER}, transition: {{of: gpu=A100, against: gpu=V100, below: 2}}", FAILS),
        (f"{EAGER}, transition: {{of: gpu=A100, against: gpu=H100, below: 2}}", UNDECIDED),
        (f"{FIRST}, ordering: {{along: backend, order: [onnxruntime, torchscript, eager]}}", HOLDS),
        (f"{FIRST}, ordering: {{along: backend, order: [onnxruntime, eager, torchscript]}}", FAILS),
        (f"{FIRST}, ordering: {{along: backend, order: [onnxruntime, tensorrt, eager]}}", UNDECIDED),
        (f"{EAGER} batch=1, level: {{metric: boundedness, above: 1.1}}", HOLDS),
        (f"{EAGER} batch=1, level: {{metric: boundedness, below: 1.1}}", FAILS),
        (f"{EAGER} batch=1, level: {{metric: latency_legacy, below: 1}}", UNDECIDED),
    ],
)
def test_each_statistic_has_all_three_verdicts(
    small: list[Configuration], tmp_path: Path, text: str, finding: Finding
) -> None:
    found = decided(text, small, tmp_path)
    assert (found.finding, found.agreement) == (finding, None)
    if finding is UNDECIDED:
        assert found.missing


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (f"{FIRST}, ratio: {{of: backend=torchscript, against: backend=eager, above: 1}}", 1.7, 1.5),
        (f"{EAGER} batch<=8, flat: {{along: batch, within: 1.1}}", 1.0, 1.05),
        (f"{DEPTHS}, growth: {{along: layers, above: 0}}", DEPTH_EXPONENT, 0.9),
        (f"{RANKS}, above: 0}}", 1.0, 0.0),
        (f"{EAGER}, {TREND}, above: 0}}", 1.0, 0.2),
        (f"{EAGER} gpu=V100, transition: {{above: 1}}", V100_BATCH, 16.0),
        (f"{EAGER} gpu=V100 batch>=32, transition: {{above: 1}}", 20.0, 40.0),
        (f"{FIRST}, ordering: {{along: backend, order: [torchscript, eager]}}", [1, 1.7], [1, 1.5]),
        (f"{EAGER} batch=1 gpu=V100, level: {{metric: dispatch, above: 0}}", 0.00986, 0.0093),
    ],
)
def test_a_published_value_lies_inside_or_outside(
    small: list[Configuration], tmp_path: Path, text: str, inside: object, outside: object
) -> None:
    """Which says nothing of the direction, and the direction nothing of it."""
    found = [decided(f"published: {value}, {text}", small, tmp_path) for value in (inside, outside)]
    assert [one.agreement for one in found] == [INSIDE, OUTSIDE]
    assert found[0].finding is found[1].finding is decided(text, small, tmp_path).finding
    nothing = decided(f"published: {inside}, {text.replace('workload=', 'batch=77 workload=')}", small, tmp_path)
    assert (nothing.finding, nothing.agreement) == (UNDECIDED, UNKNOWN)


def test_what_else_is_in_the_store_changes_no_answer(small: list[Configuration], tmp_path: Path, project: Path) -> None:
    """Other workloads in other campaigns: the same cases, numbers and verdicts to the last digit."""
    shipped = load_claims([project / "claims"])
    others = {"bert-base": "roberta-base", "bert": "albert-base", "resnet50": "densenet161"}
    rows = [row for one in small for row in one.rows]
    renamed = [
        {
            **row,
            "workload": others.get(row["workload"], "tiny-bert"),
            "campaign_id": "other",
            "trial_id": f"other-{row['trial_id']}",
        }
        for row in rows
    ]
    changed = [{**row, "latency_pipelined_median_s": 9.0, "boundedness": 0.5} for row in renamed]
    ours, all_of_it = configurations(rows), configurations([*changed, *rows])
    unnamed = {name for name, claim in shipped.items() if "albert-base" in str(claim.where)}
    assert len(all_of_it) > len(ours)
    for name in shipped.keys() - unnamed:
        assert decide(shipped[name], ours) == decide(shipped[name], all_of_it), name
    mean = f"{FIRST}, ratio: {{of: backend=torchscript, against: backend=eager, mean_over: workload, above: 1}}"
    assert decided(mean, ours, tmp_path) == decided(mean, all_of_it, tmp_path)


def test_a_series_along_an_option_keeps_the_other_options(small: list[Configuration]) -> None:
    here = [one for one in small if one.row["workload"] == "bert" and one.row["batch"] == 1]
    depths = alike([one for one in here if one.row["gpu_name"] == "Quadro RTX 8000"], [axis("layers")])
    # Four depths at the usual width, and each other width by itself.
    assert sorted(map(len, depths)) == [1, 1, 1, 4]


@pytest.mark.parametrize("any_or_all", ["any", "all"])
def test_one_case_is_enough_where_it_says_so(small: list[Configuration], tmp_path: Path, any_or_all: str) -> None:
    text = f"{EAGER} batch=32, holds_for: {any_or_all}, published: 1.87, level: {{metric: boundedness, above: 1.1}}"
    expected = (HOLDS, INSIDE) if any_or_all == "any" else (FAILS, OUTSIDE)
    found = decided(text, small, tmp_path)
    assert (found.finding, found.agreement) == expected


@pytest.mark.parametrize("mean", ["", "mean_over: [workload], "])
def test_what_meets_several_makes_a_case_with_each(small: list[Configuration], tmp_path: Path, mean: str) -> None:
    ratio = f'ratio: {{of: backend=cuda_graphs, against: "backend=eager,onnxruntime", {mean}above: 2}}'
    text = f"where: {BERT} batch=1 gpu=V100, "
    found = {one.case.label: one.case.figure for one in decided(text + ratio, small, tmp_path).cases}
    assert set(found) == {"against backend=eager", "against backend=onnxruntime"}
    for label, figure in found.items():
        alone = f"{text}ratio: {{of: backend=cuda_graphs, {label.replace(' ', ': ')}, above: 2}}"
        (expected,) = decided(alone, small, tmp_path).cases
        assert figure is not None
        assert expected.case.figure is not None
        assert figure.low == pytest.approx(expected.case.figure.low)
        assert figure.processes == expected.case.figure.processes == 5


def test_a_mean_holds_each_pair_once_and_needs_all_that_are_named(small: list[Configuration], tmp_path: Path) -> None:
    where = 'where: "workload=bert-base,resnet50 dtype=float16 sequence_length=128,none gpu=V100 batch=1"'
    ratio = "ratio: {of: backend=onnxruntime, against: backend=eager, mean_over: workload, above: 2}"
    (mean,) = decided(f"{where}, {ratio}", small, tmp_path).cases
    singles = decided(f"{where}, {ratio.replace('mean_over: workload, ', '')}", small, tmp_path).cases
    values = [one.case.figure.value for one in singles if one.case.figure and one.case.figure.value]
    assert len(values) == 2
    assert mean.case.figure is not None
    assert mean.case.figure.value == pytest.approx(math.prod(values) ** 0.5)
    assert (mean.finding, mean.case.note) == (HOLDS, "mean of 2")
    # Where one of them was measured in one of the backends alone, too.
    half = [one for one in small if (one.row["workload"], one.row["backend"]) != ("resnet50", "onnxruntime")]
    assert decided(f"{where}, {ratio}", half, tmp_path).finding is UNDECIDED
    missing = decided(f"{where.replace('resnet50', 'resnet50,vgg16')}, {ratio}", small, tmp_path)
    assert missing.finding is UNDECIDED
    assert "no trial has workload=vgg16" in missing.missing


def test_one_measurement_is_one_case(small: list[Configuration], tmp_path: Path) -> None:
    """The floor is measured once for all shapes, and stands in the trials of each."""
    text = "where: device=cpu workload=bert-base batch=1, "
    floors = text + "ratio: {of: backend=onnxruntime, against: backend=eager, metric: floor, above: 1}"
    levels = text + "level: {metric: floor, below: 1}"
    here = [one for one in small if one.device == "cpu" and one.row["workload"] == "bert-base"]
    longer = [with_values(one, sequence_length=512) for one in here]
    (alone,), (once,) = (decided(floors, every, tmp_path).cases for every in (here, [*here, *longer]))
    assert once.case.figure == alone.case.figure
    assert (once.finding, once.case.figure and once.case.figure.low) == (UNDECIDED, None)
    assert once.case.note == "measured once for sequence_length=128 and sequence_length=512"
    assert len(decided(levels, here, tmp_path).cases) == len(decided(levels, [*here, *longer], tmp_path).cases)
    # What is measured for one of them alone has a name of its own.
    eager = of_eager_bert(here)
    failed = with_values(eager, sequence_length=64, status="failed")
    names = [one.case.label for one in decided(levels, [*here, *longer, failed], tmp_path).cases]
    assert len(set(names)) == len(names)
    # Their latencies are measured for each.
    shifted = [with_values(one, latency_sync_median_s=4.0) for one in longer]
    assert len(decided(floors.replace("metric: floor, ", ""), [*here, *shifted], tmp_path).cases) == 2


def test_a_value_that_is_not_above_0_is_not_left_out(small: list[Configuration], tmp_path: Path) -> None:
    """Where noise makes an overhead negative, the other processes alone would be those with more of it."""
    here = [one for one in small if one.row["dtype"] == "float16"]
    first = of_eager_bert(here)
    odd = replace(first, rows=({**first.rows[0], "exposed_overhead_s": -1e-6}, *first.rows[1:]))
    every = [odd if one is first else one for one in here]
    ratio = "ratio: {of: backend=torchscript, against: backend=eager, metric: overhead, above: 1}"
    found = decided(f"where: {BERT} batch=1, {ratio}", every, tmp_path)
    assert found.finding is UNDECIDED
    assert [one.case.note for one in found.cases if one.case.figure is None] == ["not above 0 in 1 of 10 processes"]


def test_a_word_does_not_stand_for_another_workload(small: list[Configuration], tmp_path: Path) -> None:
    without = [one for one in small if one.row["workload"] != "bert"]
    found = decided("where: workload=bert, level: {metric: boundedness, above: 0}", without, tmp_path)
    assert found.missing == ("no trial has workload=bert",)


def test_numbers_have_units(small: list[Configuration], tmp_path: Path) -> None:
    text = f"{EAGER} batch=1 gpu=V100, level: {{metric: latency_pipelined, below: 0.02}}"
    figure = decided(text, small, tmp_path).cases[0].case.figure
    assert figure is not None
    level = decided(f"published: {figure.value:.4f}, {text}", small, tmp_path)
    page = claims_markdown([level])
    assert re.search(r"\| 9\.\d+ ms \[9\.\d+, [\d.]+\] \| below 0\.02 s \|", page)
    assert "latency_pipelined must be below 0.02 s in all cases" in page
    (document,) = claims_document([level])
    published = float(f"{figure.value:.4f}")
    assert (document["kind"], document["published"], document["agreement"]) == ("level", published, "inside")
    cases = [(one["metric"], one["unit"], one["agreement"]) for one in document["cases"]]
    assert cases == [("latency_pipelined", "s", "inside")]
    ratio = f"{FIRST}, ratio: {{of: backend=torchscript, against: backend=eager, above: 1}}"
    kinds = {
        ratio: ("ratio", "latency_pipelined", "1"),
        "where: workload=bert device=cpu, growth: {along: layers, metric: floor, above: 0}": ("exponent", "floor", "1"),
        f"{EAGER}, transition: {{above: 1}}": ("level", "transition_batch", "examples"),
        f"{EAGER}, transition: {{of: gpu=A100, against: gpu=V100, above: 1}}": ("ratio", "transition_batch", "1"),
        f"{RANKS}, above: 0}}": ("rank correlation", "latency_pipelined", "1"),
    }
    for text, (kind, metric, unit) in kinds.items():
        (document,) = claims_document([decided(text, small, tmp_path)])
        assert (document["kind"], document["agreement"]) == (kind, None)
        assert {(one["metric"], one["unit"]) for one in document["cases"]} == {(metric, unit)}


def test_campaigns_are_pooled_where_the_system_is_the_same(tmp_path: Path) -> None:
    made = make_systems(tmp_path / "results", replace(world(systems=(V100,)), updated=(V100,), rounds=3))
    (case,) = decided(f"{EAGER} batch=1, level: {{metric: boundedness, above: 1.1}}", read(made), tmp_path).cases
    assert case.case.figure is not None
    assert case.case.figure.processes == 6
