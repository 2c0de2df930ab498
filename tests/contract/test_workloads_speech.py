"""The recognisers of speech with the libraries of the `cpu` environment: their sizes, and the twins of all four."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import runners
from runners.contract import (
    CONTRACT_VERSION,
    BackendSpec,
    Protocol,
    Status,
    Task,
    Trial,
    TrialRecord,
    TrialSpec,
    WorkloadSpec,
    decode_line,
    encode,
)

pytestmark = pytest.mark.environment

ROOT = Path(runners.__file__).parents[1]
QUICK = Protocol(
    warmup_min_calls=1,
    warmup_min_ms=1,
    warmup_max_ms=50,
    turn_ms=5,
    cycles=2,
    min_cycles=1,
    sync_budget_ms=10,
    pipelined_budget_ms=5,
    pipelined_min_samples=1,
    pipelined_block_ms=1,
    floor_budget_ms=10,
)
NAMES = ("speecht5-asr", "hubert-large", "wav2vec2-base", "wavlm-base")
# Runs in the environment's interpreter, which has neither pytest nor the orchestrator
CHECKS = """
import json
from dataclasses import replace

import torch

from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.examination.calls import count_aten_calls
from runners.workloads import make_workload
from runners.workloads.construction import of_transformers

torch.set_num_threads(1)
seen = {}


def workload(name, batch=1, **options):
    shape = WorkloadSpec(name, batch, options=options)
    return make_workload(TrialSpec(shape, BackendSpec("eager", {}), "float32", "cpu", 1, 3, Protocol()))


def calls(one):
    model, inputs = one.build(), one.inputs(0)
    return count_aten_calls(lambda: model(*inputs))


def run(model, one, index=0):
    with torch.inference_mode():
        return model(*one.inputs(index))


for name in %(names)r:
    full = workload(name)
    config = of_transformers(full.row.architecture, "Config")(**full.settings())
    with torch.device("meta"):
        model = of_transformers(full.row.architecture, full.row.head)(config)
    small = workload(name, size="shrunk", audio_samples=2000)
    twin = workload(name, batch=small.shrunk().batch, **small.shrunk().options)
    network = small.build()
    first, second = run(network, small), run(network, small, 1)
    seen[name] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "shapes": [list(output.shape) for output in first],
        "finite": all(bool(output.isfinite().all()) for output in first),
        "again": all(torch.equal(a, b) for a, b in zip(first, run(network, small))),
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
seen["the token counts"] = float((changed - run(model, one)[0]).abs().max())
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen(cpu_python: Path) -> dict[str, Any]:
    """What the checks saw."""
    script = CHECKS % {"names": NAMES}
    ended = subprocess.run([cpu_python, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stderr
    facts: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
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
    trials = tuple(
        Trial(
            f"{name}-{backend}",
            "key",
            *(0, 0, 0, 1, 200),
            TrialSpec(
                workload=WorkloadSpec(name, 2, options={"size": "shrunk", "audio_samples": 1200}),
                backend=BackendSpec(backend, {}),
                dtype="float32",
                device="cpu",
                threads=1,
                seed=3,
                protocol=QUICK,
            ),
        )
        for name, backend in (("wav2vec2-base", "eager"), ("speecht5-asr", "torchscript"))
    )
    (tmp_path / "task.json").write_text(json.dumps(encode(Task(CONTRACT_VERSION, "campaign", "task", "cpu", trials))))
    command = [cpu_python, "-m", "runners", tmp_path]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [decode_line(line) for line in (tmp_path / "records.jsonl").read_bytes().splitlines()]
    records = [line for line in lines if isinstance(line, TrialRecord)]
    assert [(r.status, r.reason) for r in records] == [(Status.OK, None)] * 2
    assert [r.facts["floor_alike"] for r in records] == [True] * 2
