"""The backends of torch run for real on a tiny model, through `python -m runners`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from runners.contract import Protocol, Status, Trial, TrialRecord, WorkloadSpec
from runners.contract.spec import OptionValue
from tests.contract.conftest import facts_of
from tests.tasks import BRIEF, evaluated, named, on_one_thread, recorded

QUICK = replace(BRIEF, sync_budget_ms=20, pipelined_budget_ms=20, pipelined_min_samples=2, pipelined_block_ms=5)
WITH_FLOOR = replace(QUICK, floor_budget_ms=20)
PADDED = {"mask": "ptb"}
SMALL = {"size": "shrunk"}
LAYERS = 2
WITHOUT_LENGTH = ("wavlm-base",)

pytestmark = pytest.mark.environment

Options = Mapping[str, OptionValue]


def trial(
    backend: str,
    options: Options | None = None,
    inputs: Options | None = None,
    workload: str = "tiny-bert",
    protocol: Protocol = QUICK,
) -> Trial:
    shape = WorkloadSpec(workload, 3, None if workload in WITHOUT_LENGTH else 40, options=dict(inputs or {}))
    return on_one_thread(shape, backend, options, protocol=protocol)


TRIALS = {
    "eager": trial("eager", protocol=WITH_FLOOR),
    "eager-math": trial("eager", {"sdpa_kernel": "math"}),
    "eager-flash": trial("eager", {"sdpa_kernel": "flash"}),
    "eager-efficient": trial("eager", {"sdpa_kernel": "efficient"}),
    "eager-spin": trial("eager", {"spin_us": 20_000}),
    "eager-math-nothing": trial("eager", {"sdpa_kernel": "math"}, workload="op-layernorm"),
    "torchscript": trial("torchscript", protocol=WITH_FLOOR),
    "torchscript-optimized": trial("torchscript", {"optimize_for_inference": True}),
    "torchscript-contradiction": trial("torchscript", {"optimize_for_inference": True, "freeze": False}),
    "nested-dense": trial("sdpa_nested"),
    "nested-packed": trial("sdpa_nested", inputs=PADDED),
    "nested-distilbert": trial("sdpa_nested", inputs={**PADDED, **SMALL}, workload="distilbert"),
    "nested-albert": trial("sdpa_nested", inputs=SMALL, workload="albert-base"),
    "fastpath-dense": trial("fastpath", protocol=WITH_FLOOR),
    "fastpath-nested": trial("fastpath", inputs=PADDED),
    "fastpath-padded": trial("fastpath", {"nested": False}, PADDED),
    "fastpath-distilbert": trial("fastpath", inputs={**PADDED, **SMALL}, workload="distilbert"),
    "int8": trial("dynamic_int8"),
    "int8-nothing": trial("dynamic_int8", workload="op-layernorm"),
    "int8-weights-read": trial("dynamic_int8", inputs=SMALL, workload="wavlm-base"),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, cpu_python: Path) -> dict[str, TrialRecord]:
    """What became of each trial of the table above."""
    return recorded(tmp_path_factory.mktemp("backends"), cpu_python, *named(TRIALS))


REFUSED = {
    "eager-efficient": "SDPA with the kernel efficient alone failed: ",
    "eager-math-nothing": "there is no kernel to choose",
    "torchscript-contradiction": "it needs freeze true",
    "nested-albert": "only encoders structured as BERT can be mapped exactly",
    "int8-nothing": "nothing is quantised",
    "int8-weights-read": "a call of the quantised model failed: expected Tensor",
}


@pytest.mark.parametrize("name", sorted(TRIALS.keys() - REFUSED.keys()))
def test_a_backend_computes_what_eager_computes(records: dict[str, TrialRecord], name: str) -> None:
    assert facts_of(records[name])


@pytest.mark.parametrize(("name", "reason"), sorted(REFUSED.items()))
def test_what_cannot_be_served_says_why(records: dict[str, TrialRecord], name: str, reason: str) -> None:
    assert records[name].status is Status.UNSUPPORTED
    assert reason in (records[name].reason or "")


def test_a_pinned_kernel_is_the_one_that_runs(records: dict[str, TrialRecord]) -> None:
    used = {name: str(records[name].facts["attention_operators"]) for name in ("eager", "eager-math", "eager-flash")}
    assert used["eager-math"] == f"_scaled_dot_product_attention_math x{LAYERS}"
    assert used["eager-flash"].startswith("_scaled_dot_product_flash_attention")
    assert used["eager-flash"].endswith(f" x{LAYERS}")
    assert [records[name].facts["sdpa_kernel"] for name in used] == ["auto", "math", "flash"]


def test_tokens_are_packed_only_where_some_are_padding(records: dict[str, TrialRecord]) -> None:
    assert records["nested-dense"].facts["packed"] is False
    assert records["nested-packed"].facts["packed"] is True
    # What depends on the sequences proves no structure
    assert records["nested-packed"].facts["operations"] is None
    assert int(str(records["nested-dense"].facts["operations"])) > 0


def test_the_fast_path_was_taken_for_every_layer(records: dict[str, TrialRecord]) -> None:
    seen = {name: record.facts for name, record in records.items() if name.startswith("fastpath")}
    assert {name: facts["fastpath_nested"] for name, facts in seen.items()} == {
        "fastpath-dense": False,
        "fastpath-nested": True,
        "fastpath-padded": False,
        "fastpath-distilbert": True,
    }
    assert {facts["fastpath_layers"] for name, facts in seen.items() if "distilbert" not in name} == {LAYERS}
    assert seen["fastpath-distilbert"]["fastpath_layers"] == 6
    fused, plain = seen["fastpath-dense"]["operations"], records["eager"].facts["operations"]
    assert isinstance(fused, int)
    assert isinstance(plain, int)
    assert fused < plain


def test_quantised_layers_are_counted_and_cost_accuracy(records: dict[str, TrialRecord]) -> None:
    record = records["int8"]
    # Six in each layer, and the pooler
    assert record.facts["quantized_modules"] == 6 * LAYERS + 1
    assert isinstance(record.facts["quantized_weight_share"], float)
    assert 0 < record.facts["quantized_weight_share"] < 1
    assert record.facts["quantization_engine"] not in (None, "none")
    assert record.verification is not None
    assert record.verification.relative_l2 > 1e-4


@pytest.mark.parametrize("name", ["eager", "torchscript", "fastpath-dense"])
def test_the_twin_of_a_backend_has_its_structure(records: dict[str, TrialRecord], name: str) -> None:
    facts = records[name].facts
    assert facts["floor_alike"] is True
    assert facts["floor_operations"] == facts["operations"]
    assert "aten.linear.default" in str(facts["operations_by_name"])


@pytest.fixture(scope="module")
def compile_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the task below runs."""
    return tmp_path_factory.mktemp("compile")


