"""From the trials of a store to the sheet of each figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path

from matplotlib.figure import Figure

from orchestrator.analysis.paper import TIMED_AS_THE_PAPER, Gathered, Published, State, Trials, Wanted, wanted_of
from orchestrator.config import load_sweep
from orchestrator.report.figures.canvas import sheet
from orchestrator.report.figures.catalogue import Kind, Spec
from orchestrator.report.figures.lines import (
    Panels,
    draw_panel,
    generation_panels,
    legend_of,
    line_panels,
    pair_panels,
)
from orchestrator.report.figures.macs import MacsPanel, draw_macs, macs_legend, macs_panels
from orchestrator.report.figures.small_print import completeness, small_print, sweep_names
from orchestrator.report.figures.split import draw_parts, draw_shares, split_legend, split_panels
from orchestrator.report.figures.tables import Table, draw_table, frameworks_table, hardware_table, sizes_table
from orchestrator.report.figures.values import MILLI


class Drawn(Enum):
    """How much of a figure there is."""

    WHOLE = "drawn"
    """All of its points were tried; those that failed are marked."""
    PARTLY = "partly"
    MISSING = "missing"


@dataclass(frozen=True)
class Sheet:
    """A figure or table, composed."""

    spec: Spec
    figure: Figure
    sides: tuple[Gathered, ...]
    """Its points: of one setting, or of each machine where it compares machines."""
    notes: tuple[str, ...]
    small_print: tuple[str, ...]
    table: Table | None = None

    @property
    def completeness(self) -> str:
        """How many of its points there are, in a line."""
        if self.sides:
            return completeness(self.spec, self.sides)
        return "A list of hardware: nothing is measured for it."

    @property
    def state(self) -> Drawn:
        """Whether it has all that the paper's sweep asks for."""
        measured, gaps = (
            sum(side.count(state) for side in self.sides for state in states)
            for states in ((State.MEASURED,), (State.ABSENT, State.IMPOSSIBLE))
        )
        if not self.sides:
            return Drawn.WHOLE
        return Drawn.MISSING if not measured else Drawn.PARTLY if gaps else Drawn.WHOLE


@dataclass(frozen=True)
class Material:
    """What figures are composed from."""

    trials: Trials
    published: Published
    sweeps: Path
    """The directory of the paper's sweeps."""
    decided: Mapping[str, str]
    """What the store says of claims, in words, by the id of the claim; those that nobody decided are not in it."""


def compose(spec: Spec, material: Material) -> Sheet:
    """Composes a figure; what is missing is on it as missing.

    Raises:
        ConfigurationError: a sweep of the paper is missing or wrong.
    """
    notes = _notes(spec, material)
    if spec.kind is Kind.HARDWARE:
        return _hardware(spec, material)
    wanted = _wanted(material.sweeps, tuple(sweep for sweep in spec.sweeps if not sweep.endswith("_legacy")))
    if spec.kind in (Kind.SIZES, Kind.FRAMEWORKS):
        return _table(spec, material, wanted, notes)
    by_machine = _sides(spec, material.trials, wanted)
    sides = tuple(by_machine.values())
    print_ = small_print(spec, sides, wanted, material.trials)
    title = f"{spec.label}. {spec.title}{_variant(sides, wanted)}"
    missing = f"not measured; {sweep_names(spec)} measures it"
    if spec.kind is Kind.MACS:
        figure = _draw_macs(spec, title, sides[0], missing, notes, print_)
    elif spec.kind is Kind.SPLIT:
        figure = _draw_split(spec, title, sides[0], missing, material.published, notes, print_)
    else:
        panels = _panels(spec, by_machine, material.published, missing)
        figure = _draw_lines(title, panels, notes, print_)
    return Sheet(spec, figure, sides, tuple(notes), tuple(print_))


def _sides(spec: Spec, trials: Trials, wanted: Wanted) -> dict[str, Gathered]:
    """The points of a figure by machine: of one alone, but where machines are what it compares."""
    models = trials.newest_by_gpu(wanted) if spec.kind is Kind.GENERATIONS else {}
    if models:
        return {name: trials.gather(setting, wanted) for name, setting in models.items()}
    setting = trials.choose(wanted, spec.gpu)
    others = [other for other in trials.settings if other != setting and trials.points_measured(other, wanted)]
    gathered = trials.gather(setting, wanted, others)
    return {setting.machine if setting else "none": gathered}


def _panels(spec: Spec, by_machine: Mapping[str, Gathered], published: Published, missing: str) -> Panels:
    gathered = next(iter(by_machine.values()))
    if spec.kind is Kind.GENERATIONS:
        known = {name: points for name, points in by_machine.items() if points.setting is not None}
        return generation_panels(spec, known, published, missing)
    if spec.kind is Kind.PAIRS:
        return pair_panels(spec, gathered, missing)
    return [
        [
            replace(panel, published=_table_1(published, panel_spec.x)) if panel_spec.table_1 else panel
            for panel, panel_spec in zip(row, specs, strict=True)
        ]
        for row, specs in zip(line_panels(spec, gathered, missing), spec.rows, strict=True)
    ]


def _table_1(published: Published, x: str) -> tuple[tuple[float, float], ...]:
    """The latencies of BERT-Base in table 1 along batch or sequence length, in milliseconds."""
    base = published.table_1.rows[0]
    other = "sequence_length" if x == "batch" else "batch"
    rows = [row for row in published.table_1.rows if row.hidden_size == base.hidden_size]
    return tuple(
        (float(getattr(row, x)), row.latency_s * MILLI) for row in rows if getattr(row, other) == getattr(base, other)
    )


