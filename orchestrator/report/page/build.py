"""Builds the page of a selection: reads, pools, compares, and says what it did."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from orchestrator.analysis.axes import AXES, Group, Row, columns_of
from orchestrator.analysis.conditions import Condition, Operator, accepted, parse_conditions
from orchestrator.analysis.confounders import Difference
from orchestrator.analysis.explanation import execution_taxes, explain_columns
from orchestrator.analysis.frame import Frame, context_columns
from orchestrator.analysis.pooling import Policy
from orchestrator.analysis.ratios import RATIO_COLUMNS, Ratio, Twin, is_ok
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.summary import FailureGroup
from orchestrator.errors import ConfigurationError
from orchestrator.report.page.cells import (
    Against,
    Cells,
    Mode,
    PageCell,
    Series,
    at_home,
    cells_of,
    commands_of,
    page_cells,
    pairs_of,
    ratios_of,
    series_of,
)
from orchestrator.report.page.facts import FactTable, differences_of, hardware_of, software_of
from orchestrator.report.page.failures import Disturbed, disturbed_of, failures_of
from orchestrator.report.page.places import Coordinates, coordinates
from orchestrator.report.page.roofs import Roof, roofs_of
from orchestrator.report.page.samples import SampleBook, sample_book
from orchestrator.report.page.sql import AND, UNFLAGGED, sql_values
from orchestrator.store import Results
from runners.contract import Status

DEFAULT_BASELINE: Final = "eager"
_COLUMNS: Final = (
    *(*explain_columns(), *columns_of(AXES.values()), *RATIO_COLUMNS),
    *(name for mode in Mode for name in mode.metric.columns),
    *("reason", "replicate", "host", "flops", "weight_bytes", "guard_flags", "hw_id"),
    *("isolation", "environment", "environment_id", "driver_version", "kernel"),
)
"""Of `trials`; samples are read for themselves."""


@dataclass(frozen=True)
class Page:
    """Everything that the page shows, but for the samples. Times are in seconds, rates in operations per second."""

    title: str
    store: str
    """Its place, as it was given."""
    selection: str
    """What was chosen, in words."""
    made_at: datetime
    without_flagged: bool
    """Whether trials that guards flagged are left out of all numbers."""
    sql: str
    """The condition of the trials that numbers are from, for SQL."""
    sql_of_all: str
    """The condition of the selection, with those that are left out of the numbers."""
    commands: Mapping[str, str]
    """What answers with the ratios of a chart, by its name; `{mode}` stands for the latency that is shown."""
    campaigns: tuple[Row, ...]
    """Of `campaigns`, the first that started first."""
    statuses: Mapping[Status, int]
    mode: Mode
    """That is shown first."""
    at: Coordinates
    cells: tuple[PageCell, ...]
    series: tuple[Series, ...]
    roofs: tuple[Roof, ...]
    """Of its systems, from the whole store."""
    baselines: Mapping[Against, int | None]
    """What ratios are against, as positions in `at`; null if it was not measured, or there is one system only."""
    twins: Mapping[Mode, tuple[Twin, ...]]
    """The A/A pairs of the campaigns of the selection, judged together."""
    differences: Mapping[Against, tuple[Difference, ...]]
    hardware: FactTable
    software: FactTable
    failures: tuple[FailureGroup, ...]
    disturbed: Disturbed

    @property
    def is_running(self) -> bool:
        """Whether a campaign of the selection has no end yet."""
        return any(campaign["finished_at"] is None for campaign in self.campaigns)

    def labels(self, against: Against) -> list[str]:
        """What the things are called that ratios of a kind compare."""
        return [named.label for named in (self.at.backends if against is Against.BACKEND else self.at.systems)]

    def position(self, cell: PageCell, against: Against) -> int:
        """The position of a cell among them."""
        return cell.backend if against is Against.BACKEND else self.at.places[cell.place].system

    def ratios(self, against: Against, cells: Iterable[PageCell] | None = None) -> list[Ratio]:
        """The ratios of one kind in the mode that is shown first."""
        chosen = self.cells if cells is None else cells
        return [cell.ratios[against, self.mode] for cell in chosen if (against, self.mode) in cell.ratios]


@dataclass(frozen=True)
class Report:
    page: Page
    samples: SampleBook


def make_report(
    results: Results,
    conditions: Sequence[Condition] = (),
    baselines: Sequence[str] = (),
    without_flagged: bool = False,
    made_at: datetime | None = None,
) -> Report:
    """The page of all trials that meet conditions.

    Args:
        results: of `open_store`.
        conditions: of `parse_conditions`.
        baselines: what ratios are against: a backend (`backend=eager`), and a system (`gpu=V100`, `host=a100-01`);
            by default eager, and the system with the most measured configurations.
        without_flagged: leaves trials that guards flagged out of all numbers; they are counted and told all the same.
        made_at: the moment that the page tells; now, if null.

    Raises:
        ConfigurationError: a value is unknown, no trial meets the conditions, or a baseline means several systems.
    """
    moment = Snapshot.of(results)
    condition = moment.condition(conditions)
    every = moment.rows(_COLUMNS, condition)
    where = [asked.text for asked in conditions]
    if not every:
        why = f"no trial meets {' '.join(where)}" if where else "no trial yet; run `make cluster-sweep`"
        raise ConfigurationError(f"there is nothing to report: {why}")
    sql = _sql(moment, conditions, every)
    rows = at_home(every)
    measured = [row for row in rows if row["replicate"] == 0 and not (without_flagged and row["guard_flags"])]
    if not measured and without_flagged:
        raise ConfigurationError(f"leaves nothing: guards flagged all {len(rows)} trials", key="--without-flagged")
    if not measured:
        raise ConfigurationError("there is nothing to report: only second halves of A/A pairs have ended yet")
    at = coordinates(measured)
    policy = Policy(without_flagged=without_flagged)
    frames = {
        mode: Frame(measured, mode.metric, policy, moment.whole(measured, context_columns(mode.metric)), moment.started)
        for mode in Mode
    }
    cells = cells_of(frames)
    backend, system = _baselines(baselines, measured, at, cells)
    pairs = pairs_of(cells, backend, system)
    there = {row["campaign_id"] for row in every}
    known = [campaign for campaign in moment.campaigns if campaign["campaign_id"] in there]
    campaigns = tuple(sorted(known, key=lambda campaign: (campaign["started_at"], campaign["campaign_id"])))
    shown = page_cells(cells, ratios_of(cells, pairs, frames), at, execution_taxes(measured))
    dimensions = moment.dimensions(measured)
    # On a GPU a call returns before its work is done, and the paper timed back-to-back calls there.
    on_gpu = any(row["device"] != "cpu" and is_ok(row) for row in measured)
    mode = Mode.PIPELINED if on_gpu else Mode.SYNC
    systems = [known.system_id for known in at.systems]
    environments = {str(row["environment_id"]): str(row["environment"]) for row in measured}
    more = [word for text in where for word in ("--where", text)]
    more += ["--without-flagged"] if without_flagged else []
    page = Page(
        title=_title(campaigns),
        store=results.place,
        selection=" ".join(where) or "all trials of the store",
        without_flagged=without_flagged,
        made_at=made_at or datetime.now(UTC),
        sql=AND.join([sql, UNFLAGGED]) if without_flagged else sql,
        sql_of_all=sql,
        commands={
            name: _command(results, [*options, *more]) for name, options in commands_of(cells, backend, system).items()
        },
        campaigns=campaigns,
        statuses=Counter(Status(row["status"]) for row in rows),
        mode=mode,
        at=at,
        cells=shown,
        series=series_of(shown, frames),
        roofs=roofs_of(moment, set(systems), without_flagged=without_flagged),
        baselines={
            Against.BACKEND: None if backend is None else at.backend_of[backend],
            Against.SYSTEM: systems.index(system) if system in systems else None,
        },
        twins={mode: frame.twins for mode, frame in frames.items()},
        differences=differences_of(moment, cells, pairs, mode),
        hardware=hardware_of(at.systems, dimensions),
        software=software_of(cells, environments, dimensions),
        failures=failures_of(rows),
        disturbed=disturbed_of(rows, moment, condition),
    )
    hosts = sorted({row["host"] or "" for row in measured})
    ids = [str(campaign["campaign_id"]) for campaign in campaigns]
    return Report(page, sample_book(moment, condition, shown, ids, hosts))


def _sql(moment: Snapshot, conditions: Sequence[Condition], rows: Sequence[Row]) -> str:
    parts = []
    for condition in conditions:
        if condition.is_recent:
            found = {(row["campaign_id"],) for row in rows}
            parts.append(sql_values(["campaign_id"], found))
        else:
            parts.append(sql_values(condition.axis.columns, moment.raw_values(condition)))
    return AND.join(dict.fromkeys(parts)) or "true"


def _command(results: Results, options: Sequence[str]) -> str:
    """Of `taxmeter compare`, with `{mode}` for the metric: all ratios of the page, whatever its filters leave."""
    return shlex.join(["taxmeter", "compare", "--results", str(results.place), *options]) + " --metric {mode}"


def _baselines(
    texts: Sequence[str], rows: Sequence[Row], at: Coordinates, cells: Cells
) -> tuple[str | None, str | None]:
    backend = DEFAULT_BASELINE if DEFAULT_BASELINE in at.backend_of else None
    system = _most_measured(cells, at)
    for asked in parse_conditions(texts, "--baseline") if texts else ():
        if asked.operator is not Operator.EQUAL or len(asked.values) != 1:
            raise ConfigurationError(f"{asked.text}: expected one value, as {asked.axis.name}=VALUE", key=asked.option)
        if asked.axis.name == "backend":
            (found,) = accepted(asked, {asked.axis.read(row) for row in rows})
            backend = str(found)
        elif asked.axis.group is Group.SYSTEM:
            system = _system(asked, rows)
        else:
            systems = ", ".join(name for name, axis in AXES.items() if axis.group is Group.SYSTEM)
            raise ConfigurationError(f"{asked.text}: expected backend or one of {systems}", key=asked.option)
    return backend, system if len(at.systems) > 1 else None


def _system(asked: Condition, rows: Sequence[Row]) -> str:
    values = accepted(asked, {asked.axis.read(row) for row in rows})
    there = sorted({str(row["system_id"]) for row in rows if asked.axis.read(row) in values and row["system_id"]})
    if len(there) == 1:
        return there[0]
    shown = ", ".join(name[:12] for name in there)
    raise ConfigurationError(
        f"{asked.text} means {len(there)} systems ({shown}); write system=ID, or host=NAME", key=asked.option
    )


def _most_measured(cells: Cells, at: Coordinates) -> str | None:
    counts: Counter[str] = Counter()
    for key, cell in cells.items():
        if cell[Mode.SYNC].measured:
            counts[str(key[0])] += 1
    order = [system.system_id for system in at.systems]
    return min(counts, key=lambda name: (-counts[name], order.index(name)), default=None)


def _title(campaigns: Sequence[Row]) -> str:
    if len(campaigns) == 1:
        return f"Campaign {campaigns[0]['campaign_id']}"
    sweeps = sorted({str(campaign["sweep"]) for campaign in campaigns})
    return f"{len(campaigns)} campaigns of {', '.join(sweeps[:3])}" + (" and others" if len(sweeps) > 3 else "")