@pytest.fixture(scope="module")
def compiled(compile_directory: Path, cpu_python: Path) -> dict[str, TrialRecord]:
    """One compilation, found again by a second trial; and the modes that a CPU cannot keep their promise of."""
    trials = {
        "first": trial("torch_compile"),
        "second": trial("torch_compile"),
        "reduce-overhead": trial("torch_compile", {"mode": "reduce-overhead"}),
        "max-autotune": trial("torch_compile", {"mode": "max-autotune"}),
    }
    return recorded(compile_directory, cpu_python, *named(trials), cache=compile_directory / "cache")


def test_what_is_measured_is_a_warm_compilation(compiled: dict[str, TrialRecord]) -> None:
    for name in ("first", "second"):
        facts = facts_of(compiled[name])
        assert (facts["fxgraph_cache_hits"], facts["fxgraph_cache_misses"]) == (1, 0)
    first, second = compiled["first"], compiled["second"]
    assert (first.phases.artifact_cache, second.phases.artifact_cache) == ("miss", "hit")
    assert first.phases.artifact_s is not None
    assert second.phases.artifact_s is None
    assert first.facts["artifact_bytes"] == second.facts["artifact_bytes"]


def test_the_headers_that_compiled_code_needs_stay_with_the_cache(
    compiled: dict[str, TrialRecord], compile_directory: Path
) -> None:
    assert list((compile_directory / "cache" / "inductor-headers").glob("*.gch"))
    # Complete entries alone: what was not published is gone
    assert not list((compile_directory / "cache").glob(".partial-*"))


