"""The claims that are shipped, in a made-up lab: which hold, and that each fails where the world is the contrary."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.analysis.claims import Agreement, Claim, Finding, decide, load_claims
from orchestrator.report.claims import claims_markdown, render_claims
from tests.claim_systems import decided, read, world
from tests.machines import A100, CPU_ONLY, RTX_3090, V100
from tests.results import refused, taxmeter
from tests.systems import Made, make_systems
from tests.world import Effect

FAILING = {
    "frameworks-alike-at-large-batch",  # on the A100 eager still waits for the framework at 32
    "latency-constant-over-small-batches",
    "funnel-is-slower",
    *("order-of-frameworks-at-batch-1", "sm-activity-rises"),  # CUDA graphs are faster than ONNX Runtime there
}
"""Of the shipped claims in the whole made-up lab."""
UNMEASURED = {
    *("cpu-floor-order-of-the-shrunk-bert", "cpu-onnxruntime-removes-most-of-the-tax"),
    "nested-tensors-win-on-padded-batches",
    *("cuda-graphs-gain-most-at-small-batch", "warp-occupancy-rises"),
    *("torchscript-faster-at-batch-1", "onnxruntime-faster-at-batch-1"),
    *("frameworks-alike-at-large-batch-across-models", "table-1-batch", "table-1-sequence-length", "table-1-width"),
    *("bert-not-framework-bound-on-a-1080-ti", "fnet-eager-beats-bert-onnxruntime", "deeper-resnets-are-slower"),
    *("wider-resnet-is-free", "efficient-vision-models-use-the-gpu-worse", "gpt2-framework-bound-at-batch-1"),
    *("wavlm-soon-compute-bound", "macs-do-not-predict-latency", "parameters-do-not-predict-latency"),
}
"""Its workloads, options or backends are not in that lab, so that they are not decided; all others hold."""
CONTRARY = {
    "cuda-graphs-faster-at-batch-1": Effect(8.0, "busy", {"backend": "cuda_graphs"}),
    "deferred-and-static-have-less-overhead": Effect(6.0, "dispatch", {"backend": "onnxruntime"}),
    "a100-slower-than-v100-at-batch-1": Effect(0.5, "dispatch", {"host": "a100-01"}),
    "wider-is-free": Effect(1.5, "dispatch", {"hidden_size": 1536}),
    "wider-models-turn-earlier": Effect(0.2, "dispatch", {"hidden_size": 768}),
    "deeper-is-not-free": Effect(0.02, "both", {"layers": (12, 24)}),
    "depth-is-a-proxy-of-latency": Effect(0.3, "dispatch", {"layers": 24}),
    "funnel-is-slower": Effect(0.3, "dispatch", {"workload": "funnel-small"}),
    "efficient-variants-slower-at-batch-1": Effect(0.5, "both", {"workload": "squeezebert"}),
    "latency-constant-while-framework-bound": Effect(1.3, "dispatch", {"batch": 8, "backend": "eager"}),
    "dispatch-constant-over-batches": Effect(1.3, "dispatch", {"batch": 8, "backend": "eager"}),
    "overhead-dominates-small-batches": Effect(0.3, "dispatch", {"batch": 1}),
    "overhead-small-at-large-batches": Effect(60.0, "dispatch", {"batch": 128}),
    "resnet50-framework-bound-longer-than-bert": Effect(0.5, "dispatch", {"workload": "resnet50"}),
    "float16-framework-bound-longer": Effect(0.2, "busy", {"dtype": "float32"}),
    "bert-framework-bound-on-a-3090": Effect(0.1, "dispatch", {"host": "3090-01"}),
    "tax-grows-with-faster-gpus": Effect(0.4, "dispatch", {"host": "a100-01"}),
    "cpu-floor-is-small-for-bert-base": Effect(9.0, "dispatch", {"backend": "eager", "host": "epyc-01"}),
    "cpu-no-batch-is-free": Effect(0.2, "busy", {"batch": 2, "host": "epyc-01"}),
    "cpu-floor-is-less-than-half-from-one-example": Effect(80.0, "dispatch", {"backend": "eager", "host": "epyc-01"}),
}
"""What makes a claim false."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_systems(tmp_path_factory.mktemp("claims") / "whole")


@pytest.fixture(scope="module")
def shipped(project: Path) -> dict[str, Claim]:
    return load_claims([project / "claims"])


