"""The figure of GPU generations: one line per model of GPU, in the order of the paper's table of hardware."""

from collections.abc import Mapping, Sequence

from orchestrator.analysis.paper import Gathered, Published, names_model
from orchestrator.report.figures.catalogue import PanelSpec, Spec
from orchestrator.report.figures.lines import Panels
from orchestrator.report.figures.values import Line, Panel, latency_ms, panel_of, why_empty
from orchestrator.report.palette import categorical, marker


def generation_panels(
    spec: Spec, by_machine: Mapping[str, Gathered], published: Published, missing: str
) -> Panels:  # fmt: skip
    """The panels of the figure; GPUs of the paper that nobody measured are lines without a point.

    Args:
        spec: of the figure.
        by_machine: the points by model of GPU, or of a processor if there is no GPU at all.
        published: for the paper's GPUs.
        missing: what stands in a panel without any number.
    """
    machines = ordered(list(by_machine), published)
    return [[_panel(one, by_machine, machines, missing) for one in row] for row in spec.rows]


def ordered(models: Sequence[str], published: Published) -> list[tuple[str, str | None]]:
    """The paper's GPUs in its order, each with the model that was measured or null; then all others."""
    found: list[tuple[str, str | None]] = []
    left = list(models)
    for row in published.table_2.rows:
        matching = [one for one in left if names_model(row.gpu, one)]
        found += [(row.gpu, one) for one in matching] or [(row.gpu, None)]
        left = [one for one in left if one not in matching]
    return [*found, *((one, one) for one in left)]


def _panel(
    spec: PanelSpec, by_machine: Mapping[str, Gathered], machines: Sequence[tuple[str, str | None]], missing: str
) -> Panel:
    lines = []
    points = [point for one in by_machine.values() for point in one.select(spec.where)]
    for number, (name, model) in enumerate(machines):
        line = Line(name, categorical(number), marker(number), ())
        if model is not None:
            gathered = by_machine[model]
            # Within one machine the panel has a single line.
            one = panel_of(_of_one_machine(spec), gathered, ["eager"], latency_ms(gathered))
            marks = tuple(mark for found in one.lines for mark in found.marks)
            line = Line(name, categorical(number), marker(number), marks)
        lines.append(line)
    is_empty = not any(line.drawn for line in lines)
    return Panel(
        spec.title, "batch", spec.y.value, tuple(lines), missing=why_empty(points, missing) if is_empty else None
    )


def _of_one_machine(spec: PanelSpec) -> PanelSpec:
    return PanelSpec(spec.title, spec.where, "backend", spec.x, spec.y)
