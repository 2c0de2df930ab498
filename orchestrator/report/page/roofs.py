"""Roofs of systems: the best rates that were measured on them, wherever in the store they are.

The flat part of a roof is the best rate of a large product of matrices, the slanted one the best rate of the triad of
STREAM: `runners.contract.catalogue.roofs`.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import pyarrow.compute as pc

from orchestrator.analysis.axes import DEFAULTS, Value, backend_text, options_text
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.store import Results
from runners.contract import Status, WorkloadSpec
from runners.contract.catalogue import BACKENDS, moved_bytes
from runners.contract.catalogue.roofs import GEMM, TRIAD, TRIAD_LEAST_BYTES

Row = Mapping[str, Any]

PACES: Final = ("busy_s", "latency_pipelined_median_s", "latency_sync_median_s")
"""The time of a call, the first that was measured: on a GPU that in which the device works. A processor is given no
floor back, for it is a millionth of such calls."""
NARROWER: Final = tuple(name for name, info in BACKENDS.items() if info.is_narrower)
"""Backends whose operations are not those of the dtype: they are in no roof."""
_COLUMNS: Final = (
    *("campaign_id", "trial_key", "system_id", "device", "dtype", "threads", "workload", "workload_options", "batch"),
    *("backend", "backend_options", "environment", "guard_flags"),
    *PACES,
)


@dataclass(frozen=True)
class Ceiling:
    """The best rate of a kind, and which configuration reached it: the median over its processes of one campaign."""

    rate: float
    """Operations or bytes per second."""
    work: str
    dtype: str
    backend: str
    environment: str
    campaign_id: str
    processes: int
    flagged: int
    """Processes that a guard flags: a disturbed roof is too low."""


@dataclass(frozen=True)
class Roof:
    """What a device of a system reaches."""

    system_id: str
    device: str
    threads: int | None
    """On a GPU null: what it reaches is no matter of the host's threads."""
    arithmetic: Mapping[str, Ceiling]
    """Operations per second, by dtype."""
    bandwidth: Ceiling | None
    """Bytes per second, in whichever dtype they were moved fastest: to a memory they are alike. Null if no triad was
    measured."""

    def is_over(self, values: Mapping[str, Value]) -> bool:
        """Whether work with these values of axes has it for its roof."""
        threads = values["threads"] if self.device == "cpu" else None
        has_part = self.bandwidth is not None or values["dtype"] in self.arithmetic
        return has_part and (self.device, self.threads) == (values["device"], threads)


def measured_roofs(results: Results, systems: Collection[str] | None = None) -> tuple[Roof, ...]:
    """The roofs that a store knows.

    Args:
        results: of `open_store`.
        systems: identities of systems; all if null.

    Raises:
        StoreError: a file cannot be read.
    """
    return roofs_of(Snapshot.of(results), systems)


def roofs_of(
    moment: Snapshot, systems: Collection[str] | None = None, *, without_flagged: bool = False
) -> tuple[Roof, ...]:
    """The same of one moment of the store.

    Args:
        moment: where they are looked for, in all campaigns.
        systems: identities of systems; all if null.
        without_flagged: leaves trials that guards flagged out.

    Raises:
        StoreError: a file cannot be read.
    """
    if systems is not None and not systems:
        return ()
    wanted = pc.field("workload").isin([GEMM, TRIAD]) & (pc.field("status") == Status.OK.value)
    wanted &= (pc.field("replicate") == 0) & pc.field("system_id").is_valid() & ~pc.field("backend").isin(NARROWER)
    if systems is not None:
        wanted &= pc.field("system_id").isin(list(systems))
    rows = [row for row in moment.rows(_COLUMNS, wanted) if not (without_flagged and row["guard_flags"])]
    best: dict[tuple[str, str, int | None], dict[str, Ceiling]] = {}
    for cell in _grouped(rows, ("campaign_id", "trial_key", "system_id", "device", "dtype", "threads")):
        first, found = cell[0], _ceiling(cell)
        if found is None:
            continue
        threads = first["threads"] if first["device"] == "cpu" else None
        roof = best.setdefault((first["system_id"], first["device"], threads), {})
        part = TRIAD if first["workload"] == TRIAD else first["dtype"]
        if part not in roof or found.rate > roof[part].rate:
            roof[part] = found
    return tuple(
        Roof(*key, {dtype: one for dtype, one in sorted(found.items()) if dtype != TRIAD}, found.get(TRIAD))
        for key, found in sorted(best.items(), key=lambda item: repr(item[0]))
    )


def _grouped(rows: Iterable[Row], names: Sequence[str]) -> list[list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(found.values())


def _ceiling(rows: Sequence[Row]) -> Ceiling | None:
    """The rate of one configuration; null where its time is unknown, or its arrays may stay in a cache."""
    first = rows[0]
    amount = _operations(first) if first["workload"] == GEMM else _bytes(first)
    seconds = _seconds(rows)
    if not seconds or (first["workload"] == TRIAD and amount < TRIAD_LEAST_BYTES):
        return None
    options = options_text(first["workload"], first["workload_options"])
    return Ceiling(
        rate=amount / seconds,
        work=first["workload"] if options == DEFAULTS else f"{first['workload']}, {options}",
        dtype=first["dtype"],
        backend=backend_text(first["backend"], first["backend_options"]),
        environment=first["environment"],
        campaign_id=first["campaign_id"],
        processes=len(rows),
        flagged=sum(bool(row["guard_flags"]) for row in rows),
    )


def _seconds(rows: Sequence[Row]) -> float | None:
    for name in PACES:
        known = [row[name] for row in rows if row[name] is not None]
        if known:
            return float(median(known))
    return None


def _operations(row: Row) -> int:
    """Of a product of square matrices; versions of torch before 2.1 count none."""
    width = int(json.loads(row["workload_options"])["width"])
    return 2 * int(row["batch"]) * width**3


def _bytes(row: Row) -> int:
    options = json.loads(row["workload_options"])
    moved = moved_bytes(WorkloadSpec(row["workload"], row["batch"], options=options), row["dtype"])
    assert moved is not None
    return moved
