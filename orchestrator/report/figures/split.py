"""The figure that splits a latency into the time in which the device computes and the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from orchestrator.analysis import Estimate
from orchestrator.analysis.paper import Gathered, Point, State
from orchestrator.report.figures.canvas import draw_intervals, draw_published, empty
from orchestrator.report.figures.catalogue import Spec
from orchestrator.report.figures.lines import plain_logarithms
from orchestrator.report.figures.values import in_ms, why_empty
from orchestrator.report.palette import BLACK, BLUE, GREY, ORANGE

_KERNELS: Final = {"cuda": "the GPU computes", "cpu": "the rest: arithmetic, at most"}
_OVERHEAD: Final = {
    "cuda": "framework overhead: latency less kernels",
    "cpu": "dispatch floor: the framework, at least",
}


@dataclass(frozen=True)
class Part:
    """One batch."""

    batch: int
    state: State
    latency_ms: Estimate | None
    overhead_ms: Estimate | None
    """Null where the profile, or on a processor the twin, proves nothing."""
    share: Estimate | None
    """Of the overhead in the latency, process by process."""


@dataclass(frozen=True)
class SplitPanel:
    """One dtype."""

    title: str
    parts: tuple[Part, ...]
    published: tuple[tuple[float, float], ...]
    missing: str | None


def split_panels(
    spec: Spec, gathered: Gathered, missing: str, published: Sequence[tuple[float, float]]
) -> list[SplitPanel]:  # fmt: skip
    found = []
    for panel in spec.panels:
        points = sorted(gathered.select(panel.where), key=lambda point: point.configuration.batch)
        parts = tuple(_part(point, gathered.latency) for point in points)
        is_empty = not any(part.latency_ms for part in parts)
        shown = tuple(published) if panel.table_1 else ()
        found.append(SplitPanel(panel.title, parts, shown, why_empty(points, missing) if is_empty else None))
    return found


def draw_parts(axes: Axes, panel: SplitPanel) -> None:
    """Draws latencies and overheads, with intervals."""
    axes.set_title(panel.title, loc="left")
    if panel.missing is not None:
        empty(axes, panel.missing)
        return
    for values, colour, shape in (
        ([(part.batch, part.latency_ms) for part in panel.parts], BLACK, "o"),
        ([(part.batch, part.overhead_ms) for part in panel.parts], ORANGE, "s"),
    ):
        there = [(batch, latency) for batch, latency in values if latency is not None and latency.value > 0]
        axes.plot(
            *([batch for batch, _ in there], [latency.value for _, latency in there]),
            color=colour, marker=shape, markersize=4, linewidth=1.1, gid="mark",
        )  # fmt: skip
        draw_intervals(axes, there, colour)
        for batch in [batch for batch, latency in values if latency is not None and latency.value <= 0]:
            axes.plot(
                [batch], [0.03], transform=axes.get_xaxis_transform(), linestyle="none", marker="v", markersize=4,
                color=colour, gid="zero",
            )  # fmt: skip
    known = (time for part in panel.parts for time in (part.latency_ms, part.overhead_ms) if time)
    shown = [time.value for time in known if time.value > 0]
    axes.set_ylim(min(shown) / 2, max(shown) * 2)
    draw_published(axes, panel.published)
    axes.set(xlabel="batch", ylabel="latency, ms")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    batches = [part.batch for part in panel.parts]
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    plain_logarithms(axes)


def draw_shares(axes: Axes, panel: SplitPanel) -> None:
    """Draws what share of each latency is overhead; a batch without a number is an empty frame that says why."""
    axes.set_title(f"{panel.title}: shares", loc="left")
    if panel.missing is not None:
        empty(axes, panel.missing)
        return
    for position, part in enumerate(panel.parts):
        if part.share is None:
            axes.bar(position, 1, width=0.7, facecolor="none", edgecolor=GREY, linestyle="--", gid="absent")
            why = "no proven split" if part.state is State.MEASURED else part.state.value
            axes.text(position, 0.5, why, rotation=90, ha="center", va="center", fontsize=6, color=GREY)
            continue
        share = min(max(part.share.value, 0.0), 1.0)
        axes.bar(position, 1 - share, width=0.7, color=BLUE, gid="kernels")
        axes.bar(position, share, bottom=1 - share, width=0.7, color=ORANGE, hatch="///", edgecolor="white", gid="rest")
        axes.text(position, 1.02, f"{100 * share:.0f} %", ha="center", va="bottom", fontsize=6)
    axes.set(xlabel="batch", ylabel="share of the latency", ylim=(0, 1.12))
    axes.set_xticks(range(len(panel.parts)), [str(part.batch) for part in panel.parts])
    axes.grid(visible=False)


def split_legend(device: str) -> list[Patch]:
    return [
        Patch(color=BLACK, label="whole latency"),
        Patch(facecolor=ORANGE, hatch="///", edgecolor="white", label=_OVERHEAD[device]),
        Patch(color=BLUE, label=_KERNELS[device]),
    ]


def _part(point: Point, column: str) -> Part:
    counts = not (point.configuration and any(row["device"] == "cpu" for row in point.rows)) or all(
        row["dispatch_floor_valid"] is True for row in point.rows
    )
    latency, overhead = point.estimate(column), point.estimate("exposed_overhead_s") if counts else None
    share = point.estimate("framework_fraction") if counts and overhead is not None else None
    batch = point.configuration.batch
    return Part(batch, point.state, in_ms(latency), in_ms(overhead), share)
