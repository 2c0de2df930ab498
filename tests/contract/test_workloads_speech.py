"""The recognisers of speech with the libraries of the `cpu` environment: their sizes, and the twins of all four."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.contract import Status, WorkloadSpec
from tests.tasks import BRIEF, evaluated, on_one_thread, recorded

pytestmark = pytest.mark.environment

NAMES = ("speecht5-asr", "hubert-large", "wav2vec2-base", "wavlm-base")
CHECKS = """
from runners.workloads.construction import of_transformers

for name in %(names)r:
    full = workload(name)
    config = of_transformers(full.row.architecture, "Config")(**full.settings())
    with torch.device("meta"):
        model = of_transformers(full.row.architecture, full.row.head)(config)
    small = workload(name, size="shrunk", audio_samples=2000)
    twin = workload(name, batch=small.shrunk().batch, **small.shrunk().options)
    network = small.build()
    first, second = (run(network, *small.inputs(index)) for index in (0, 1))
    seen[name] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "shapes": [list(output.shape) for output in first],
        "finite": all(bool(output.isfinite().all()) for output in first),
        "again": all(torch.equal(a, b) for a, b in zip(first, run(network, *small.inputs(0)))),
        "apart": min(float((a - b).norm() / a.norm()) for a, b in zip(first, second)),
        "calls": [calls(small), calls(twin), calls(make_workload(replace(twin.spec, workload=twin.enlarged())))],
        "frames": small.facts(network)["audio_frames"],
        "attention": small.facts(network)["attn_implementation"],
    }
one = workload("speecht5-asr", batch=40, size="shrunk", audio_samples=400)
seen["tokens"] = sorted(set(one.inputs(0)[1].flatten().tolist()))
model = one.build()
sound, tokens = one.inputs(0)
with torch.inference_mode():
    changed = model(sound, torch.full_like(tokens, 7))[0]
seen["the token counts"] = float((changed - run(model, sound, tokens)[0]).abs().max())
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen(cpu_python: Path) -> dict[str, Any]:
    """What the checks saw."""
    facts: dict[str, Any] = evaluated(cpu_python, CHECKS % {"names": NAMES})
    return facts


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("speecht5-asr", 151_000_000),
        ("hubert-large", 315_000_000),
        ("wav2vec2-base", 94_400_000),
        ("wavlm-base", 94_400_000),
    ],
)
def test_every_model_is_as_large_as_its_checkpoint(seen: dict[str, Any], name: str, parameters: int) -> None:
    assert seen[name]["parameters"] == pytest.approx(parameters, rel=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_finite_repeatable_and_depend_on_the_sound(seen: dict[str, Any], name: str) -> None:
    one = seen[name]
    assert one["finite"]
    assert one["again"]
    assert one["apart"] > 0.05
    assert one["frames"] == 6
    assert one["shapes"] == ([[1, 1, 81], [1, 6, 48]] if name == "speecht5-asr" else [[1, 6, 32]])


@pytest.mark.parametrize("name", NAMES)
def test_both_twins_run_the_same_operators(seen: dict[str, Any], name: str) -> None:
    full, twin, large = seen[name]["calls"]
    assert full == twin == large
    assert sum(full.values()) > 300


def test_attention_is_chosen_where_the_library_lets_one(seen: dict[str, Any]) -> None:
    assert {name: seen[name]["attention"] for name in NAMES} == {
        "speecht5-asr": "own",
        "hubert-large": "sdpa",
        "wav2vec2-base": "sdpa",
        "wavlm-base": "own",
    }


def test_the_decoder_takes_any_token_but_padding(seen: dict[str, Any]) -> None:
    tokens = seen["tokens"]
    assert len(tokens) > 10
    assert all(0 <= token < 81 and token != 1 for token in tokens)
    assert seen["the token counts"] > 1e-3


def test_the_runner_measures_sound(tmp_path: Path, cpu_python: Path) -> None:
    shrunk = {"size": "shrunk", "audio_samples": 1200}
    trials = [
        on_one_thread(WorkloadSpec(name, 2, options=shrunk), backend, protocol=replace(BRIEF, floor_budget_ms=10))
        for name, backend in (("wav2vec2-base", "eager"), ("speecht5-asr", "torchscript"))
    ]
    records = recorded(tmp_path, cpu_python, *trials).values()
    assert [(r.status, r.reason) for r in records] == [(Status.OK, None)] * 2
    assert [r.facts["floor_alike"] for r in records] == [True] * 2
