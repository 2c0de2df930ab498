"""Figures of several models: their latencies, and how many times as fast as a baseline each is, paired by round."""

from dataclasses import replace

from orchestrator.analysis import Estimate
from orchestrator.analysis.frame import visit_ratio
from orchestrator.analysis.paper import Configuration, Gathered, Point
from orchestrator.report.figures.catalogue import Spec, Y
from orchestrator.report.figures.lines import Panels, line_panels
from orchestrator.report.figures.values import workload_label


def pair_panels(spec: Spec, gathered: Gathered, missing: str) -> Panels:
    """The panels of a figure with a baseline; ratios above 1 are faster than it."""
    assert spec.baseline is not None
    baseline = {
        _but_for_the_model(one): point
        for one, point in gathered.points.items()
        if one.workload == spec.baseline
    }  # fmt: skip
    column = gathered.latency

    def ratio(point: Point) -> Estimate | None:
        other = baseline.get(_but_for_the_model(point.configuration))
        if other is None or other is point:
            return None
        return visit_ratio(other.visits(column), point.visits(column))

    name = workload_label(spec.baseline)
    found = line_panels(spec, gathered, missing, ratio)
    for row, specs in zip(found, spec.rows, strict=True):
        for position, (panel, one) in enumerate(zip(row, specs, strict=True)):
            if one.y is Y.RATIO:
                others = tuple(line for line in panel.lines if line.label != name)
                row[position] = replace(panel, lines=others, y_label=f"{one.y.value} as {name}")
    return found


def _but_for_the_model(one: Configuration) -> Configuration:
    return replace(one, workload="", options=())
