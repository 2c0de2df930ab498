"""What one call consists of, and what it takes beyond the best backend of the same work.

The execution tax is what a backend takes beyond the best one, in the same rounds of a host: a lower bound of what is
lost to the way of execution, kernels included, for a better backend may exist. The floors of the two explain a part of
it, which is the framework's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from orchestrator.analysis.axes import Row, backend_name, grouped
from orchestrator.analysis.metrics import USUAL_LATENCY
from orchestrator.analysis.ratios import Visit, by_visit, is_ok
from orchestrator.analysis.statistics import Estimate, t_interval
from orchestrator.analysis.tax import estimate_of, proven
from orchestrator.store import CONFIGURATION
from runners.contract.catalogue import BACKENDS

Execution: TypeAlias = tuple[Any, ...]
"""What identifies a backend with its options in an environment, on some work."""

_HOW: Final = ("backend", "backend_options", "environment_id")
NARROWER: Final = frozenset(name for name, info in BACKENDS.items() if info.is_narrower)
"""Backends whose operations are not those of the dtype."""
_WORK: Final = tuple(name for name in CONFIGURATION if name not in _HOW)


@dataclass(frozen=True)
class ExecutionTax:
    """Of one configuration."""

    best: str
    """The backend with the least latency, which may be its own; with its environment, if that is another."""
    seconds: Estimate
    """Its latency less that of the best, paired by round; 0 for the best itself."""
    share: float
    """Of its latency."""
    by_floors_s: float | None
    """CPU: how much more its floor is than that of the best; null where one of them is not proven."""

    @property
    def unexplained_s(self) -> float | None:
        """What the floors do not explain: kernels, memory, fusion, or what the framework takes beyond its floor."""
        return None if self.by_floors_s is None else self.seconds.value - self.by_floors_s


def execution_of(row: Row) -> Execution:
    return tuple(row[name] for name in (*_WORK, *_HOW))


def execution_taxes(rows: Iterable[Row]) -> dict[Execution, ExecutionTax]:
    """The execution tax of each execution that shares a round of a campaign on a host with another one of its work.

    Backends that compute in fewer bits are held against others, and nothing is held against them.
    """
    found = {}
    works = grouped((row for row in rows if is_ok(row)), lambda row: tuple(row[name] for name in _WORK))
    for work in works.values():
        executions = grouped(work, execution_of)
        latencies = {
            key: by_visit(some, USUAL_LATENCY.on(some[0]["device"]).column) for key, some in executions.items()
        }
        for key in executions:
            tax = _execution_tax(key, executions, latencies)
            if tax is not None:
                found[key] = tax
    return found


def _execution_tax(
    own: Execution, executions: Mapping[Execution, Sequence[Row]], latencies: Mapping[Execution, Mapping[Visit, float]]
) -> ExecutionTax | None:
    """Against the execution whose latency is the least, in the median over the rounds that it shares with this one."""
    ours = latencies[own]
    relative = {}
    for key, theirs in latencies.items():
        shared = set(ours) & set(theirs)
        if key != own and shared and executions[key][0]["backend"] not in NARROWER:
            relative[key] = float(np.median([theirs[visit] / ours[visit] for visit in shared]))
    if not relative:
        return None
    best = min(relative, key=lambda key: (relative[key], str(key)))
    if relative[best] >= 1:
        return ExecutionTax(_name(executions[own][0]), Estimate(0.0, None, None, len(ours), len(ours)), 0.0, 0.0)
    visits = sorted(set(ours) & set(latencies[best]))
    value, low, high = t_interval(np.array([ours[visit] - latencies[best][visit] for visit in visits]))
    floors = [estimate_of(proven(executions[key]), "dispatch_floor_s") for key in (own, best)]
    return ExecutionTax(
        best=_name(executions[best][0], executions[own][0]),
        seconds=Estimate(value, low, high, len(visits), 2 * len(visits)),
        share=value / float(np.mean([ours[visit] for visit in visits])),
        by_floors_s=None if floors[0] is None or floors[1] is None else floors[0].value - floors[1].value,
    )


def _name(row: Row, beside: Row | None = None) -> str:
    name = backend_name(row)
    is_elsewhere = beside is not None and row["environment_id"] != beside["environment_id"]
    return f"{name} in {row['environment']}" if is_elsewhere else name