def test_a_compiled_model_tells_how_it_was_compiled(compiled: dict[str, TrialRecord]) -> None:
    facts = compiled["first"].facts
    expected = {
        "dynamo_graphs": 1,
        "graph_breaks": 0,
        "graph_break_reasons": None,
        "recompiles": 0,
        "recompile_reasons": None,
        "compiled_after_verification": 0,
    }
    assert {name: facts[name] for name in expected} == expected
    # Per layer six linear maps, attention, and three fused kernels; one for the embeddings, two for the pooler
    assert facts["operations"] == 10 * LAYERS + 3


@pytest.fixture(scope="module")
def ahead(tmp_path_factory: pytest.TempPathFactory, cpu_python: Path) -> dict[str, TrialRecord]:
    """A library of a model, and what is compiled with weights as constants."""
    trials = {
        "library": trial("aot_inductor"),
        "library-freezing": trial("aot_inductor", {"freezing": True}, workload="op-layernorm"),
        "compile-freezing": trial("torch_compile", {"freezing": True}, workload="op-layernorm"),
    }
    return recorded(tmp_path_factory.mktemp("ahead"), cpu_python, *named(trials))


@pytest.mark.parametrize("name", ["library", "library-freezing", "compile-freezing"])
def test_what_is_compiled_ahead_of_time_computes_the_same(ahead: dict[str, TrialRecord], name: str) -> None:
    assert facts_of(ahead[name])
    assert ahead[name].phases.artifact_s is not None


def test_what_a_library_calls_is_counted_in_its_source(ahead: dict[str, TrialRecord]) -> None:
    # As torch_compile, but for how the ends of the model are fused
    assert ahead["library"].facts["operations"] == 10 * LAYERS + 5


@pytest.mark.parametrize(
    ("mode", "instead"), [("reduce-overhead", "default"), ("max-autotune", "max-autotune-no-cudagraphs")]
)
def test_a_mode_that_promises_cuda_graphs_is_refused_on_a_cpu(
    compiled: dict[str, TrialRecord], mode: str, instead: str
) -> None:
    assert compiled[mode].status is Status.UNSUPPORTED
    assert compiled[mode].reason == f"mode {mode} promises CUDA graphs, which a CPU does not have; use {instead}"


DYNAMO = """

from runners.backends import inductor

@torch.compile(backend="eager", dynamic=False)
def broken(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2

broken(torch.ones(3))
first, attempts = inductor.compile_facts(), inductor.attempts()
broken(torch.ones(3))
same = inductor.attempts()
broken(torch.ones(4))
print(json.dumps([first, inductor.compile_facts(), attempts, same, inductor.attempts()]))
"""


def test_graph_breaks_and_recompilations_are_counted(cpu_python: Path) -> None:
    first, last, attempts, same, more = evaluated(cpu_python, DYNAMO)
    assert (first["dynamo_graphs"], first["graph_breaks"], first["recompiles"]) == (2, 1, 0)
    assert "graph_break" in first["graph_break_reasons"]
    assert first["recompile_reasons"] is None
    # Both halves were made for three elements
    assert (last["dynamo_graphs"], last["recompiles"]) == (4, 2)
    assert "size mismatch" in last["recompile_reasons"]
    assert attempts == same < more
