"""Passes that need torch: they run with the Python of the `cpu` environment."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NO_NNPACK

pytestmark = pytest.mark.environment

LAYERS, LENGTH, HIDDEN, INNER, BATCH = 3, 24, 32, 80, 2
SCRIPT = """
import json
import torch
from runners.examination import calls, flops, memory, numerics, profiler

torch.set_num_threads(1)
layer = torch.nn.TransformerEncoderLayer(%(hidden)d, 4, %(inner)d, activation="gelu", batch_first=True)
encoder = torch.nn.TransformerEncoder(layer, %(layers)d, enable_nested_tensor=False).eval().requires_grad_(False)
convolution = torch.nn.Conv2d(3, 8, 3, padding=1).eval()
ring = [(torch.randn(%(batch)d, %(length)d, %(hidden)d),) for _ in range(3)]
images = (torch.randn(1, 3, 10, 10),)
linear = torch.nn.Linear(4, 4)
vector = torch.randn(4)


def three():
    with torch.no_grad():
        return linear(ring[0][0][0, :, :4]).t()


with torch.inference_mode():
    found = {
        "encoder": flops.count_flops(encoder, ring[0]),
        "fast_path": torch.backends.mha.get_fastpath_enabled(),
        "convolution": flops.count_flops(convolution, images),
        "vectors": flops.count_flops(lambda m, v: torch.mv(m, v).dot(v), (torch.randn(4, 4), vector)),
        "transform": flops.count_flops(lambda v: torch.fft.fft(v).real @ v, (torch.randn(8, 8),)),
        "profile": profiler.profile(three, [()], None, 4),
        "host": memory.host_memory(encoder, ring),
        "dtype": numerics.dtype_support("float32", "cpu"),
    }
found["outside"] = flops.count_flops(encoder, ring[0])
found["calls"] = sum(calls.count_aten_calls(three).values())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(cpu_python: Path, project: Path) -> dict[str, Any]:
    """What the passes say about small models."""
    sizes = {"layers": LAYERS, "length": LENGTH, "hidden": HIDDEN, "inner": INNER, "batch": BATCH}
    command = [cpu_python, "-W", "error", "-W", NO_NNPACK, "-c", SCRIPT % sizes]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_flops_of_a_bert_are_those_of_the_formula(found: dict[str, Any]) -> None:
    per_layer = 8 * LENGTH * HIDDEN**2 + 4 * LENGTH * HIDDEN * INNER + 4 * LENGTH**2 * HIDDEN
    expected = BATCH * LAYERS * per_layer
    assert found["encoder"] == {"flops": expected, "macs": expected // 2, "flops_problem": None}
    assert found["outside"] == found["encoder"]
    assert found["fast_path"] is True


def test_flops_of_other_products_and_of_what_has_no_formula(found: dict[str, Any]) -> None:
    assert found["convolution"]["flops"] == 2 * 8 * 3 * 9 * 100
    assert found["vectors"]["flops"] == 2 * 16 + 2 * 4
    assert found["transform"] == {"flops": None, "macs": None, "flops_problem": "no formula for aten._fft_r2c"}


def test_calls_that_reach_aten(found: dict[str, Any]) -> None:
    # select, slice, linear, t: indexing is two calls
    assert found["calls"] == found["profile"]["profiler_operators"] == 4


def test_the_profiler_on_a_cpu(found: dict[str, Any]) -> None:
    facts = found["profile"]
    assert facts["profiler_wall_s"] > 0
    assert (facts["busy_s"], facts["profiler_valid"]) == (None, None)
    assert facts["profiler_problem"] == "a CPU has no device activity: all of a call is host time"


def test_the_other_passes_on_a_cpu(found: dict[str, Any]) -> None:
    assert found["host"]["memory_problem"] is None
    assert found["host"]["memory_peak_rss_bytes"] >= found["host"]["memory_pss_bytes"] > 0
    assert found["dtype"]["dtype_native"] is True
    assert found["dtype"]["matmul_precision"] == "highest"
