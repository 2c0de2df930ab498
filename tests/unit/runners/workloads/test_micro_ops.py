"""The micro-operators as they are declared, refused and shrunk; no framework is needed for that."""

import itertools
from typing import Any

import pytest

from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.contract.catalogue import BACKENDS, WORKLOADS, moved_bytes, refusal
from runners.contract.catalogue.entries import MODELS
from runners.contract.catalogue.micro_ops import WORKLOADS as OPERATORS
from runners.contract.catalogue.micro_ops import problem
from runners.contract.catalogue.roofs import GEMM, TRIAD
from runners.contract.catalogue.roofs import WORKLOADS as ROOFS
from runners.workloads import make_workload
from runners.workloads.base import Workload


def spec(name: str, **changes: Any) -> WorkloadSpec:
    info = WORKLOADS[name]
    batch = changes.pop("batch", 1)
    sequence_length = changes.pop("sequence_length", info.sequence_length)
    image_size = changes.pop("image_size", info.image_size)
    return WorkloadSpec(name, batch, sequence_length, image_size, changes)


def workload(one: WorkloadSpec) -> Workload:
    return make_workload(TrialSpec(one, BackendSpec("eager", {}), "float32", "cpu", 1, 0, Protocol()))


def twin(name: str, **changes: Any) -> WorkloadSpec:
    return workload(spec(name, **changes)).shrunk()


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_defaults_make_an_operator(name: str) -> None:
    one = spec(name, batch=3)
    assert problem(one) is None
    assert refusal(workload(one).spec) is None


WIDE = "kernel_size %d is larger than the input of %d"


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (spec("op-conv1d", input_length=4, kernel_size=5, padding="none"), WIDE % (5, 4)),
        (spec("op-conv1d", input_length=9, kernel_size=9, padding="none"), None),
        (spec("op-conv1d", input_length=1, kernel_size=9), None),
        (spec("op-conv2d", image_size=2, padding="none"), WIDE % (3, 2)),
        (spec("op-conv2d", image_size=7, stride=5), None),
        (spec("op-mbconv2d", image_size=2, padding="none"), WIDE % (3, 2)),
        (spec("op-mha", hidden_size=16, heads=3), "3 heads do not divide hidden_size 16"),
        (spec("op-mha", hidden_size=16, heads=16), None),
        (spec("op-layernorm", hidden_size=1), "hidden_size starts at 2"),
        (spec("op-layernorm", hidden_size=2), None),
    ],
)
def test_impossible_combinations_have_a_reason_and_those_at_the_edge_are_possible(
    one: WorkloadSpec, expected: str | None
) -> None:
    found = problem(one)
    assert found is None if expected is None else expected in (found or "")


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_twin_is_one_small_example_and_its_own_twin(name: str) -> None:
    small = twin(name, batch=16)
    assert (small.name, small.batch) == (name, 1)
    assert refusal(workload(small).spec) is None
    assert problem(small) is None
    assert workload(small).shrunk() == small
    assert set(small.options) == set(OPERATORS[name].options)


@pytest.mark.parametrize(
    ("name", "large", "larger"),
    [
        ("op-feedforward", {"hidden_size": 64}, {"hidden_size": 4096, "sequence_length": 512}),
        ("op-conv2d", {"in_channels": 32, "out_channels": 64}, {"in_channels": 1024, "out_channels": 512, "image_size": 224}),
        ("op-conv1d", {"input_length": 64}, {"input_length": 4096, "batch": 32}),
        ("op-rnn", {"hidden_size": 512}, {"hidden_size": 4096}),
        ("op-layernorm", {"hidden_size": 16}, {"hidden_size": 8192}),
        ("op-mha", {"hidden_size": 128, "heads": 4}, {"hidden_size": 256, "heads": 4}),
    ],
)  # fmt: skip
def test_operators_of_one_structure_share_their_twin(name: str, large: dict[str, int], larger: dict[str, int]) -> None:
    assert twin(name, **large) == twin(name, **larger)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("op-feedforward", {"layers": 1}, {"layers": 2}),
        ("op-feedforward", {"activation": "relu"}, {"activation": "none"}),
        ("op-conv2d", {"kernel_size": 1}, {"kernel_size": 3}),
        ("op-mbconv2d", {"in_channels": 32, "out_channels": 32}, {"in_channels": 32, "out_channels": 64}),
        ("op-mbconv2d", {"expand_ratio": 1}, {"expand_ratio": 6}),
        # A recurrent network makes as many rounds as it has steps
        ("op-lstm", {"sequence_length": 32}, {"sequence_length": 64}),
        ("op-mha", {"heads": 1}, {"heads": 2}),
    ],
)
def test_operators_of_another_structure_have_another_twin(
    name: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert twin(name, **one) != twin(name, **other)


def test_the_twin_of_a_block_that_adds_its_input_adds_it_and_of_another_does_not() -> None:
    sizes = (1, 5, 8, 9, 16, 1000)
    for before, after in itertools.product(sizes, sizes):
        options = twin("op-mbconv2d", in_channels=before, out_channels=after).options
        assert (options["in_channels"] == options["out_channels"]) == (before == after)
        assert int(options["in_channels"]) <= min(before, 8)


def test_the_twin_of_a_large_kernel_has_an_input_that_holds_it() -> None:
    assert twin("op-conv1d", kernel_size=31, padding="none").options["input_length"] == 31
    assert twin("op-conv2d", kernel_size=11, padding="none").image_size == 11


@pytest.mark.parametrize(
    ("name", "layers", "expected"), [("op-rnn", 1, 32 * 2 * 512 * 512), ("op-lstm", 3, 3 * 4 * 32 * 2 * 512 * 512)]
)
def test_recurrent_networks_are_counted_by_hand(name: str, layers: int, expected: int) -> None:
    cost = workload(spec(name, layers=layers, batch=7)).cost(None)
    assert cost == {"macs_per_example": expected, "flops_per_example": 2 * expected, "flops_problem": None}


@pytest.mark.parametrize("name", sorted(ROOFS))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_backend_of_models_refuses_its_dtypes(name: str, dtype: str, device: str) -> None:
    for backend, info in BACKENDS.items():
        if set(MODELS) <= set(info.families) and dtype in info.dtypes and device in info.devices:
            asked = TrialSpec(spec(name, batch=3), BackendSpec(backend, {}), dtype, device, 1, 0, Protocol())
            assert refusal(asked) is None


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
    assert moved_bytes(spec(TRIAD, batch=batch, **options), dtype) == expected


@pytest.mark.parametrize("name", ["op-gemm", "op-layernorm", "bert-base", "synthetic-null"])
def test_of_other_workloads_nobody_knows_what_they_move(name: str) -> None:
    assert moved_bytes(WorkloadSpec(name, 1), "float32") is None


@pytest.mark.parametrize(("name", "option"), [(GEMM, "width"), (TRIAD, "elements")])
def test_the_twin_of_a_roof_is_one_small_example_and_its_own_twin(name: str, option: str) -> None:
    small = WorkloadSpec(name, 1, options={option: 8})
    for options in ({}, {option: 4096}, {option: 8}):
        assert twin(name, batch=16, **options) == small
    assert workload(small).shrunk() == small
    assert twin(name, **{option: 3}).options == {option: 3}
