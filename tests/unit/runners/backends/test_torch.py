"""What the backends of torch do around torch: nothing here needs it."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from runners.backends import inductor, make_backend
from runners.backends.base import Backend
from runners.backends.eager import Eager
from runners.backends.encoder import encoder_of
from runners.backends.preparation import preparing
from runners.backends.python_calls import count_calls_of
from runners.backends.torch_compile import TorchCompile
from runners.protocol import cache
from runners.workloads import make_workload
from runners.workloads.base import Unsupported
from tests.conftest import MakeTrial


@pytest.fixture
def backend(make_trial: MakeTrial) -> Callable[..., Backend]:
    """A backend for tiny-bert that has loaded nothing."""

    def make(name: str, threads: int = 1, device: str = "cpu", batch: int = 1, **options: object) -> Backend:
        asked = {"backend": name, "options": options, "threads": threads, "device": device, "batch": batch}
        return make_backend(make_workload(make_trial("tiny-bert", sequence_length=16, **asked).spec))

    return make


# What a failure of preparation means


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("unordered_map::at"), "tracing failed: unordered_map::at"),
        (RuntimeError("\n  first\nsecond"), "tracing failed: first"),
        (AssertionError(), "tracing failed: AssertionError"),
    ],
)
def test_what_cannot_be_prepared_is_unsupported(
    error: Exception, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unsupported) as refusal, preparing("tracing"):
        raise error
    assert str(refusal.value) == reason
    assert refusal.value.__cause__ is error
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        Unsupported("as it is"),
        MemoryError(),
        ModuleNotFoundError("No module named 'triton'", name="triton"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        KeyboardInterrupt(),
    ],
)
def test_what_has_a_status_of_its_own_keeps_it(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, preparing("tracing"):
        raise error
    assert raised.value is error


# Counting calls


def inner() -> int:
    return len([1]) + len([2])


def test_calls_of_compiled_and_python_functions_are_counted() -> None:
    assert count_calls_of("len", inner) == 2
    assert count_calls_of("inner", lambda: [inner(), inner()]) == 2
    assert count_calls_of("abs", inner) == 0


def test_counting_ends_when_the_function_raises() -> None:
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError):
        count_calls_of("len", lambda: 1 / 0)
    assert sys.getprofile() is before


# torch.compile


@pytest.mark.parametrize(
    "changed",
    [{"mode": "max-autotune-no-cudagraphs"}, {"attention": "eager"}, {"threads": 2}, {"device": "cuda"}, {"batch": 2}],
)
def test_what_decides_compiled_code_decides_its_place_in_the_cache(
    backend: Callable[..., Backend], changed: dict[str, Any]
) -> None:
    plain, other, same = (
        cache.entries("/cache", backend("torch_compile", **options), "a", 8).artifact
        for options in ({}, changed, {"mode": "default"})
    )
    assert same == plain != other


@pytest.mark.parametrize(
    ("mode", "capturable"),
    [("default", True), ("max-autotune-no-cudagraphs", True), ("reduce-overhead", False), ("max-autotune", False)],
)
def test_a_mode_with_graphs_of_its_own_is_not_captured(
    backend: Callable[..., Backend], mode: str, capturable: bool
) -> None:
    assert backend("torch_compile", mode=mode).capturable is capturable
    assert TorchCompile.capturable is True


@pytest.mark.parametrize(
    ("recorded", "skips", "reasons", "problem"),
    [
        (3, 0, [], None),
        (0, 0, [], "no CUDA graph was recorded"),
        (1, 2, ["mutated inputs (1 instances)\n at line 3"], "2 graphs were skipped: mutated inputs (1 instances)"),
        (0, 1, [], "1 graphs were skipped: no reason given"),
    ],
)
def test_a_recorded_graph_is_the_proof_of_cuda_graphs_and_what_is_not_proven_is_not_reported(
    recorded: int, skips: int, reasons: list[str], problem: str | None
) -> None:
    assert inductor.graph_verdict(recorded, skips, reasons) == {
        "cuda_graphs": problem is None,
        "cuda_graphs_problem": problem,
        "cuda_graphs_recorded": recorded,
        "cudagraph_skips": skips,
    }


def test_graphs_are_counted_through_the_trees() -> None:
    leaf = SimpleNamespace(children={})
    branch = SimpleNamespace(children={7: [leaf, leaf], 8: [leaf]})
    assert inductor.recorded_graphs({1: [branch], 2: [leaf]}) == 5
    assert inductor.recorded_graphs({}) == 0


def test_reasons_are_shortened_and_never_dropped_silently() -> None:
    assert inductor.shortened([]) is None
    assert inductor.shortened(["a  b\nc"]) == "a b"
    assert inductor.shortened(["x" * 1000]) == "x" * 200
    assert inductor.shortened(list("abcde")) == "a; b; c and 2 more"


# Options that contradict each other, and models that cannot be mapped


def test_a_kernel_of_sdpa_needs_sdpa(backend: Callable[..., Backend]) -> None:
    with pytest.raises(Unsupported, match="needs attention sdpa"):
        backend("eager", attention="eager", sdpa_kernel="math").build()


class Module:
    """As much of a module as an encoder is found by."""

    def __init__(self, *parts: "Module", parameters: tuple[object, ...] = (), **settings: object) -> None:
        self.parts = parts
        self.own = parameters
        self.config = SimpleNamespace(**settings)

    def modules(self) -> list["Module"]:
        return [self, *(below for part in self.parts for below in part.modules())]

    def parameters(self) -> list[object]:
        return [*self.own, *(p for part in self.parts for p in part.parameters())]


class BertModel(Module):
    """Found by its name."""


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Module(), r"only encoders structured as BERT .*Bert, Roberta, DistilBert.*, not Module"),
        (Module(BertModel(), BertModel()), "not Module"),
        (Module(BertModel(parameters=(1,)), parameters=(2, 3)), "2 parameters outside its encoder"),
        (BertModel(hidden_act="gelu_new"), "hidden_act 'gelu_new'"),
        (BertModel(hidden_act="gelu", is_decoder=True), "is_decoder True"),
        (BertModel(hidden_act="gelu", position_embedding_type="relative_key"), "position_embedding_type"),
    ],
)
def test_what_cannot_be_mapped_exactly_is_refused(model: Module, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        encoder_of(model)


def test_a_backend_that_is_lossy_by_design_has_a_tolerance_of_its_own(backend: Callable[..., Backend]) -> None:
    lossy = backend("dynamic_int8").tolerance
    assert lossy is not None
    assert 0.05 < lossy.relative_l2 < 0.5
    assert 0.9 < lossy.min_cosine < 1
    assert Eager.tolerance is None
