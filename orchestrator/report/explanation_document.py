"""An explanation as a JSON document, for programs. Durations are seconds; an interval is null where there is none."""

from collections.abc import Mapping
from typing import Any

from orchestrator.analysis import Estimate
from orchestrator.analysis.explanation import Explanation, Lack
from orchestrator.report.explanation import transition_of


def explanation_document(found: Explanation, commands: Mapping[Lack, str]) -> dict[str, Any]:
    """The same as the text says."""
    row, one, free = found.row, found.transition, found.free
    return {
        "configuration": {
            **{name: row[name] for name in ("workload", "sequence_length", "image_size", "dtype", "device", "threads")},
            "options": found.shape.options,
            "batch": found.batch,
            "backend": found.backend,
            **{name: row[name] for name in ("trial_key", "environment", "isolation", "method_version", "system_id")},
            **{name: row[name] for name in ("cpu_model", "gpu_name", "driver_version")},
            "hosts": list(found.hosts),
            "campaigns": list(found.campaigns),
        },
        "processes": found.tax.processes,
        "unsteady": found.tax.unsteady,
        "failed": [{"status": f.status.value, "reason": f.reason, "count": f.count} for f in found.failed],
        "parts": {name: estimate_document(estimate) for name, estimate in found.tax.parts.items()},
        "load": None if found.tax.load is None else estimate_document(found.tax.load),
        "regime": None if found.tax.regime is None else found.tax.regime.value,
        "regime_is_by_lower_bound": found.tax.is_by_lower_bound,
        "regime_has_interval": found.tax.is_decided,
        "floor_problem": found.tax.floor_problem,
        "execution_tax": None
        if found.execution is None
        else {
            "best": found.execution.best,
            "seconds": estimate_document(found.execution.seconds),
            "share": found.execution.share,
            "by_floors_s": found.execution.by_floors_s,
            "unexplained_s": found.execution.unexplained_s,
        },
        "transition": None
        if one is None
        else {
            "side": one.side.value,
            "batch": one.batch,
            "interval": None if one.interval is None else [one.interval.low, one.interval.high],
            "batches": list(one.batches),
            "rounds": one.rounds,
            "text": transition_of(found),
        },
        "free_batch": None
        if free is None
        else {
            "base": free.base,
            "batch": free.batch,
            "cost": estimate_document(free.cost),
            "next_batch": free.next_batch,
            "next_cost": None if free.next_cost is None else estimate_document(free.next_cost),
            "is_decided": free.is_decided,
        },
        "variants": [
            {
                "direction": variant.direction.value,
                "size": variant.size,
                "cost": estimate_document(variant.cost),
                "work": variant.work,
                "is_free": variant.is_free,
            }
            for variant in found.variants
        ],
        "backends": [
            {
                "backend": other.backend,
                "speedup": None if other.speedup is None else estimate_document(other.speedup),
                "removed_share": None if other.removed is None else estimate_document(other.removed),
                "is_paired": other.is_paired,
                "status": other.status.value,
                "reason": other.reason,
            }
            for other in found.alternatives
        ],
        "lacks": [{"what": lack.value, "command": commands.get(lack)} for lack in found.lacks],
    }


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """A value with its 95 % interval and how many processes, or pairs of them, are behind it."""
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "processes": estimate.processes}
