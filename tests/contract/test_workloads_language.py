"""The models of text with the framework of the `cpu` environment: small ones, and the twins of three large ones."""

from pathlib import Path
from typing import Any

import pytest

from runners.contract import Status, Trial, WorkloadSpec
from tests.tasks import evaluated, named, on_one_thread, recorded

pytestmark = pytest.mark.environment

CHECKS = """
for name, options in (("albert-base", {}), ("distilbert", {"mask": "ptb"}), ("mobilebert", {})):
    full = workload(name, **options)
    twin = make_workload(replace(full.spec, workload=full.shrunk()))
    large = make_workload(replace(full.spec, workload=twin.enlarged()))
    seen["calls of " + name] = [calls(one, "sdpa") for one in (full, twin, large)]

padded = workload("tiny-bert", batch=3, sequence_length=32, mask="ptb")
model = padded.build()
tokens, mask = padded.inputs(0)
hidden, pooled = run(model, tokens, mask)
seen["lengths"] = mask.sum(1).tolist()
seen["a mask is ones, then zeros"] = bool((mask.diff(dim=1) <= 0).all())
seen["padding has the padding token"] = bool((tokens[mask == 0] == padded.row.pad_token).all())
seen["no text has the padding token"] = bool((tokens[mask == 1] != padded.row.pad_token).all())
seen["outputs of padding are zero"] = bool((hidden[mask == 0] == 0).all())
other = run(model, torch.where(mask == 0, 7, tokens), mask)
seen["padding changes nothing"] = max(float((a - b).abs().max()) for a, b in zip((hidden, pooled), other))
plain = run(model.model, tokens)
seen["the mask changes the pooled output by"] = float((plain[1] - pooled).abs().max())
fewer = workload("tiny-bert", batch=2, sequence_length=32, mask="ptb").inputs(0)
seen["rows are independent of the batch"] = all(bool((a == b[:2]).all()) for a, b in zip(fewer, (tokens, mask)))
unmasked = workload("tiny-bert", batch=3, sequence_length=32).inputs(0)[0]
seen["a text is the same with and without padding"] = bool((unmasked == tokens)[mask == 1].all())
seen["a model without mask has no wrapper"] = type(workload("tiny-bert").build()).__name__

attention = {}
for asked in (None, "sdpa", "eager"):
    for name in ("tiny-bert", "squeezebert"):
        one = workload(name, size="shrunk", sequence_length=8)
        attention["%s %s" % (name, asked)] = one.facts(one.build(asked))["attn_implementation"]
seen["attention"] = attention

one = workload("gpt2-generate", batch=2, sequence_length=8, size="shrunk", new_tokens=5)
model = one.build("sdpa")
prompt, given = one.inputs(0)
lm = model.model
scores, last = run(model, prompt, torch.full_like(given, -1))
steps = lm.generate(
    prompt,
    attention_mask=torch.ones_like(prompt),
    do_sample=False,
    min_new_tokens=5,
    max_new_tokens=5,
    eos_token_id=None,
    pad_token_id=0,
    output_logits=True,
    return_dict_in_generate=True,
).logits
expected = torch.stack([step.max(dim=-1).values for step in steps], dim=1)
seen["greedy is what transformers generates"] = float((scores - expected).abs().max())
forced_scores, forced = run(model, prompt, given)
texts = torch.cat([prompt, given], dim=1)
whole = run(lm, texts).logits
seen["a given text is scored as in one pass"] = max(
    float((forced - whole[:, -1]).abs().max()),
    float((forced_scores - whole[:, 7:].max(dim=-1).values).abs().max()),
)
seen["size of the last scores"] = float(whole[:, -1].abs().max())
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen(cpu_python: Path) -> dict[str, Any]:
    """What the checks saw."""
    facts: dict[str, Any] = evaluated(cpu_python, CHECKS)
    return facts


@pytest.mark.parametrize(("name", "more_than"), [("albert-base", 350), ("distilbert", 150), ("mobilebert", 1200)])
def test_both_twins_run_the_operators_of_the_model(seen: dict[str, Any], name: str, more_than: int) -> None:
    full, twin, large = seen["calls of " + name]
    assert full == twin == large
    assert sum(full.values()) > more_than
    assert full["aten.linear.default"] > 30


def test_padded_rows_are_texts_of_their_own_length(seen: dict[str, Any]) -> None:
    assert len(set(seen["lengths"])) > 1
    assert all(1 <= length <= 32 for length in seen["lengths"])
    assert seen["a mask is ones, then zeros"]
    assert seen["padding has the padding token"]
    assert seen["no text has the padding token"]
    assert seen["a text is the same with and without padding"]
    assert seen["rows are independent of the batch"]


def test_padding_decides_nothing(seen: dict[str, Any]) -> None:
    assert seen["outputs of padding are zero"]
    assert seen["padding changes nothing"] == 0.0
    assert seen["the mask changes the pooled output by"] > 1e-3


def test_a_model_without_mask_is_measured_without_a_wrapper(seen: dict[str, Any]) -> None:
    assert seen["a model without mask has no wrapper"] == "BertModel"


def test_the_attention_is_what_was_asked_for_or_the_models_own(seen: dict[str, Any]) -> None:
    assert seen["attention"] == {
        "tiny-bert None": "sdpa",
        "tiny-bert sdpa": "sdpa",
        "tiny-bert eager": "eager",
        "squeezebert None": "own",
        "squeezebert sdpa": "own",
        "squeezebert eager": "own",
    }


def test_generation_is_what_it_says(seen: dict[str, Any]) -> None:
    assert seen["size of the last scores"] > 0.01
    assert seen["greedy is what transformers generates"] < 1e-5
    assert seen["a given text is scored as in one pass"] < 1e-5


def test_trials_are_verified_or_say_why_not(tmp_path: Path, cpu_python: Path) -> None:
    def trial(name: str, backend: str, dtype: str = "float32", **options: Any) -> Trial:
        shape = WorkloadSpec(name, batch=2, sequence_length=8, options=options)
        return on_one_thread(shape, backend, dtype=dtype)

    small = {"size": "shrunk"}
    trials = (
        trial("gpt2-generate", "eager", new_tokens=3, **small),
        trial("gpt2-generate", "torchscript", new_tokens=3, **small),
        trial("tiny-bert", "eager", "bfloat16", mask="ptb"),
        trial("tiny-bert", "torchscript", mask="ptb"),
        trial("fnet-base", "eager", "bfloat16", **small),
        trial("bert", "eager", layers=1, hidden_size=10, heads=3),
    )
    found = recorded(tmp_path, cpu_python, *named({f"t{index}": one for index, one in enumerate(trials)}))
    records = [found[f"t{index}"] for index in range(len(trials))]
    assert [(r.status, r.reason) for r in records[:4]] == [(Status.OK, None)] * 4
    assert [r.facts["input_mask"] for r in records[:4]] == ["none", "none", "ptb", "ptb"]
    fourier, width = records[4:]
    assert fourier.status is Status.UNSUPPORTED
    assert fourier.reason == "fnet-base in bfloat16: Unsupported dtype BFloat16"
    assert width.status is Status.UNSUPPORTED
    assert width.reason == "hidden_size 10 of workload bert is no multiple of its heads, 3"
