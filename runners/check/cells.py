"""Check 3: ten cells of models and backends, attention kernels, roofs and ONNX Runtime, as trials with all passes."""

import os
import statistics
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

from runners.check import rows
from runners.check.running import ROWS, Context, Findings, Size
from runners.check.subjects import PROTOCOL, sized, spec_of
from runners.contract import Status, TrialRecord, TrialSpec, WorkloadSpec
from runners.contract.spec import OptionValue

_WORKLOADS = (
    WorkloadSpec("tiny-bert", 2, sequence_length=128),
    WorkloadSpec("resnet50", 2, image_size=224),
)
_BACKENDS: Tuple[Tuple[str, Dict[str, OptionValue]], ...] = (
    ("eager", {}),
    ("cuda_graphs", {}),
    ("torchscript", {}),
    ("torch_compile", {}),
    ("torch_compile", {"mode": "reduce-overhead"}),
)
_ROOFS = (
    WorkloadSpec("op-gemm", 1, options={"width": 4096}),
    WorkloadSpec("op-triad", 1, options={"elements": 1 << 26}),
)
_CAPTURABLE = ("eager", "torchscript")
_ENERGY = replace(PROTOCOL, energy_window_ms=2000)
_NOISE = 1.1
_BUSY_SHARE = 1.05

Facts = Dict[str, Any]


def check(context: Context) -> Findings:
    """By trial: status, medians in microseconds, and what each pass said."""
    found = Findings()
    specs = _specs(context.size)
    reached, printed = rows.run_task(os.path.join(context.out, ROWS), "cells", specs, context.left_s - 4)
    if len(reached) < len(specs):
        found.problems.append("%d of %d trials were reached: %s" % (len(reached), len(specs), printed[-300:]))
    for spec, record in reached:
        label = label_of(spec)
        found.values[label] = values_of(record)
        found.problems += ["%s: %s" % (label, problem) for problem in problems_of(spec, record)]
    return found


def _specs(size: Size) -> List[TrialSpec]:
    groups = (_WORKLOADS[:1], _ROOFS[:1]) if size.is_small else (_WORKLOADS, _ROOFS)
    models, roofs = ([sized(workload, size) for workload in group] for group in groups)
    eager = [spec_of(model, protocol=_ENERGY) for model in models]
    others = [
        spec_of(model, backend=name, options=options)
        for model in models
        for name, options in _BACKENDS[1:]
        if not (size.is_small and name == "torch_compile")
    ]
    flash = [spec_of(models[0], dtype, options={"sdpa_kernel": "flash"}) for dtype in ("float32", "float16")]
    onnx = [spec_of(models[0], backend="onnxruntime")]
    dtypes = ("float32",) if size.is_small else ("float32", "float16", "bfloat16")
    operators = [spec_of(roof, dtype) for roof in roofs for dtype in dtypes]
    # By workload: neighbours that differ in nothing but their backend are one session
    cells = sorted([*eager, *others, *onnx], key=lambda spec: spec.workload.name)
    # Compilers take half a minute each: where the time is short all else has been seen
    compiled = [spec for spec in cells if spec.backend.name == "torch_compile"]
    return [*(spec for spec in cells if spec not in compiled), *flash, *operators, *compiled]


def label_of(spec: TrialSpec) -> str:
    """A short name of a trial."""
    options = ["%s=%s" % item for item in sorted(spec.backend.options.items())]
    return " ".join([spec.workload.name, "b%d" % spec.workload.batch, spec.dtype, spec.backend.name, *options])


def values_of(record: TrialRecord) -> Facts:
    """What of a record is worth a line."""
    names = (
        *("busy_s", "graph_problem", "profiler_valid", "profiler_problem", "dispatch_problem", "launches", "waits"),
        *("utilisation_source", "utilisation_sm_active_share", "utilisation_sm_occupancy_share"),
        *("energy_power_mean_w", "energy_per_call_j", "energy_problem", "synchronize_s", "examination_problem"),
        *("memory_device_process_bytes", "memory_device_allocated_peak_bytes", "clock_sync_sm_mhz"),
    )
    values: Facts = {"status": record.status.value, "reason": record.reason}
    values.update(("T_%s_us" % series.mode, round(_median_us(series.durations_ns), 2)) for series in record.series)
    values.update((name, record.facts[name]) for name in names if record.facts.get(name) is not None)
    values["seconds"] = round((record.finished_at_ns - record.started_at_ns) / 1e9, 1)
    values["guards"] = sorted({"%s %s" % (each.guard, each.outcome.value) for each in record.guards})
    return values


def problems_of(spec: TrialSpec, record: TrialRecord) -> List[str]:
    """What is not as it has to be on every GPU."""
    if spec.backend.options.get("sdpa_kernel") == "flash" and spec.dtype == "float32":
        # FlashAttention has no float32
        return [] if record.status is Status.UNSUPPORTED else ["float32 was not refused: %s" % record.status.value]
    if spec.backend.name == "onnxruntime" and record.status is Status.UNSUPPORTED:
        return []
    if record.status is not Status.OK:
        return ["%s: %s" % (record.status.value, record.reason)]
    facts, times = record.facts, {series.mode: _median_us(series.durations_ns) for series in record.series}
    problems = [
        text
        for wrong, text in (
            (times.get("dispatch", 0.0) > _NOISE * times["sync"], "a call returns after its work is done"),
            (times.get("graph", 0.0) > _NOISE * times["pipelined"], "T_graph > T_pipe"),
            (facts.get("profiler_valid") is not True, "the profile is not valid: %s" % facts.get("profiler_problem")),
            (facts.get("memory_device_process_bytes") is None, "no memory: %s" % facts.get("memory_device_problem")),
            (facts.get("clock_sync_sm_mhz") is None, "no SM clock beside the timed calls"),
            (not record.guards, "no guard looked"),
        )
        if wrong
    ]
    if spec.backend.name in _CAPTURABLE and facts.get("graph_problem") is not None:
        problems.append("no graph: %s" % facts["graph_problem"])
    busy_s = facts.get("busy_s")
    if isinstance(busy_s, float) and busy_s * 1e6 > _NOISE * times["sync"]:
        problems.append("the device is busy for longer than a call takes")
    return problems + _of_utilisation(facts) + _of_energy(spec, record)


def _of_utilisation(facts: Facts) -> List[str]:
    names = ("utilisation_sm_active_share", "utilisation_sm_occupancy_share", "utilisation_dram_bandwidth_share")
    shares = [facts[name] for name in names if facts.get(name) is not None]
    return ["a share of the device is %s" % share for share in shares if not 0 <= share <= _BUSY_SHARE]


def _of_energy(spec: TrialSpec, record: TrialRecord) -> List[str]:
    power_w, idle_w = record.facts.get("energy_power_mean_w"), _idle_w(record)
    if not isinstance(power_w, float):
        wanted = spec.protocol.energy_window_ms > 0
        problem = record.facts.get("energy_problem") or record.facts.get("examination_problem")
        return ["no energy: %s" % problem] if wanted else []
    return [] if idle_w is None or power_w > idle_w else ["%.0f W under load, %.0f W before" % (power_w, idle_w)]


def _idle_w(record: TrialRecord) -> Optional[float]:
    known = [v for k, v in record.conditions_before.items() if k.endswith("_power_mw") and v is not None]
    return float(known[0]) / 1000 if known else None


def _median_us(durations_ns: Tuple[int, ...]) -> float:
    return statistics.median(durations_ns) / 1e3 if durations_ns else float("nan")
