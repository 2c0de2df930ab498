"""Rows of the store, from what a runner said."""

from dataclasses import fields, replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from orchestrator.errors import StoreError
from orchestrator.store import TRIALS
from orchestrator.store.origin import RowContext
from orchestrator.store.rows import trial_row
from orchestrator.store.schema.columns import PASSES
from runners.contract import (
    BackendSpec,
    CacheState,
    GuardMoment,
    GuardOutcome,
    GuardPolicy,
    GuardResult,
    Interleaving,
    Phases,
    Protocol,
    Series,
    Session,
    Status,
    Stop,
    Trial,
    TrialRecord,
    TrialSpec,
    Usage,
    Verification,
    WorkloadSpec,
)

STARTED_NS = 1_763_650_000_123_456_789


def context(**changes: object) -> RowContext:
    values = {
        "campaign_id": "campaign", "task_id": "task", "host": "lab1", "isolation": "process", "executor_reason": "x",
        "environment": "cpu", "environment_id": "e1", "image_digest": None, "image_id": None, "lock_sha256": "f0",
        "runner_sha256": "f1", "versions": {"torch": "2.13.0", "python": "3.11.7"}, "hw_id": "h1", "system_id": "s1",
        "hot": {"cpu_model": "EPYC", "cpu_cores": 2}, "trial_cores": "0-1", "memory_limit_bytes": 2**34,
        "gpu_uuid": "GPU-1", "exclusive": "gpu", "slot": 1, "reproduces": "earlier", "reproduces_trial_key": "k0",
        "reproduction_differs": "the image",
    }  # fmt: skip
    return RowContext(**{**values, **changes})


def trial(batch: int = 4) -> Trial:
    shape, backend = WorkloadSpec("bert_base", batch, 128), BackendSpec("eager", {"b": 1, "a": True})
    spec = TrialSpec(shape, backend, "float32", "cpu", threads=2, seed=7, protocol=Protocol())
    return Trial("t1", "k1", 2, 5, 1, 3, 600, spec)


def record(status: Status = Status.OK, **more: object) -> TrialRecord:
    return TrialRecord("t1", 3, status, None, STARTED_NS, STARTED_NS + 10**9, **more)


def series(mode: str, count: int, calls: int = 1) -> Series:
    durations = tuple(1_000_000 * (i + 1) for i in range(count))
    return Series(mode, calls, durations, tuple(2 * one for one in durations))


def guard(name: str, outcome: GuardOutcome, moment: GuardMoment = GuardMoment.BEFORE) -> GuardResult:
    return GuardResult(name, moment, GuardPolicy.FLAG, outcome, 250.0, 100.0, "permille", "cores 0-1", 0.0)


def test_every_key_of_a_full_row_is_a_column_with_a_value_of_its_type() -> None:
    passes = {column.name: _value(column.type) for column in PASSES}
    facts = {"parameters": 110_000_000, "weight_bytes": 440_000_000, "flops_per_example": 8, "macs_per_example": 4}
    facts |= {"floor_valid": True, "floor_problem": None, "floor_structure": "s", **passes}
    timed = (series("warmup", 3), series("sync", 64), series("pipelined", 5, 10))
    others = ("floor", "floor_large", "floor_threads", "dispatch", "graph", "legacy")
    timed += tuple(series(mode, 3) for mode in others)
    timed = tuple(replace(one, pressure_ns=(1, 2), pressure_total_ns=3, stopped=Stop.BUDGET) for one in timed)
    timed = (timed[0], replace(timed[1], turns=(60, 4)), *timed[2:])
    states = {"reference_cache": CacheState.REFUSED, "artifact_cache": CacheState.MISS}
    full = record(
        series=timed,
        session=Session("a" * 32, Interleaving.ALONE, 1, "no room"),
        phases=Phases(**{phase.name: 1.0 for phase in fields(Phases)} | states),
        steady=True,
        verification=Verification(True, 1e-6, 2e-6, 0.999, 3e-6, 4e-6, True, True),
        usage=Usage(10**9, 1.5, 0.5, 3, 4, 5),
        facts=facts,
        exit_code=0,
        guards=(guard("load", GuardOutcome.PASSED),),
    )
    row = trial_row(context(), trial(), full)
    assert set(row) <= set(TRIALS.names)
    back = pa.Table.from_pylist([row], schema=TRIALS).to_pylist()[0]
    filled = {name for name, value in back.items() if value is not None}
    expected_null = {"reason", "log_tail", "image_size", "image_digest", "image_id", "transformers_version"}
    hot_null = {"cpu_threads", "memory_bytes", "kernel", "virtualisation", "gpu_name", "gpu_count", "driver_version"}
    not_here = {"busy_s", "dispatch_s", "graph_s", "dispatch_floor_problem", "onnxruntime_version"}
    assert set(TRIALS.names) - filled == expected_null | hot_null | not_here
    expected = {
        "parameters": 110_000_000, "flops": 32, "reference_cache": "refused", "artifact_cache": "miss",
        "samples_sync_pressure_s": [1e-9, 2e-9], "turn_samples": [60, 4], "short_series": False,
        "interleaving": "alone", "session_processes": 1, "session_reason": "no room",
        "backend_options": '{"a":true,"b":1}', "latency_legacy_s": 0.002,
        "started_at": datetime(2025, 11, 20, 14, 46, 40, 123456, tzinfo=UTC),
    }  # fmt: skip
    assert {name: back[name] for name in expected} == expected


