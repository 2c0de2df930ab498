"""The operators behind the roofs as they are declared, counted and shrunk; no framework is needed for that."""

from dataclasses import replace
from typing import Any

import pytest

from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.contract.catalogue import BACKENDS, moved_bytes, refusal
from runners.contract.catalogue.entries import MODELS
from runners.contract.catalogue.roofs import GEMM, TRIAD, WORKLOADS
from runners.workloads import make_workload
from runners.workloads.base import Workload


def trial(name: str, batch: int = 1, dtype: str = "float32", **options: Any) -> TrialSpec:
    workload = WorkloadSpec(name, batch, options=options)
    return TrialSpec(workload, BackendSpec("eager", {}), dtype, "cpu", 1, 0, Protocol())


def workload(name: str, batch: int = 1, **options: Any) -> Workload:
    return make_workload(trial(name, batch, **options))


@pytest.mark.parametrize("name", sorted(WORKLOADS))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_backend_of_models_refuses_its_dtypes(name: str, dtype: str, device: str) -> None:
    for backend, info in BACKENDS.items():
        if set(MODELS) <= set(info.families) and dtype in info.dtypes and device in info.devices:
            one = replace(trial(name, 3, dtype), backend=BackendSpec(backend, {}), device=device)
            assert refusal(one) is None


@pytest.mark.parametrize(
    ("batch", "options", "dtype", "expected"),
    [
        (1, {}, "float32", 3 * 128 * 2**20),
        (1, {}, "bfloat16", 3 * 64 * 2**20),
        (1, {"elements": 1000}, "float32", 12_000),
        (7, {"elements": 1000}, "float16", 42_000),
        (1, {"elements": 10}, "float64", 240),
    ],
)
def test_what_a_triad_moves_follows_from_its_row(
    batch: int, options: dict[str, int], dtype: str, expected: int
) -> None:
    assert moved_bytes(trial(TRIAD, batch, **options).workload, dtype) == expected


@pytest.mark.parametrize("name", ["op-gemm", "op-layernorm", "bert-base", "synthetic-null"])
def test_of_other_workloads_nobody_knows_what_they_move(name: str) -> None:
    assert moved_bytes(WorkloadSpec(name, 1), "float32") is None


@pytest.mark.parametrize(("name", "option"), [(GEMM, "width"), (TRIAD, "elements")])
def test_the_twin_is_one_small_example_and_its_own_twin(name: str, option: str) -> None:
    small = workload(name, 16).shrunk()
    assert small == WorkloadSpec(name, 1, options={option: 8})
    assert workload(name, 16, **{option: 4096}).shrunk() == small
    assert workload(name, 1, **{option: 8}).shrunk() == small
    assert workload(name, 1, **{option: 3}).shrunk().options == {option: 3}