def _draw_lines(title: str, panels: Panels, notes: Sequence[str], print_: Sequence[str]) -> Figure:
    flat = [panel for row in panels for panel in row]
    legend = legend_of(flat, published="the paper's table 1 (RTX 8000)")
    missing = [all(panel.missing for panel in row) for row in panels]
    figure, axes = sheet(title, missing, max(map(len, panels)), legend, notes, print_)
    drawn = {line.label for panel in flat for line in panel.lines if line.drawn}
    for row, line in zip(axes, panels, strict=True):
        for place, panel in zip(row, line, strict=True):
            draw_panel(place, panel, drawn)
    return figure


def _draw_macs(
    spec: Spec, title: str, gathered: Gathered, missing: str, notes: Sequence[str], print_: Sequence[str]
) -> Figure:
    panels = macs_panels(spec, gathered, missing)
    lines = [*notes, *_models_missing(panels)]
    figure, axes = sheet(title, [False], len(panels), macs_legend(panels), lines, print_, height=2.6)
    for place, panel in zip(axes[0], panels, strict=True):
        draw_macs(place, panel)
    return figure


def _draw_split(
    spec: Spec, title: str, gathered: Gathered, missing: str, published: Published, notes: Sequence[str],
    print_: Sequence[str],
) -> Figure:  # fmt: skip
    panels = split_panels(spec, gathered, missing, _table_1(published, "batch"))
    lines = [*notes, "◇ the paper's table 1 (RTX 8000, dtype not said); ▼ no more than 0 within the noise."]
    figure, axes = sheet(title, [False, False], len(panels), split_legend(gathered.device), lines, print_)
    for number, panel in enumerate(panels):
        draw_parts(axes[0][number], panel)
        draw_shares(axes[1][number], panel)
    return figure


def _models_missing(panels: Sequence[MacsPanel]) -> list[str]:
    """Which models have no point, panels with the same ones together; empty panels say so themselves."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for panel in panels:
        if panel.models and panel.missing:
            groups.setdefault(panel.missing, []).append(panel.title)
    return [f"Missing at {', '.join(titles)}: {', '.join(names)}." for names, titles in groups.items()]


def _table(spec: Spec, material: Material, wanted: Wanted, notes: Sequence[str]) -> Sheet:
    trials = material.trials
    (gathered,) = _sides(spec, trials, wanted).values()
    legacy_wanted = _wanted(material.sweeps, tuple(sweep for sweep in spec.sweeps if sweep.endswith("_legacy")))
    # The paper's own procedure on the same machine, if it ran there.
    known = {setting: trials.newest(cells) for setting, cells in trials.legacy.items()}
    setting = gathered.setting if gathered.setting in known else max(known, key=lambda name: known[name], default=None)
    legacy = trials.gather(setting, legacy_wanted, metric=TIMED_AS_THE_PAPER)
    make = sizes_table if spec.kind is Kind.SIZES else frameworks_table
    table = make(material.published, gathered, legacy)
    print_ = small_print(spec, (gathered,), wanted, trials)
    if legacy.rows and setting is not None:
        where = "" if setting == gathered.setting else f" on {setting.text}"
        how = material.published.procedure.partition(",")[0]
        print_.append(f"As the paper timed{where}: {how}, {len(legacy.rows)} processes.")
    title = f"{spec.label}. {spec.title}{_variant((gathered,), wanted)}"
    lines = [*notes, f"The paper's numbers: {material.published.procedure}; its dtype is not said."]
    figure = draw_table(title, table, lines, print_)
    return Sheet(spec, figure, (gathered,), tuple(lines), tuple(print_), table)


def _hardware(spec: Spec, material: Material) -> Sheet:
    table = hardware_table(material.published, material.trials.systems)
    lines = ["The paper's last columns have no header in the text at hand: read as clock, memory, bandwidth and peak."]
    systems = len(material.trials.systems)
    print_ = [f"{systems} system{'' if systems == 1 else 's'} in the store; GHz there is the highest clock of the GPU."]
    figure = draw_table(f"{spec.label}. {spec.title}", table, lines, print_)
    return Sheet(spec, figure, (), tuple(lines), tuple(print_), table)


def _notes(spec: Spec, material: Material) -> list[str]:
    """What the paper's text says of a figure, and what the store says of that."""
    found = []
    for statement in material.published.statements_of(spec.name):
        decided = material.decided.get(statement.claim)
        found.append(f"The paper: {statement.full_text}. Here: {decided or 'not decided'}.")
    return found


def _variant(sides: Sequence[Gathered], wanted: Wanted) -> str:
    """In the title: what is not as in the paper."""
    if not any(side.setting for side in sides):
        return " – NOT MEASURED"
    dtypes = {configuration.dtype for configuration in wanted.configurations}
    one_dtype = f", {dtypes.pop()}" if len(dtypes) == 1 else ""
    if any(side.device == "cpu" for side in sides):
        return ", ON A CPU" + (", float32 for float16" if wanted.in_float32_on_a_cpu else one_dtype)
    return one_dtype


@lru_cache(maxsize=64)
def _wanted(directory: Path, names: tuple[str, ...]) -> Wanted:
    return wanted_of(*(load_sweep(directory / f"{name}.yaml") for name in names))
