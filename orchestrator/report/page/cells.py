"""The cells of a page: what analysis says of each configuration in each place, and against what it is held.

Verdicts are reached for all ratios of a page of one kind and latency together (Holm), as `taxmeter compare` does for a
table: who looks at a page looks at all of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final

from orchestrator.analysis.axes import AXES, Key, Row, axes, columns_of, grouped
from orchestrator.analysis.explanation import ExecutionTax, FreeBatch, execution_of, free_batch
from orchestrator.analysis.explanation.call import Execution
from orchestrator.analysis.frame import Cell, Frame
from orchestrator.analysis.metrics import METRICS, Metric
from orchestrator.analysis.ratios import Ratio, is_ok
from orchestrator.analysis.tax import Tax, tax_of
from orchestrator.analysis.transition import Transition, transition_of
from orchestrator.report.page.places import KEY, PLACE, SHAPE, Coordinates

Pair = tuple[Key, Key]

_HOME: Final = axes(("system", "environment", "isolation", "method"))
"""What the place of a trial that never ran is known by: nobody looked into its environment."""
_NAMES: Final = tuple(axis.name for axis in KEY)
_BACKEND: Final = _NAMES.index("backend")
_SYSTEM: Final = _NAMES.index("system")
_ENVIRONMENT: Final = _NAMES.index("environment")
_ENVIRONMENT_ID: Final = _NAMES.index("environment_id")
_OF_A_PLACE: Final = {axis.name for axis in PLACE} - {"isolation", "method"}
"""Names of the axes on which a cell and that on another system may differ."""
_MATCHED: Final = tuple(number for number, name in enumerate(_NAMES) if name not in _OF_A_PLACE)
"""What two cells on different systems share, so that their ratio means the hardware."""


class Mode(Enum):
    """Which latency a chart is about; the two are never in one chart."""

    SYNC = "latency_sync"
    PIPELINED = "latency_pipelined"

    @property
    def metric(self) -> Metric:
        return METRICS[self.value]

    @property
    def samples(self) -> str:
        return {"latency_sync": "samples_sync_s", "latency_pipelined": "samples_pipelined_s"}[self.value]


Cells = Mapping[Key, Mapping[Mode, Cell]]
Frames = Mapping[Mode, Frame]
"""Of the whole campaigns of a page."""


class Against(Enum):
    """What a ratio of a page is against; above 1 is faster."""

    BACKEND = "backend"
    """The baseline backend in the same place."""
    SYSTEM = "system"
    """The same work and backend on the baseline system."""


Pairs = Mapping[Against, Sequence[Pair]]
"""Which cell is compared with which, the cell first."""
Ratios = Mapping[tuple[Against, Mode], Mapping[Key, Ratio]]


@dataclass(frozen=True)
class PageCell:
    """All processes of one configuration in one place."""

    key: Key
    place: int
    shape: int
    backend: int
    of: Mapping[Mode, Cell]
    """With its latency in each mode; the trials are the same."""
    ratios: Mapping[tuple[Against, Mode], Ratio]
    """Those that there are."""
    tax: Tax
    execution: ExecutionTax | None
    """Null where no other backend of its work shares a round with it."""

    @property
    def batch(self) -> int:
        """Examples per call."""
        return int(self.key[-1] or 0)

    @property
    def device(self) -> str:
        return str(self.key[_NAMES.index("device")])

    @property
    def trials(self) -> Cell:
        """As they ended."""
        return self.of[Mode.SYNC]

    @cached_property
    def ok(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(row for row in self.trials.rows if is_ok(row))

    def first(self, column: str) -> float | None:
        """What its trials say in a column that depends on the configuration alone; null where it was not counted."""
        return next((float(row[column]) for row in self.ok if row[column]), None)


@dataclass(frozen=True)
class Series:
    """One backend over the batches of a shape in a place: where its regime changes, and what is free."""

    place: int
    shape: int
    backend: int
    transition: Transition | None
    is_lower_bound: bool
    """The transition may lie at a larger batch: on a CPU it follows from a floor."""
    free: FreeBatch | None


def at_home(rows: Sequence[Row]) -> list[Row]:
    """Trials that never ran, in the environment in which others of their place did run.

    Their `environment_id` is that of the environment as declared; of those that ran it is what was seen inside.
    """
    columns = (*columns_of(_HOME), "environment_id")
    seen = {tuple(row[name] for name in columns) for row in rows if is_ok(row)}
    ran: dict[Key, str] = {}
    for raw in sorted(seen, key=repr):
        ran.setdefault(raw[:-1], raw[-1])
    found = []
    for row in rows:
        raw = tuple(row[name] for name in columns)
        is_stray = not is_ok(row) and raw not in seen and ran.get(raw[:-1]) is not None
        found.append({**row, "environment_id": ran[raw[:-1]]} if is_stray else row)
    return found


def cells_of(frames: Frames) -> Cells:
    """Trials by whatever must not be pooled, with both latencies."""
    by_mode = {mode: frame.cells(KEY) for mode, frame in frames.items()}
    return {key: {mode: cells[key] for mode, cells in by_mode.items()} for key in by_mode[Mode.SYNC]}


def pairs_of(cells: Cells, backend: str | None, system: str | None) -> Pairs:
    """The pairs of cells that ratios are made of."""
    beside, across = [], []
    there = grouped((key for key in cells if key[_SYSTEM] == system), _work)
    for key in cells:
        base = (*key[:_BACKEND], backend, *key[_BACKEND + 1 :])
        if key != base and base in cells:
            beside.append((key, base))
        other = _counterpart(key, there.get(_work(key), ()))
        if key[_SYSTEM] != system and other is not None:
            across.append((key, other))
    return {Against.BACKEND: beside, Against.SYSTEM: across}


def commands_of(cells: Iterable[Key], backend: str | None, system: str | None) -> dict[str, tuple[str, ...]]:
    """What asks `taxmeter compare` for the ratios of a page, by the name of the chart: its options."""
    keys = list(cells)
    varying = [name for number, name in enumerate(_NAMES) if len({key[number] for key in keys}) > 1]
    work = ["workload", *(name for name in varying if name not in ("workload", "backend"))]
    across = [*(name for name in work if name not in _OF_A_PLACE or name == "environment"), "backend"]
    found: dict[str, tuple[str, ...]] = {}
    if backend is not None:
        found["speedups"] = ("--rows", ",".join(work), "--cols", "backend", "--baseline", f"backend={backend}")
    if system is not None:
        found["hardware"] = ("--rows", ",".join(across), "--cols", "system", "--baseline", f"system={system}")
    return found


def ratios_of(cells: Cells, pairs: Pairs, frames: Frames) -> Ratios:
    """All ratios of a page; those of one kind and latency judged together."""
    found = {}
    for against, some in pairs.items():
        for mode, frame in frames.items():
            ratios = frame.compared((cells[key][mode], cells[base][mode]) for key, base in some)
            known = zip(some, ratios, strict=True)
            found[against, mode] = {key: ratio for (key, _), ratio in known if ratio is not None}
    return found


def page_cells(
    cells: Cells, ratios: Ratios, at: Coordinates, taxes: Mapping[Execution, ExecutionTax]
) -> tuple[PageCell, ...]:
    found = []
    for key, cell in cells.items():
        ok = [row for row in cell[Mode.SYNC].rows if is_ok(row)]
        found.append(
            PageCell(
                key=key,
                place=at.place_of[key[: len(PLACE)]],
                shape=at.shape_of[key[len(PLACE) : len(PLACE) + len(SHAPE)]],
                backend=at.backend_of[key[_BACKEND]],
                of=cell,
                ratios={kind: some[key] for kind, some in ratios.items() if key in some},
                tax=tax_of(ok, str(key[KEY.index(AXES["device"])])),
                execution=taxes.get(execution_of(ok[0])) if ok else None,
            )
        )
    return tuple(found)


def series_of(cells: Sequence[PageCell], frames: Frames) -> tuple[Series, ...]:
    """Where the regime of each backend changes over the batches, and which batch is free."""
    groups = grouped((cell for cell in cells if cell.ok), lambda cell: (cell.place, cell.shape, cell.backend))
    found = []
    for (place, shape, backend), some in sorted(groups.items()):
        if len(some) < 2:
            continue
        device = some[0].device
        frame = frames[Mode.SYNC if device == "cpu" else Mode.PIPELINED]
        trials = {cell.batch: cell.ok for cell in some}
        change, free = transition_of(trials, device), free_batch(trials, frame)
        found.append(Series(place, shape, backend, change, device == "cpu", free))
    return tuple(found)


def _work(key: Key) -> Key:
    return tuple(key[number] for number in _MATCHED)


def _counterpart(key: Key, found: Sequence[Key]) -> Key | None:
    """The cell on the other system: of the same environment, else the only one of an environment of the same name."""
    for number in (_ENVIRONMENT_ID, _ENVIRONMENT):
        same = [other for other in found if other[number] == key[number]]
        if len(same) == 1:
            return same[0]
    return None
