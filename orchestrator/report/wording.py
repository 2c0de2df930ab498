"""Estimates and shapes in words, as every view for people writes them."""

import math
from collections.abc import Callable

from orchestrator.analysis import Estimate, Shape

_VAGUE = 2.0
"""Times that the upper end of an interval is the lower one."""
_USELESS = 100
"""An interval whose ends differ by more than this factor says only that there are too few rounds."""
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def shape_name(shape: Shape) -> str:
    """A shape with its sizes, dtype and device."""
    return f"{work_name(shape)}, {numerics_name(shape)}"


def work_name(shape: Shape) -> str:
    """The workload of a shape with its sizes."""
    sizes = [f"{shape.sequence_length} tokens"] if shape.sequence_length else []
    sizes += [f"{shape.image_size}x{shape.image_size} pixels"] if shape.image_size else []
    sizes += [shape.options] if shape.options else []
    return ", ".join([shape.workload, *sizes])


def numerics_name(shape: Shape) -> str:
    """In what and on what a shape is computed."""
    return f"{shape.dtype}, {shape.device} with {count_text(shape.threads, 'thread', 'threads')}"


def is_vague(ratio: Estimate) -> bool:
    """Whether the interval of a ratio says so little that no number is printed."""
    return ratio.low is not None and ratio.high is not None and ratio.high > _VAGUE * ratio.low


def margin_text(estimate: Estimate) -> str:
    """How far an interval reaches from its value, as a factor in percent: `±3.2 %`. Empty without an interval."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return ""
    half = math.sqrt(estimate.high / estimate.low) - 1
    return f"±{percent_text(half)}" if half < 1 else "±over 100 %"


def duration_text(estimate: Estimate) -> str:
    """Seconds in a unit that fits, with their interval."""
    scale, unit = next(((s, u) for s, u in _UNITS if estimate.value >= s), _UNITS[-1])
    text = f"{_digits(estimate.value / scale)} {unit}"
    return text + _interval(estimate, lambda bound: _digits(bound / scale))


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def ratio_text(estimate: Estimate, decimals: int = 2) -> str:
    """A ratio with its interval."""
    return f"x{estimate.value:.{decimals}f}" + _interval(estimate, lambda bound: f"{bound:.{decimals}f}")


def _interval(estimate: Estimate, shown: Callable[[float], str]) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    if estimate.high > estimate.low * _USELESS > 0:
        return " [too wide: more rounds]"
    return f" [{shown(estimate.low)}, {shown(estimate.high)}]"


def percent_text(share: float) -> str:
    """A share with two significant digits, so that little is not said to be nothing."""
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent) >= 9.95 or not percent else f"{percent:.2g} %"


def count_text(number: int, singular: str, plural: str) -> str:
    """A number with its noun."""
    return f"{number} {singular if number == 1 else plural}"


def value_text(estimate: Estimate, unit: str) -> str:
    """A value of any metric, scaled to a unit that fits, with its interval."""
    size = abs(estimate.value)
    scale, shown = next(((one, name) for one, name in _scales(unit) if size >= one), _scales(unit)[-1])
    return f"{_digits(estimate.value / scale)}{shown}" + _interval(estimate, lambda bound: _digits(bound / scale))


def _scales(unit: str) -> tuple[tuple[float, str], ...]:
    if unit in ("s", "J"):
        return (1.0, f" {unit}"), (1e-3, f" m{unit}"), (1e-6, f" u{unit}")
    if unit == "bytes":
        return (2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB"), (1.0, " B")
    if unit.endswith("/s"):
        return (1e12, f" T {unit}"), (1e9, f" G {unit}"), (1e6, f" M {unit}"), (1.0, f" {unit}")
    return ((1.0, ""),)
