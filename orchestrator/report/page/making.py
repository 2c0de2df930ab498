"""Makes the page of a selection: reads, pools, compares, and says what it did."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.analysis.axes import AXES, Group
from orchestrator.analysis.conditions import Condition, Operator, accepted, parse_conditions
from orchestrator.analysis.explanation import execution_taxes
from orchestrator.analysis.frame import Frame
from orchestrator.analysis.pooling import Policy
from orchestrator.analysis.ratios import is_ok
from orchestrator.errors import ConfigurationError
from orchestrator.report.page.cells import Cells, at_home, cells_of, page_cell, series_of
from orchestrator.report.page.choosing import AND, UNFLAGGED, Chosen, choose
from orchestrator.report.page.facts import differences_of, hardware_table, software_table
from orchestrator.report.page.model import Baselines, CampaignInfo, Mode, Page
from orchestrator.report.page.places import Coordinates, coordinates
from orchestrator.report.page.ratios import commands_of, pairs_of, timings_of
from orchestrator.report.page.roofs import roofs_of
from orchestrator.report.page.samples import SampleBook, sample_book
from orchestrator.report.page.troubles import failures_of, flagged_of
from orchestrator.store import Results, Selection
from runners.contract import Status

Row = dict[str, Any]

DEFAULT_BASELINE: Final = "eager"


@dataclass(frozen=True)
class Report:
    """A page and its samples."""

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
        StoreError: a file cannot be read.
    """
    chosen = choose(results, conditions)
    rows = at_home(chosen.rows)
    measured = [row for row in rows if row["replicate"] == 0 and not (without_flagged and row["guard_flags"])]
    if not measured and without_flagged:
        raise ConfigurationError(f"leaves nothing: guards flagged all {len(rows)} trials", key="--without-flagged")
    if not measured:
        raise ConfigurationError("there is nothing to report: only second halves of A/A pairs have ended yet")
    at = coordinates(measured)
    cells = cells_of(measured, chosen.moment.started)
    backend, system = _baselines(baselines, measured, at, cells)
    pairs = pairs_of(cells, backend, system)
    asked = commands_of(cells, backend, system).items()
    campaigns = _campaigns(chosen)
    names = {row["campaign_id"] for row in measured}
    policy = Policy(without_flagged=without_flagged)
    frames = {mode: Frame((), mode.metric, policy, chosen.moment.whole(names, mode.metric)) for mode in Mode}
    priors = {mode: frame.priors for mode, frame in frames.items()}
    timings = timings_of(cells, pairs, priors)
    taxes = execution_taxes(measured)
    shown = tuple(page_cell(key, cell, timings[key], at, taxes) for key, cell in cells.items())
    dimensions = chosen.moment.dimensions()
    mode = _first_mode(measured)
    environments = {str(row["environment_id"]): str(row["environment"]) for row in measured}
    page = Page(
        title=_title(campaigns),
        store=results.place,
        selection=_selection(chosen),
        without_flagged=without_flagged,
        made_at=made_at or datetime.now(UTC),
        sql=AND.join([chosen.sql, UNFLAGGED]) if without_flagged else chosen.sql,
        sql_of_all=chosen.sql,
        commands={name: _command(results, chosen, options, without_flagged=without_flagged) for name, options in asked},
        campaigns=campaigns,
        statuses=Counter(Status(row["status"]) for row in rows),
        mode=mode,
        systems=at.systems,
        places=at.places,
        shapes=at.shapes,
        backends=at.backends,
        axes=at.axes,
        cells=shown,
        series=series_of(shown),
        roofs=roofs_of(chosen.moment, {one.system_id for one in at.systems}, without_flagged=without_flagged),
        baselines=Baselines(
            None if backend is None else at.backend_of[backend],
            next((number for number, one in enumerate(at.systems) if one.system_id == system), None),
        ),
        twins={mode: frame.twins for mode, frame in frames.items()},
        differences=differences_of(chosen.moment, chosen.condition, cells, pairs, mode),
        hardware=hardware_table(at.systems, dimensions),
        software=software_table(cells, environments, dimensions),
        failures=failures_of(rows),
        flagged=flagged_of(rows, chosen.moment, chosen.condition),
        flagged_trials=sum(bool(row["guard_flags"]) for row in rows),
        watched_trials=sum(row["guard_flags"] is not None for row in rows),
        is_running=any(one.finished_at is None for one in campaigns),
    )
    hosts = sorted({row["host"] or "" for row in measured})
    names_of_campaigns = [one.campaign_id for one in campaigns]
    samples = sample_book(chosen.moment, chosen.condition, shown, names_of_campaigns, hosts)
    return Report(page, samples)