def test_a_short_series_is_called_one_and_one_without_turns_is_not_judged() -> None:
    short = replace(series("sync", 3), turns=(1, 2), stopped=Stop.SHORT)
    row = trial_row(context(), trial(), record(series=(short,)))
    assert (row["short_series"], row["sync_stopped"], row["turn_samples"]) == (True, "short_series", [1, 2])
    whole = trial_row(context(), trial(), record(series=(series("sync", 3),)))
    assert (whole["short_series"], whole["turn_samples"], whole.get("session_id")) == (None, None, None)


def _value(kind: pa.DataType) -> bool | int | float:
    return True if kind == pa.bool_() else 7 if kind == pa.int64() else 0.5


def test_latencies_come_from_the_samples_and_a_90th_percentile_from_64_of_them() -> None:
    row = trial_row(context(), trial(batch=4), record(series=(series("sync", 64), series("pipelined", 3, 10))))
    expected = {
        "latency_sync_median_s": 0.0325, "latency_sync_min_s": 0.001, "latency_sync_p90_s": 0.0577,
        "latency_sync_samples": 64, "cpu_time_per_call_s": 0.065, "cpu_wall_ratio": 2.0,
        "latency_pipelined_mean_s": 0.002, "throughput_examples_per_s": 2000.0, "pipelined_calls_per_sample": 10,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert row["samples_sync_s"][:2] == pytest.approx([0.001, 0.002])
    assert row["samples_pipelined_cpu_s"][0] == pytest.approx(0.002)
    fewer = trial_row(context(), trial(), record(series=(series("sync", 63),)))
    assert [fewer[f"latency_sync_{name}_s"] is None for name in ("p90", "p75")] == [True, False]


@pytest.mark.parametrize(("problem", "expected"), [(None, 0.002), ("a call waits for the device 2 times", None)])
def test_a_call_that_waits_for_the_device_has_no_dispatch(problem: str | None, expected: float | None) -> None:
    facts = {"busy_s": 0.0035, "profiler_valid": True, "dispatch_problem": problem}
    spec = replace(trial().spec, device="cuda")
    row = trial_row(context(), replace(trial(), spec=spec), record(series=(series("dispatch", 3),), facts=facts))
    assert (row["dispatch_s"], row["busy_s"]) == (expected, 0.0035)


@pytest.mark.parametrize("status", [Status.SKIPPED, Status.INFRASTRUCTURE_ERROR])
def test_a_trial_that_never_ran_has_nulls_and_no_zeros(status: Status) -> None:
    nowhere = context(
        task_id=None, host=None, isolation=None, executor_reason=None, environment_id=None, lock_sha256=None,
        runner_sha256=None, versions={}, hw_id=None, system_id=None, hot={}, trial_cores=None, memory_limit_bytes=None,
        reproduces=None, reproduces_trial_key=None, reproduction_differs=None,
    )  # fmt: skip
    row = trial_row(nowhere, trial(), record(status))
    back = pa.Table.from_pylist([row], schema=TRIALS).to_pylist()[0]
    numbers = [f.name for f in TRIALS if pa.types.is_floating(f.type) or pa.types.is_list(f.type)]
    assert {name for name in numbers if back[name] is not None} == {"timeout_s"}
    assert [back[name] for name in ("parameters", "exit_code", "host")] == [None] * 3
    assert back["status"] == status.value


@pytest.mark.parametrize(
    ("hot", "told", "problem"),
    [
        ({}, TrialRecord("t2", 3, Status.OK, None, 1, 2), "record of t2/3"),
        ({}, record(series=(series("sync", 3), series("sync", 4))), "repeats a timing mode"),
        ({"cpu_modle": "EPYC"}, record(), "cpu_modle"),
    ],
)
def test_what_gives_no_row_is_refused(hot: dict[str, str], told: TrialRecord, problem: str) -> None:
    with pytest.raises(StoreError, match=problem):
        trial_row(context(hot=hot), trial(), told)


def test_onnx_runtime_is_known_under_either_name_of_its_distribution() -> None:
    rows = [trial_row(context(versions={f"onnxruntime{end}": "1.31.1"}), trial(), record()) for end in ("", "-gpu")]
    assert [row["onnxruntime_version"] for row in rows] == ["1.31.1"] * 2


def test_a_row_says_what_each_guard_saw_and_which_of_them_flag_it() -> None:
    after = GuardMoment.AFTER
    seen = (
        guard("throttling", GuardOutcome.FLAGGED),
        guard("load", GuardOutcome.PASSED),
        guard("load", GuardOutcome.FLAGGED, after),
        guard("clocks", GuardOutcome.UNSEEN, after),
    )
    row = trial_row(context(), trial(), record(guards=seen))
    assert row["guard_flags"] == ["load", "throttling"]
    # Nothing flagged is an empty list, and nothing watched is null
    passed, unwatched = (trial_row(context(), trial(), record(guards=guards)) for guards in (seen[1:2], ()))
    assert (passed["guard_flags"], unwatched.get("guard_flags")) == ([], None)
    back = pa.Table.from_pylist([row], schema=TRIALS).to_pylist()[0]
    shared = {
        "policy": "flag", "observed": 250.0, "limit": 100.0, "unit": "permille", "detail": "cores 0-1", "waited_s": 0.0,
    }  # fmt: skip
    assert back["guards"] == [
        {"guard": found.guard, "moment": found.moment.value, "outcome": found.outcome.value, **shared} for found in seen
    ]
