"""The models of text, as far as they can be looked at without a framework."""

import random
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

import pytest

from runners.contract import TWIN_GROWTH, BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.contract.catalogue import WORKLOADS, refusal
from runners.contract.catalogue.language import WORKLOADS as TEXTS
from runners.workloads import make_workload
from runners.workloads.base import Unsupported
from runners.workloads.language import attention
from runners.workloads.language.masks import draw_length
from runners.workloads.language.models import Bert
from runners.workloads.language.text import Text

PAPER = {
    "bert-base": "bert-base-uncased",
    "bert-large": "bert-large-uncased",
    "gpt2": "gpt2",
    "roberta-base": "roberta-base",
    "deberta-base": "microsoft/deberta-base",
    "distilbert": "distilbert-base-uncased",
    "funnel-small": "funnel-transformer/small",
    "fnet-base": "google/fnet-base",
    "nystromformer-512": "uw-madison/nystromformer-512",
    "albert-base": "albert-base-v2",
    "longformer-base": "allenai/longformer-base-4096",
    "mobilebert": "google/mobilebert-uncased",
    "reformer-enwik8": "google/reformer-enwik8",
    "squeezebert": "squeezebert/squeezebert-uncased",
    "ibert-roberta-base": "kssteven/ibert-roberta-base",
}


def specification(name: str, batch: int = 1, length: int = 128, **options: Any) -> TrialSpec:
    shape = WorkloadSpec(name, batch, sequence_length=length, options=options)
    return TrialSpec(shape, BackendSpec("eager", {}), "float32", "cpu", threads=1, seed=0, protocol=Protocol())


def text(name: str, batch: int = 1, length: int = 128, **options: Any) -> Text:
    workload = make_workload(specification(name, batch, length, **options))
    assert isinstance(workload, Text)
    return workload


@pytest.mark.parametrize(("name", "checkpoint"), sorted(PAPER.items()))
def test_every_model_of_the_paper_is_there_and_says_which_checkpoint_it_is(name: str, checkpoint: str) -> None:
    assert refusal(specification(name)) is None
    assert f"`{checkpoint}`" in WORKLOADS[name].about


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_every_model_takes_the_same_kinds_of_options(name: str) -> None:
    assert {"mask", "size"} <= set(WORKLOADS[name].options)
    assert WORKLOADS[name].sequence_length is not None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (specification("fnet-base", mask="ones"), "option mask of workload fnet-base is one of none, not 'ones'"),
        (specification("gpt2-generate", mask="ptb"), "one of none"),
        (specification("gpt2-generate", new_tokens=1), "an integer from 2 to 512, not 1"),
        (specification("bert", layers=0), "option layers of workload bert is an integer from 1 to"),
        (specification("bert-base", layers=2), "workload bert-base has no option layers; known: mask, size"),
    ],
)
def test_what_a_model_does_not_take_is_refused(spec: TrialSpec, words: str) -> None:
    assert words in (refusal(spec) or "")


def test_lengths_follow_the_truncated_distribution() -> None:
    source = random.Random(1)
    lengths = [draw_length(lambda: source.gauss(0, 1), 128) for _ in range(20_000)]
    # Mean and deviation of the normal distribution (20.92, 10.18) where it is above 0.5
    assert fmean(lengths) == pytest.approx(21.47, abs=0.25)
    assert pstdev(lengths) == pytest.approx(9.59, abs=0.15)
    assert (min(lengths), max(lengths) < 70) == (1, True)


@pytest.mark.parametrize("longest", [1, 8])
def test_no_length_is_outside_the_sequence(longest: int) -> None:
    source = random.Random(2)
    lengths = {draw_length(lambda: source.gauss(0, 1), longest) for _ in range(500)}
    assert lengths == set(range(1, longest + 1))


@pytest.mark.parametrize(
    ("name", "length", "expected"),
    [
        ("bert-base", 128, 8),
        ("bert-base", 4, 4),
        # A quarter of a window, filled up; a whole one; one and a part; two
        *(("longformer-base", length, twin) for length, twin in ((128, 4), (512, 8), (600, 12), (1024, 16))),
        # One chunk; two of which the second is filled up; two
        *(("reformer-enwik8", length, twin) for length, twin in ((2, 2), (128, 4), (129, 6), (255, 6), (256, 8))),
    ],
)
def test_a_twin_takes_the_path_of_the_full_length(name: str, length: int, expected: int) -> None:
    assert text(name, length=length).shrunk().sequence_length == expected


@pytest.mark.parametrize(
    ("name", "of_one", "of_many"), [("bert-base", 1, 1), ("squeezebert", 2, 2), ("reformer-enwik8", 1, 32)]
)
def test_a_twin_has_the_rows_that_its_operators_depend_on(name: str, of_one: int, of_many: int) -> None:
    assert text(name).shrunk().batch == of_one
    assert text(name, batch=32).shrunk().batch == of_many


