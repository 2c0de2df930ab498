"""The backends of torch on a GPU: what they compute, and whether the series and passes of a GPU are there.

Unlike all other tests these compare durations, with a margin: that a replayed graph is not slower than the calls that it
was recorded from is what the tax of a GPU rests on.
"""

import json
import os
import statistics
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

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

pytestmark = pytest.mark.gpu

PROTOCOL = Protocol(
    warmup_min_ms=200,
    sync_budget_ms=500,
    pipelined_budget_ms=500,
    dispatch_budget_ms=300,
    graph_budget_ms=300,
)
WORKLOADS = {
    "tiny-bert": WorkloadSpec("tiny-bert", batch=2, sequence_length=128),
    "resnet50": WorkloadSpec("resnet50", batch=2, image_size=224),
}
BACKENDS = {
    "eager": BackendSpec("eager", {}),
    "torchscript": BackendSpec("torchscript", {}),
    "compile": BackendSpec("torch_compile", {}),
    "compile-graphs": BackendSpec("torch_compile", {"mode": "reduce-overhead"}),
    "cuda_graphs": BackendSpec("cuda_graphs", {}),
}
CAPTURABLE = ("eager", "torchscript", "compile")
CELLS = [(workload, backend) for workload in WORKLOADS for backend in BACKENDS]
NOISE = 1.1

Records = dict[tuple[str, str], TrialRecord]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, gpu_python: Path) -> Records:
    """What became of each workload on each backend."""
    directory = tmp_path_factory.mktemp("gpu")
    trials = tuple(
        Trial(
            f"{workload} {backend}",
            "key",
            0,
            0,
            0,
            1,
            280,
            TrialSpec(WORKLOADS[workload], BACKENDS[backend], "float32", "cuda", 1, 3, PROTOCOL),
        )
        for workload, backend in CELLS
    )
    (directory / "task.json").write_text(json.dumps(encode(Task(CONTRACT_VERSION, "campaign", "task", "none", trials))))
    done = subprocess.run(
        [gpu_python, "-m", "runners", directory],
        cwd=Path(__file__).resolve().parents[2],
        env={name: value for name, value in os.environ.items() if not name.startswith("TAXMETER")},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = map(decode_line, (directory / "records.jsonl").read_bytes().splitlines())
    found = [line for line in lines if isinstance(line, TrialRecord)]
    return {(workload, backend): record for (workload, backend), record in zip(CELLS, found, strict=True)}


def median_ns(record: TrialRecord, mode: str) -> float:
    (series,) = [series for series in record.series if series.mode == mode]
    return statistics.median(series.durations_ns)


@pytest.mark.parametrize("cell", CELLS)
def test_a_backend_computes_what_eager_computes(records: Records, cell: tuple[str, str]) -> None:
    record = records[cell]
    assert (record.status, record.reason) == (Status.OK, None), record.log_tail
    assert record.verification is not None
    assert record.verification.after_timing


@pytest.mark.parametrize("cell", CELLS)
def test_a_call_returns_before_its_work_is_done(records: Records, cell: tuple[str, str]) -> None:
    assert median_ns(records[cell], "dispatch") <= NOISE * median_ns(records[cell], "sync")


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell[1] in CAPTURABLE])
def test_a_replayed_graph_is_not_slower_than_the_calls(records: Records, cell: tuple[str, str]) -> None:
    record = records[cell]
    assert record.facts["graph_problem"] is None
    assert median_ns(record, "graph") <= NOISE * median_ns(record, "pipelined")


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell[1] not in CAPTURABLE])
def test_what_is_a_graph_already_is_not_captured_again(records: Records, cell: tuple[str, str]) -> None:
    assert "graph" not in [series.mode for series in records[cell].series]


@pytest.mark.parametrize("cell", CELLS)
def test_the_profiler_saw_all_of_the_device(records: Records, cell: tuple[str, str]) -> None:
    facts = records[cell].facts
    assert facts["profiler_valid"] is True, facts["profiler_problem"]
    busy_s = facts["busy_s"]
    assert isinstance(busy_s, float)
    assert 0 < busy_s * 1e9 <= NOISE * median_ns(records[cell], "sync")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_graph_takes_fewer_launches_than_eager(records: Records, workload: str) -> None:
    launches = {name: records[workload, name].facts["launches"] for name in ("eager", "cuda_graphs")}
    assert isinstance(launches["eager"], int)
    assert isinstance(launches["cuda_graphs"], int)
    assert launches["cuda_graphs"] < launches["eager"]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_mode_with_cuda_graphs_proves_that_it_has_some(records: Records, workload: str) -> None:
    facts = records[workload, "compile-graphs"].facts
    assert (facts["cuda_graphs"], facts["cuda_graphs_problem"]) == (True, None)
    assert "cuda_graphs" not in records[workload, "compile"].facts


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("backend", ["compile", "compile-graphs"])
def test_nothing_is_compiled_while_it_is_timed(records: Records, workload: str, backend: str) -> None:
    facts = records[workload, backend].facts
    assert facts["compiled_after_verification"] == 0
    assert facts["fxgraph_cache_misses"] == 0


def test_a_kernel_of_sdpa_that_does_not_serve_the_dtype_is_refused(gpu_python: Path, tmp_path: Path) -> None:
    # FlashAttention has no float32
    spec = TrialSpec(
        WORKLOADS["tiny-bert"], BackendSpec("eager", {"sdpa_kernel": "flash"}), "float32", "cuda", 1, 3, PROTOCOL
    )
    trial = Trial("flash", "key", 0, 0, 0, 1, 100, spec)
    half = replace(trial, trial_id="half", spec=replace(spec, dtype="float16"))
    task = Task(CONTRACT_VERSION, "campaign", "task", "none", (trial, half))
    (tmp_path / "task.json").write_text(json.dumps(encode(task)))
    root = Path(__file__).resolve().parents[2]
    subprocess.run([gpu_python, "-m", "runners", tmp_path], cwd=root, check=True, capture_output=True, timeout=250)
    lines = map(decode_line, (tmp_path / "records.jsonl").read_bytes().splitlines())
    found = [line for line in lines if isinstance(line, TrialRecord)]
    assert [record.status for record in found] == [Status.UNSUPPORTED, Status.OK]
    assert "SDPA with the kernel flash alone failed" in (found[0].reason or "")
    assert "flash" in str(found[1].facts["attention_operators"])
