"""The operators behind the roofs on a GPU: in every dtype they are right, and the time of their kernels is known."""

from pathlib import Path

import pytest

from runners.contract import BackendSpec, Protocol, Status, TrialSpec, WorkloadSpec
from tests.contract.test_workloads_micro_ops import run

pytestmark = pytest.mark.gpu

PROTOCOL = Protocol(
    warmup_min_ms=200, sync_budget_ms=200, pipelined_budget_ms=200, dispatch_budget_ms=100, graph_budget_ms=100
)
WORKLOADS = (
    WorkloadSpec("op-gemm", 1, options={"width": 2048}),
    WorkloadSpec("op-triad", 1, options={"elements": 1 << 24}),
)
DTYPES = ("float32", "float16", "bfloat16")


def test_roofs_are_measured(tmp_path: Path, gpu_python: Path) -> None:
    eager = BackendSpec("eager", {})
    specs = [TrialSpec(one, eager, dtype, "cuda", 1, 3, PROTOCOL) for one in WORKLOADS for dtype in DTYPES]
    for one, record in zip(specs, run(tmp_path, gpu_python, specs), strict=True):
        assert (one.workload.name, one.dtype, record.reason) == (one.workload.name, one.dtype, None)
        assert record.status is Status.OK
        assert record.facts["profiler_valid"] is True
        assert float(str(record.facts["busy_s"])) > 0
