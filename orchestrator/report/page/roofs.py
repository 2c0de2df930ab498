"""Roofs of systems: the best rates that were measured on them, wherever in the store they are.

The flat part of a roof is the best rate of a large product of matrices, the slanted one the best rate of the triad of
STREAM: `runners.contract.catalogue.roofs`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.axes import DEFAULTS, Row, Value, backend_text, options_text
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.report.page.sql import rates_query
from orchestrator.store.query.sql import connect, query_errors
from runners.contract.catalogue.roofs import GEMM, TRIAD

_NAMED: Final = ", ".join(
    (
        *("", "any_value(workload) AS work", "any_value(workload_options) AS work_options"),
        *("any_value(backend) AS how", "any_value(backend_options) AS how_options", "any_value(environment) AS stack"),
        *("count(*) AS processes", "count(*) FILTER (len(guard_flags) > 0) AS flagged"),
    )
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


def roofs_of(
    moment: Snapshot, systems: Collection[str] | None = None, *, without_flagged: bool = False
) -> tuple[Roof, ...]:
    if systems is not None and not systems:
        return ()
    query = rates_query(without_flagged=without_flagged, columns=_NAMED)
    with query_errors(connection := connect(moment.view, names=("trials",)), query):
        rows = connection.sql(f"{query} ORDER BY ALL").to_arrow_table().to_pylist()
    best: dict[tuple[str, str, int | None], dict[str, Ceiling]] = {}
    for row in rows:
        rate = row["flop_per_s"] if row["work"] == GEMM else row["bytes_per_s"]
        if not rate or (systems is not None and row["system_id"] not in systems):
            continue
        threads = row["roof_threads"] if row["device"] == "cpu" else None
        roof = best.setdefault((row["system_id"], row["device"], threads), {})
        part = TRIAD if row["work"] == TRIAD else row["dtype"]
        if part not in roof or rate > roof[part].rate:
            roof[part] = _ceiling(row, rate)
    return tuple(
        Roof(*key, {dtype: rate for dtype, rate in sorted(found.items()) if dtype != TRIAD}, found.get(TRIAD))
        for key, found in sorted(best.items(), key=lambda item: repr(item[0]))
    )


def _ceiling(row: Row, rate: float) -> Ceiling:
    options = options_text(row["work"], row["work_options"])
    return Ceiling(
        rate=rate,
        work=row["work"] if options == DEFAULTS else f"{row['work']}, {options}",
        dtype=row["dtype"],
        backend=backend_text(row["how"], row["how_options"]),
        environment=row["stack"],
        campaign_id=row["campaign_id"],
        processes=row["processes"],
        flagged=row["flagged"],
    )