@pytest.mark.parametrize(("backend", "of_many"), [("torch_compile", 1), ("onnxruntime", 2), ("openvino", 2)])
def test_runtimes_that_simplify_a_lone_row_have_two_in_the_twin_of_a_batch(backend: str, of_many: int) -> None:
    spec = specification("bert-base", 8)
    batch = make_workload(replace(spec, backend=BackendSpec(backend, {})))
    one = make_workload(replace(spec, backend=BackendSpec(backend, {}), workload=replace(spec.workload, batch=1)))
    assert (one.shrunk().batch, batch.shrunk().batch) == (1, of_many)


@pytest.mark.parametrize(
    ("name", "backend", "batch", "mask", "expected"),
    [
        ("bert-base", "eager", 1, "none", (4, 8)),
        ("bert-base", "eager", 1, "ptb", (1, 32)),
        ("bert-base", "eager", 8, "ptb", (8, 8)),
        ("bert-base", "onnxruntime", 1, "none", (1, 32)),
        ("bert-base", "onnxruntime", 8, "none", (8, 8)),
        ("squeezebert", "torchscript", 1, "none", (8, 8)),
    ],
)
def test_the_large_twin_has_four_times_the_tokens(
    name: str, backend: str, batch: int, mask: str, expected: tuple[int, int]
) -> None:
    full = text(name, batch=batch, mask=mask)
    spec = replace(full.spec, backend=BackendSpec(backend, {}))
    small = make_workload(replace(spec, workload=make_workload(spec).shrunk()))
    large = small.enlarged()
    assert (large.batch, large.sequence_length) == expected
    assert large.batch * large.sequence_length == TWIN_GROWTH * small.spec.workload.batch * 8


def test_the_twin_of_a_masked_batch_is_a_batch() -> None:
    assert text("bert-base", mask="ptb").shrunk().batch == 1
    assert text("bert-base", batch=32, mask="ptb").shrunk().batch == 2


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_twin_differs_in_widths_alone(name: str) -> None:
    full = text(name, mask="none")
    small = make_workload(TrialSpec(**{**vars(full.spec), "workload": full.shrunk()}))
    assert isinstance(small, Text)
    assert small.is_shrunk
    assert not full.is_shrunk
    changed = {key for key, value in small.settings().items() if full.settings().get(key) != value}
    kept = {"num_hidden_layers", "num_attention_heads", "n_layer", "n_head", "block_sizes", "attn_layers", "is_decoder"}
    assert "vocab_size" in changed
    assert not changed & kept


def bert(**options: Any) -> Bert:
    workload = text("bert", **options)
    assert isinstance(workload, Bert)
    return workload


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (12, 768, 12, 3072)),
        ({"hidden_size": 1536}, (12, 1536, 12, 6144)),
        ({"layers": 3, "hidden_size": 64, "heads": 4, "intermediate_size": 100}, (3, 64, 4, 100)),
        ({"layers": 3, "heads": 4, "size": "shrunk"}, (3, 8, 4, 32)),
    ],
)
def test_bert_has_the_shape_that_is_asked_for(options: dict[str, Any], expected: tuple[int, ...]) -> None:
    keys = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    assert tuple(bert(**options).settings()[key] for key in keys) == expected


@pytest.mark.parametrize(
    ("name", "length", "words"),
    [
        ("bert-base", 513, "bert-base has positions for 512 tokens, not for 513"),
        ("nystromformer-512", 512, "for 510 tokens"),
        ("reformer-enwik8", 257, "for 256 tokens"),
        ("gpt2-generate", 1009, "not for a prompt of 1009 and 16 new ones"),
    ],
)
def test_a_text_that_is_too_long_is_unsupported(name: str, length: int, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        text(name, length=length).construct(None)
    assert words in (refusal(specification(name, length=length)) or "")


class WithChoice:
    _supports_sdpa = True


class BeforeTheChoice:
    pass


@pytest.mark.parametrize("asked", [None, "sdpa", "eager"])
def test_a_model_from_before_the_choice_runs_its_own(asked: str | None) -> None:
    assert attention.choose(BeforeTheChoice, asked) is None
    assert attention.chosen(BeforeTheChoice, config=None) == "own"


def test_sdpa_without_torchs_operator_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_torch_has_sdpa", lambda: False)
    with pytest.raises(Unsupported, match="WithChoice with SDPA: this torch has no scaled_dot_product_attention"):
        attention.choose(WithChoice, None)
    assert attention.choose(WithChoice, "eager") == "eager"