def test_what_is_not_framework_bound_does_not_refute_that_wider_is_free(
    tmp_path: Path, shipped: dict[str, Claim]
) -> None:
    slow = Effect(30.0, "busy", {"workload": "bert", "host": "v100-01"})
    every = read(make_systems(tmp_path / "results", world(slow, rounds=4, systems=(V100,))))
    found = decide(shipped["wider-is-free"], every)
    assert found.finding is Finding.NOT_ENOUGH_DATA
    assert "no configuration is proven to be framework-bound" in found.missing


def test_one_round_decides_nothing(tmp_path: Path, shipped: dict[str, Claim]) -> None:
    single = read(make_systems(tmp_path / "single", world(rounds=1, systems=(V100, A100))))
    decisions = [decide(claim, single) for claim in shipped.values()]
    # But for those whose scatter is that around a line through several processes, or that of models.
    by_rounds = [one for one in decisions if not (one.claim.growth or one.claim.rank_correlation)]
    assert {one.finding for one in by_rounds} == {Finding.NOT_ENOUGH_DATA}
    assert {one.agreement for one in by_rounds} == {None, Agreement.NOT_ENOUGH_DATA}
    assert any("no interval" in text for one in decisions for text in one.missing)


def test_the_shipped_claims_in_the_whole_lab(whole: Made, shipped: dict[str, Claim]) -> None:
    every = read(whole)
    found = {name: decide(claim, every) for name, claim in shipped.items()}
    assert {name for name, one in found.items() if one.finding is Finding.FAILS} == FAILING
    assert {name for name, one in found.items() if one.finding is Finding.NOT_ENOUGH_DATA} == UNMEASURED
    assert found["funnel-has-fewer-macs"].agreement is Agreement.INSIDE
    assert found["cuda-graphs-faster-at-batch-1"].agreement is Agreement.OUTSIDE


@pytest.mark.parametrize("name", sorted(CONTRARY))
def test_a_shipped_claim_fails_where_the_world_is_the_contrary(
    name: str, tmp_path: Path, shipped: dict[str, Claim]
) -> None:
    systems = (CPU_ONLY,) if name.startswith("cpu-") else (V100, A100)
    systems = (RTX_3090,) if name in ("bert-framework-bound-on-a-3090", "float16-framework-bound-longer") else systems
    made = make_systems(tmp_path / "results", world(CONTRARY[name], rounds=4, systems=systems))
    assert decide(shipped[name], read(made)).finding is Finding.FAILS


def test_what_cannot_run_is_left_out_and_told(whole: Made, tmp_path: Path) -> None:
    graphs = "ratio: {of: backend=cuda_graphs, against: backend=eager, within: 1.1}"
    found = decided(
        f"where: device=cuda workload=bert-base sequence_length=128 batch=128, {graphs}", read(whole), tmp_path
    )
    assert found.finding is Finding.HOLDS
    assert "CUDA out of memory" in found.left_out[0].note


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(whole: Made, shipped: dict[str, Claim], width: int) -> None:
    every = read(whole)
    out = StringIO()
    decisions = [decide(claim, every) for claim in shipped.values()]
    Console(file=out, width=width).print(render_claims(decisions, detailed=True))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    holding = len(shipped) - len(FAILING) - len(UNMEASURED)
    count = f"{len(shipped)} claims: {holding} hold, {len(FAILING)} fail, {len(UNMEASURED)} have not enough data; "
    assert count in " ".join(text.split())
    assert "Measured by: make cluster-sweep SWEEP=sweeps/paper/figure_10.yaml" in text
    short = StringIO()
    Console(file=short, width=width).print(render_claims(decisions, detailed=False))
    lists = re.findall(r"make cluster-sweep SWEEP=(\S+)\n((?: {4}.*\n)+)", short.getvalue())
    listed = {name: sweep for sweep, names in lists for name in re.findall(r"[\w-]+", names)}
    assert listed == {name: shipped[name].measured_by[0] for name in UNMEASURED}
    assert count in " ".join(short.getvalue().split())
    page = claims_markdown(decisions)
    least = (
        r"Smallest distance from a bound that 95 % intervals could have told: [\d.]+ % in the middle, [\d.]+ % at best"
    )
    assert all(re.search(least, " ".join(shown.split())) for shown in (text, short.getvalue(), page))
    assert page.count("\n## ") == len(decisions)
    assert "x1.72 inside" in page
    assert "no data" not in text


def test_the_command_and_its_exit_codes(
    whole: Made, capsys: pytest.CaptureFixture[str], in_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert "did you mean wider-is-free?" in refused(capsys, "claims", "wider-is-fre", *place)
    monkeypatch.chdir(tmp_path)
    assert "--claims PATH, or run it in the project's directory" in refused(capsys, "claims", *place)
