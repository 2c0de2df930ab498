"""The cells of a page: all processes of one configuration in one place, their latencies and what they consist of."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from orchestrator.analysis.axes import AXES, Value, axes, columns_of, values_of
from orchestrator.analysis.explanation import ExecutionTax, execution_of, free_batch, transition
from orchestrator.analysis.explanation.execution import Execution
from orchestrator.analysis.explanation.tax import tax_of
from orchestrator.analysis.frame import Cell, make_cells
from orchestrator.analysis.pooling import Policy
from orchestrator.analysis.ratios import by_visit, is_ok
from orchestrator.analysis.tax import loads, pace
from orchestrator.report.page.model import Mode, PageCell, Parts, Series, Timing
from orchestrator.report.page.places import KEY, PLACE, SHAPE, Coordinates

Row = dict[str, Any]
Key = tuple[Value, ...]
Cells = Mapping[Key, Mapping[Mode, Cell]]

_KEY: Final = "page key"
_COLUMNS: Final = tuple(columns_of(KEY))
_HOME: Final = axes(("system", "environment", "isolation", "method"))
"""What the place of a trial that never ran is known by: nobody looked into its environment."""


def at_home(rows: Sequence[Row]) -> list[Row]:
    """Trials that never ran, in the environment in which others of their place did run.

    Their `environment_id` is that of the environment as declared; of those that ran it is what was seen inside.
    """
    columns = (*columns_of(_HOME), "environment_id")
    ran: dict[Key, str] = {}
    for raw in sorted({tuple(row[name] for name in columns) for row in rows if is_ok(row)}, key=repr):
        ran.setdefault(raw[:-1], raw[-1])
    seen = {tuple(row[name] for name in columns) for row in rows if is_ok(row)}
    found = []
    for row in rows:
        raw = tuple(row[name] for name in columns)
        is_stray = not is_ok(row) and raw not in seen and ran.get(raw[:-1]) is not None
        found.append({**row, "environment_id": ran[raw[:-1]]} if is_stray else row)
    return found


def cells_of(rows: Sequence[Row], started: Mapping[str, datetime]) -> Cells:
    """Trials by whatever must not be pooled, with both latencies.

    Args:
        rows: of `at_home`.
        started: when each campaign started.
    """
    known: dict[tuple[Any, ...], Key] = {}
    keyed = []
    for row in rows:
        raw = tuple(row[name] for name in _COLUMNS)
        if raw not in known:
            known[raw] = values_of(row, KEY)
        keyed.append({**row, _KEY: known[raw]})
    by_mode = {
        mode: make_cells(keyed, lambda row: row[_KEY], KEY, mode.metric, Policy(mode.metric), started) for mode in Mode
    }
    return {key: {mode: by_mode[mode][key] for mode in Mode} for key in by_mode[Mode.SYNC]}


def page_cell(
    key: Key,
    cell: Mapping[Mode, Cell],
    timings: Mapping[Mode, Timing],
    at: Coordinates,
    taxes: Mapping[Execution, ExecutionTax],
) -> PageCell:
    """A cell as the page shows it."""
    rows = cell[Mode.SYNC].rows
    ok = [row for row in rows if is_ok(row)]
    device = str(key[KEY.index(AXES["device"])])
    return PageCell(
        place=at.place_of[key[: len(PLACE)]],
        shape=at.shape_of[key[len(PLACE) : len(PLACE) + len(SHAPE)]],
        backend=at.backend_of[key[-2]],
        batch=int(key[-1] or 0),
        device=device,
        timings=timings,
        parts=_parts(ok, device),
        execution=taxes.get(execution_of(ok[0])) if ok else None,
        flops=next((float(row["flops"]) for row in ok if row["flops"]), None),
        weight_bytes=next((float(row["weight_bytes"]) for row in ok if row["weight_bytes"]), None),
        statuses=cell[Mode.SYNC].statuses,
        reason=next(iter(cell[Mode.SYNC].reasons), None),
        flagged=sum(bool(row["guard_flags"]) for row in ok),
        unsteady=sum(row["steady"] is False for row in ok),
        rows=tuple(ok),
    )


def series_of(cells: Sequence[PageCell]) -> tuple[Series, ...]:
    """Where the regime of each backend changes over the batches, and which batch is free."""
    groups: dict[tuple[int, int, int], list[PageCell]] = {}
    for cell in cells:
        if cell.rows:
            groups.setdefault((cell.place, cell.shape, cell.backend), []).append(cell)
    found = []
    for (place, shape, backend), some in sorted(groups.items()):
        if len(some) < 2:
            continue
        device = some[0].device
        usable = {cell.batch: visits for cell in some if (visits := loads(cell.rows, device))}
        free = free_batch({cell.batch: by_visit(cell.rows, pace(device)) for cell in some})
        found.append(
            Series(place, shape, backend, transition(usable) if len(usable) > 1 else None, device == "cpu", free)
        )
    return tuple(found)


def _parts(ok: Sequence[Mapping[str, Any]], device: str) -> Parts:
    tax = tax_of(ok, device)
    parts = tax.parts
    fraction = parts.get("framework_fraction")
    floor = parts.get("dispatch_floor_s") if fraction is not None else None
    return Parts(
        overhead=floor if device == "cpu" else parts.get("exposed_overhead_s"),
        busy=parts.get("busy_s"),
        dispatch=parts.get("dispatch_s"),
        fraction=fraction,
        regime=tax.regime,
        is_by_lower_bound=tax.is_by_lower_bound,
        is_decided=tax.is_decided,
    )
