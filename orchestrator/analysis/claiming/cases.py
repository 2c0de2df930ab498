"""Cases of claims: what a claim is decided for, each measurement once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from orchestrator.analysis.claiming.configurations import Configuration, failures, is_impossible
from orchestrator.analysis.claiming.figures import Figure, Scale, figure_of
from orchestrator.analysis.claiming.quantities import Quantity, default_quantity, quantity
from orchestrator.analysis.statistics import Estimate


@dataclass(frozen=True)
class Case:
    """What a claim is decided for."""

    label: str
    figure: Figure | None
    """Null if there is no number."""
    metric: str
    """What the number is of; of a rank correlation or a scaling, what follows the other."""
    note: str = ""
    """What else there is to say of the number, or why there is none."""
    is_impossible: bool = False
    """Whether it cannot run, so that the claim cannot be about it."""


@dataclass(frozen=True)
class Cases:
    """All cases, and what is missing for more."""

    cases: tuple[Case, ...]
    missing: tuple[str, ...]


Known: TypeAlias = Sequence[Configuration]
"""All configurations of the store, where words such as `A100` get their meaning from."""
Points: TypeAlias = Sequence[Configuration]
"""What a number is of, in the order in which they count: a pair, or a series along an axis."""
Behind = TypeVar("Behind")


def measured(metric: str | None, one: Configuration) -> Quantity:
    """The quantity of a name; without a name the latency that the regime is about."""
    return default_quantity(one.device) if metric is None else quantity(metric)


def case_of(
    label: str,
    estimate: Estimate | None,
    points: Points,
    metric: str | None,
    note: str = "",
    scale: Scale = Scale.LOGARITHMIC,
) -> Case:
    """The case of an estimate; without one it says why there is none."""
    name = measured(metric, points[0]).name
    if estimate is None:
        reasons = failures(points)
        return Case(label, None, name, reasons[0] if reasons else "it was not measured", is_impossible(points))
    return Case(label, figure_of(estimate, scale), name, note)


def distinct(found: Iterable[Behind], points_of: Callable[[Behind], Points], metric: str | None) -> list[list[Behind]]:
    """What has the same measurements behind it, together.

    The floor of a processor is measured once for all shapes of a structure, and stands in the rows of each.

    Args:
        found: what cases are made of.
        points_of: the configurations in it.
        metric: what is read of them.
    """
    sets: dict[Any, list[Behind]] = {}
    for number, one in enumerate(found):
        points = points_of(one)
        what = measured(metric, points[0])
        behind = tuple(tuple(sorted(point.values(what).items())) for point in points)
        sets.setdefault(behind if all(behind) else number, []).append(one)
    return list(sets.values())


def once(labels: Sequence[str]) -> str:
    """That one measurement stands for several; nothing if there is one alone."""
    return f"measured once for {', '.join(labels[:-1])} and {labels[-1]}" if len(labels) > 1 else ""
