"""All that the store can say about one configuration, and what it lacks to say more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from orchestrator.analysis.explaining.backends import Alternative, alternatives
from orchestrator.analysis.explaining.execution import ExecutionTax, execution_of, execution_taxes
from orchestrator.analysis.explaining.free import FreeBatch, Variant, free_batch
from orchestrator.analysis.explaining.processes import Row, by_visit, countable, is_ok, loads, pace, siblings
from orchestrator.analysis.explaining.shapes import point_of, variants
from orchestrator.analysis.explaining.tax import Tax, tax_of
from orchestrator.analysis.floors import with_common_floors
from orchestrator.analysis.ratios import Priors
from orchestrator.analysis.shape import Shape, backend_name, shape_of
from orchestrator.analysis.summary import last_attempts
from orchestrator.analysis.transition import Transition, transition
from runners.contract import Status

ENOUGH_ROUNDS = 3
"""With fewer, intervals say next to nothing: Student's t for two rounds is thirteen errors wide to either side."""


class Lack(Enum):
    """What an explanation misses."""

    ROUNDS = "rounds"
    TAX = "tax"
    """The measurement that tells framework and device apart."""
    BATCHES = "batches"
    LARGER_BATCHES = "larger batches"
    BACKENDS = "backends"
    VARIANTS = "variants"


@dataclass(frozen=True)
class Failed:
    """A trial of the configuration that did not end well."""

    status: Status
    reason: str | None
    count: int


@dataclass(frozen=True)
class Explanation:
    """Of one configuration on one system."""

    row: Row
    """One of its trials, for what all of them share."""
    shape: Shape
    batch: int
    backend: str
    campaigns: tuple[str, ...]
    hosts: tuple[str, ...]
    tax: Tax
    execution: ExecutionTax | None
    """Null where no other backend shares a round with it."""
    failed: tuple[Failed, ...]
    transition: Transition | None
    free: FreeBatch | None
    variants: tuple[Variant, ...]
    alternatives: tuple[Alternative, ...]
    lacks: tuple[Lack, ...]


def explain(rows: Iterable[Row], target: Row) -> Explanation:
    """Explains a configuration.

    Args:
        rows: with the columns of `explain_columns`: at least all trials of its system.
        target: one of them, of the configuration that is asked about.
    """
    rows = last_attempts([dict(row) for row in rows])
    every = with_common_floors(countable(rows))
    device = target["device"]
    ours = siblings(every, target)
    tax = tax_of(ours, device)
    series = _by_batch(siblings(every, target, but=("batch",)))
    others = alternatives(siblings(every, target, but=("backend", "backend_options")), ours, device, Priors(rows))
    same_work = siblings(every, target, but=("backend", "backend_options", "environment_id"))
    shapes = variants(every, target)
    changing = _transition(series, device)
    free = free_batch({batch: by_visit(some, pace(device)) for batch, some in series.items()})
    return Explanation(
        row=target,
        shape=shape_of(dict(target)),
        batch=target["batch"],
        backend=backend_name(dict(target)),
        campaigns=tuple(sorted({row["campaign_id"] for row in ours})),
        hosts=tuple(sorted({row["host"] for row in ours if row["host"]})),
        tax=tax,
        execution=execution_taxes(same_work).get(execution_of(target)),
        failed=_failed(ours),
        transition=changing,
        free=free,
        variants=shapes,
        alternatives=others,
        lacks=_lacks(tax, changing, free, others, needs_variants=not shapes and point_of(target) is not None),
    )


def _by_batch(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        if is_ok(row):
            found.setdefault(row["batch"], []).append(row)
    return found


def _transition(series: dict[int, list[Row]], device: str) -> Transition | None:
    known = {batch: loads(rows, device) for batch, rows in series.items()}
    usable = {batch: visits for batch, visits in known.items() if visits}
    return transition(usable) if len(usable) > 1 else None


def _failed(rows: Sequence[Row]) -> tuple[Failed, ...]:
    counts: dict[tuple[str, str | None], int] = {}
    for row in rows:
        if not is_ok(row):
            counts[row["status"], row["reason"]] = counts.get((row["status"], row["reason"]), 0) + 1
    return tuple(Failed(Status(status), reason, count) for (status, reason), count in counts.items())


def _lacks(
    tax: Tax,
    changing: Transition | None,
    free: FreeBatch | None,
    others: Sequence[Alternative],
    *,
    needs_variants: bool,
) -> tuple[Lack, ...]:
    missing = {
        Lack.ROUNDS: tax.processes < ENOUGH_ROUNDS,
        Lack.TAX: tax.load is None,
        Lack.BATCHES: free is None,
        # Where everything measured is free, the end of it is what is not known.
        Lack.LARGER_BATCHES: free is not None and (free.next_batch is None or _is_above(changing)),
        Lack.BACKENDS: not any(one.speedup for one in others),
        Lack.VARIANTS: needs_variants,
    }
    return tuple(lack for lack, is_missing in missing.items() if is_missing)


def _is_above(changing: Transition | None) -> bool:
    return changing is not None and changing.side.value == "above"
