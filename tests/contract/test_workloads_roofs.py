"""The operators behind the roofs with the real framework: what they compute, and each as a trial on every backend."""

from pathlib import Path
from typing import Any

import pytest

from runners.contract import Status, TrialRecord, WorkloadSpec
from tests.contract.conftest import facts_of
from tests.contract.test_workloads_micro_ops import QUICK
from tests.tasks import evaluated, named, on_one_thread, recorded

pytestmark = pytest.mark.environment

OPTIONS: dict[str, dict[str, Any]] = {"op-gemm": {"width": 96}, "op-triad": {"elements": 5000}}
BACKENDS = ("eager", "torchscript", "torch_compile", "onnxruntime", "openvino")

Records = dict[str, TrialRecord]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, cpu_python: Path) -> Records:
    """What became of each operator on each backend, and in each dtype in eager."""
    keys = [(workload, backend, "float32") for workload in OPTIONS for backend in (*BACKENDS, "dynamic_int8")]
    keys += [(workload, "eager", dtype) for workload in OPTIONS for dtype in ("float16", "bfloat16")]
    trials = {
        f"{workload}/{backend}/{dtype}": on_one_thread(
            WorkloadSpec(workload, 2, options=OPTIONS[workload]), backend, dtype=dtype, protocol=QUICK
        )
        for workload, backend, dtype in keys
    }
    return recorded(tmp_path_factory.mktemp("roofs"), cpu_python, *named(trials))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("workload", OPTIONS)
def test_every_backend_computes_it(records: Records, workload: str, backend: str) -> None:
    record = records[f"{workload}/{backend}/float32"]
    assert facts_of(record)["floor_alike"] is True
    assert record.verification is not None
    assert record.verification.inputs_distinguished
    # A yardstick that was made of one output held against the reference of the other would be of the order of 1
    assert record.verification.eager_relative_l2 < 1e-5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("workload", OPTIONS)
def test_eager_computes_it_in_half_precision(records: Records, workload: str, dtype: str) -> None:
    weights = 2 * 96 * 96 if workload == "op-gemm" else 0
    assert facts_of(records[f"{workload}/eager/{dtype}"])["weight_bytes"] == weights


def test_eight_bits_are_for_the_product_alone(records: Records) -> None:
    assert records["op-gemm/dynamic_int8/float32"].status is Status.OK
    refused = records["op-triad/dynamic_int8/float32"]
    reason = "the model has no torch.nn.Linear: nothing is quantised"
    assert (refused.status, refused.reason) == (Status.UNSUPPORTED, reason)


def test_operations_are_those_of_a_product_of_square_matrices(records: Records) -> None:
    assert records["op-gemm/eager/float32"].facts["flops_per_example"] == 2 * 96**3
    assert records["op-triad/eager/float32"].facts["flops_per_example"] == 0


def test_they_are_what_they_are_called(cpu_python: Path) -> None:
    found = evaluated(
        cpu_python,
        """
product = workload("op-gemm", batch=3, width=32)
model = product.build().double()
(left,) = (one.double() for one in product.inputs(0))
(right,) = model.parameters()
errors = [float((model(left)[0] - left @ right.T).abs().max())]
triad = workload("op-triad", batch=3, elements=50)
left, right = triad.inputs(0)
errors.append(float((triad.build()(left, right)[0] - (left + 3 * right)).abs().max()))
print(json.dumps([errors, [list(left.shape), list(right.shape)], bool((left == right).any())]))
""",
    )
    errors, shapes, alike = found
    assert max(errors) < 1e-6
    assert shapes == [[3, 50], [3, 50]]
    assert not alike


def test_a_triad_writes_where_it_wrote_before_and_its_references_stay(cpu_python: Path) -> None:
    found = evaluated(
        cpu_python,
        """
triad = workload("op-triad", batch=2, elements=50)
model = triad.build()
outputs = [model(*triad.inputs(index))[0] for index in range(2)]
references = [triad.reference(index, model, double=False)[0] for index in range(2)]
print(json.dumps([outputs[0].data_ptr() == outputs[1].data_ptr(), torch.equal(*references)]))
""",
    )
    assert found == [True, False]