def _command(results: Results, chosen: Chosen, options: Sequence[str], *, without_flagged: bool) -> str:
    """Of `taxmeter compare`, with `{mode}` for the metric: all ratios of the page, whatever its filters leave."""
    conditions = [word for text in chosen.where for word in ("--where", text)]
    more = ["--without-flagged"] if without_flagged else []
    words = ["taxmeter", "compare", "--results", str(results.place), *options, *conditions, *more]
    return shlex.join(words) + " --metric {mode}"


def _baselines(
    texts: Sequence[str], rows: Sequence[Row], at: Coordinates, cells: Cells
) -> tuple[str | None, str | None]:
    backend = DEFAULT_BASELINE if DEFAULT_BASELINE in at.backend_of else None
    system = _most_measured(cells, at)
    for one in parse_conditions(texts, "--baseline") if texts else ():
        if one.operator is not Operator.EQUAL or len(one.values) != 1:
            raise ConfigurationError(f"{one.text}: expected one value, as {one.axis.name}=VALUE", key=one.option)
        if one.axis.name == "backend":
            (found,) = accepted(one, {one.axis.read(row) for row in rows})
            backend = str(found)
        elif one.axis.group is Group.SYSTEM:
            system = _system(one, rows)
        else:
            systems = ", ".join(name for name, where in AXES.items() if where.group is Group.SYSTEM)
            raise ConfigurationError(f"{one.text}: expected backend or one of {systems}", key=one.option)
    return backend, system if len(at.systems) > 1 else None


def _system(one: Condition, rows: Sequence[Row]) -> str:
    values = accepted(one, {one.axis.read(row) for row in rows})
    there = sorted({str(row["system_id"]) for row in rows if one.axis.read(row) in values and row["system_id"]})
    if len(there) == 1:
        return there[0]
    shown = ", ".join(name[:12] for name in there)
    raise ConfigurationError(
        f"{one.text} means {len(there)} systems ({shown}); write system=ID, or host=NAME", key=one.option
    )


def _most_measured(cells: Cells, at: Coordinates) -> str | None:
    counts: Counter[str] = Counter()
    for key, cell in cells.items():
        if cell[Mode.SYNC].measured:
            counts[str(key[0])] += 1
    order = [one.system_id for one in at.systems]
    return min(counts, key=lambda name: (-counts[name], order.index(name)), default=None)


def _first_mode(rows: Sequence[Row]) -> Mode:
    """On a GPU a call returns before its work is done, and the paper timed back-to-back calls there."""
    return Mode.PIPELINED if any(row["device"] != "cpu" and is_ok(row) for row in rows) else Mode.SYNC


def _campaigns(chosen: Chosen) -> tuple[CampaignInfo, ...]:
    used = {row["campaign_id"] for row in chosen.rows}
    columns = ("campaign_id", "sweep", "started_at", "finished_at", "planned_trials")
    known = {
        row["campaign_id"]: row for row in Selection(chosen.moment.view, "campaigns", None, columns).arrow().to_pylist()
    }
    found = [
        CampaignInfo(
            name,
            row.get("sweep") or "unknown",
            row.get("started_at"),
            row.get("finished_at"),
            row.get("planned_trials"),
        )
        for name in used
        for row in [known.get(name, {})]
    ]
    return tuple(sorted(found, key=lambda one: (one.started_at is None, one.started_at, one.campaign_id)))


def _title(campaigns: Sequence[CampaignInfo]) -> str:
    if len(campaigns) == 1:
        return f"Campaign {campaigns[0].campaign_id}"
    sweeps = sorted({one.sweep for one in campaigns})
    return f"{len(campaigns)} campaigns of {', '.join(sweeps[:3])}" + (" and others" if len(sweeps) > 3 else "")


def _selection(chosen: Chosen) -> str:
    if not chosen.where:
        return "all trials of the store"
    return " ".join(chosen.where)
