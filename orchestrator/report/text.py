"""Results in words, the same in every view: shapes, estimates, ratios, verdicts and transitions."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from rich.padding import Padding
from rich.text import Text

from orchestrator.analysis import Estimate, Ratio, Shape, Transition, Verdict
from orchestrator.analysis.axes import DEFAULTS, Value
from orchestrator.analysis.transition import Side
from orchestrator.analysis.verdict import MOST_SESSIONS
from runners.contract import Status

GROUPS: Final[Mapping[str, str]] = {
    "work": "What is computed",
    "system": "System",
    "environment": "Environment",
    "code": "Code that measured",
    "protocol": "Protocol",
    "conditions": "Conditions, medians before the trials",
}
"""Of fields that differ between two sides."""
_VAGUE: Final = 2.0
"""Times that the upper end of an interval is the lower one."""
_USELESS: Final = 100
"""An interval whose ends differ by more than this factor says only that there are too few sessions."""
TOO_WIDE: Final = "too wide to tell"
"""In the place of a number with such an interval."""
_LEAST: Final = "Smallest difference that could have been found"
_OF_TIME: Final = (
    *("latency", "throughput", "floor", "dispatch", "graph", "busy", "kernel_sum", "overhead", "cpu_time"),
)
_BETTER: Final = {"faster": "better", "slower": "worse"}
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


# Lists and lines


def count_text(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def statuses_text(counts: Mapping[Status, int], none: str = "none") -> str:
    """How trials ended: `3 ok, 1 timeout`."""
    return ", ".join(f"{counts[status]} {status.value}" for status in Status if counts.get(status)) or none


def listed(texts: Sequence[str], most: int) -> str:
    """The first of several texts, and how many more there are."""
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more


def indented(content: Text | str, columns: int) -> Padding:
    """A line for the terminal that begins some columns further right."""
    return Padding(content if isinstance(content, Text) else Text(content), (0, 0, 0, columns), expand=False)


# Shapes


def shape_name(shape: Shape) -> str:
    """A shape with its sizes, dtype and device."""
    return f"{work_name(shape)}, {numerics_name(shape)}"


def work_name(shape: Shape) -> str:
    """The workload of a shape with its sizes."""
    return work_text(shape.workload, shape.sequence_length, shape.image_size, shape.options)


def work_text(workload: str, tokens: Value, pixels: Value, options: Value) -> str:
    """A workload with its sizes and the options that are not at defaults."""
    sizes = [f"{tokens} tokens"] if tokens else []
    sizes += [f"{pixels}x{pixels} pixels"] if pixels else []
    sizes += [str(options).replace(",", ", ")] if options not in ("", DEFAULTS) else []
    return ", ".join([workload, *sizes])


def numerics_name(shape: Shape) -> str:
    """In what and on what a shape is computed."""
    return f"{shape.dtype}, {shape.device} with {count_text(shape.threads, 'thread', 'threads')}"


# Estimates


def is_vague(ratio: Estimate) -> bool:
    """Whether the interval of a ratio says so little that no number is printed."""
    return ratio.low is not None and ratio.high is not None and ratio.high > _VAGUE * ratio.low


def is_useless(estimate: Estimate, whole: float = math.inf) -> bool:
    """Whether an interval says only that there are too few processes.

    Args:
        estimate: the value with its interval.
        whole: of which the value is a part; from nothing to all of it says nothing.
    """
    if estimate.low is None or estimate.high is None:
        return False
    near, far = sorted((abs(estimate.low), abs(estimate.high)))
    return far > near * _USELESS if estimate.low * estimate.high > 0 else estimate.low <= 0 and estimate.high >= whole


def margin_text(estimate: Estimate) -> str:
    """How far an interval reaches from its value, as a factor in percent: `±3.2 %`. Empty without an interval."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return ""
    half = math.sqrt(estimate.high / estimate.low) - 1
    return f"±{percent_text(half)}" if half < 1 else "±over 100 %"


def duration_text(estimate: Estimate, whole: float = math.inf) -> str:
    """Seconds in a unit that fits, with their interval; `whole` as `is_useless` takes it."""
    return TOO_WIDE if is_useless(estimate, whole) else value_text(estimate, "s")


def value_text(estimate: Estimate, unit: str) -> str:
    """A value of any metric, scaled to a unit that fits, with its interval."""
    size = abs(estimate.value)
    scale, shown = next(((scale, name) for scale, name in _scales(unit) if size >= scale), _scales(unit)[-1])
    return estimate_text(estimate, lambda value: _digits(value / scale), shown)


def ratio_text(estimate: Estimate, decimals: int = 2) -> str:
    shown = f"{{:.{decimals}f}}".format
    return estimate_text(estimate, shown, sign="x")


def percent_text(share: float) -> str:
    """A share with two significant digits, so that little is not said to be nothing."""
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent) >= 9.95 or not percent else f"{percent:.2g} %"


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def estimate_text(estimate: Estimate, shown: Callable[[float], str], unit: str = "", sign: str = "") -> str:
    """A value in a unit with its interval, numbers as `shown` writes them; words where the interval is useless."""
    if is_useless(estimate):
        return TOO_WIDE
    return f"{sign}{shown(estimate.value)}{unit}{interval_text(estimate, shown)}"


def interval_text(estimate: Estimate, shown: Callable[[float], str]) -> str:
    """An interval behind its value, in brackets; empty without one."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f" [{shown(estimate.low)}, {shown(estimate.high)}]"


def _scales(unit: str) -> tuple[tuple[float, str], ...]:
    if unit in ("s", "J"):
        return (1.0, f" {unit}"), (1e-3, f" m{unit}"), (1e-6, f" u{unit}")
    if unit == "bytes":
        return (2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB"), (1.0, " B")
    if unit.endswith("/s"):
        return (1e12, f" T {unit}"), (1e9, f" G {unit}"), (1e6, f" M {unit}"), (1.0, f" {unit}")
    return ((1.0, ""),)


# Verdicts


def verdict_colour(verdict: Verdict) -> str:
    """Of a ratio in the terminal."""
    return {1: "green", -1: "red"}.get(verdict.direction, "" if verdict.is_equivalent else "yellow")


def verdict_mark(verdict: Verdict) -> str:
    """In a table that has no room for words: `+`, `-=`, `~`."""
    return ("", "+", "-")[verdict.direction] + "=" * verdict.is_equivalent or "~"


def verdict_name(verdict: Verdict, metric: str = "latency") -> str:
    """A verdict in a word or two: what is no time is better or worse."""
    if metric.startswith(_OF_TIME):
        return verdict.value
    return " ".join(_BETTER.get(word, word) for word in verdict.value.split())


def counts_text(ratios: Sequence[Ratio], metric: str = "latency") -> str:
    """How many ratios have each verdict: `2 faster, 1 undecided`."""
    counts = Counter(ratio.verdict for ratio in ratios)
    return ", ".join(f"{counts[verdict]} {verdict_name(verdict, metric)}" for verdict in Verdict if counts[verdict])


def rule_lines(ratios: Sequence[Ratio], margin: float) -> Iterator[str]:
    """The rule, what could have been found, and what a decision would take; nothing without ratios."""
    if ratios:
        yield rule_line(ratios, margin)
        yield from least_lines(ratios)
        yield from decision_lines(ratios)


def rule_line(ratios: Sequence[Ratio], margin: float) -> str:
    """By which rule ratios were judged."""
    together = f"all {len(ratios)} judged together (Holm)" if len(ratios) > 1 else "judged alone"
    return (
        f"Different: the interval excludes 1, {together}. Equivalent, or slightly: all of it lies within "
        f"{percent_text(margin)}."
    )


def least_lines(ratios: Iterable[Ratio], least: str = _LEAST) -> Iterator[str]:
    """The smallest difference that could have been found; nothing where it is not known."""
    found = [ratio.judgement.least for ratio in ratios if ratio.judgement.least is not None]
    if found:
        yield f"{least}: {spread_text(found)}."


def spread_text(differences: Sequence[float]) -> str:
    """Some differences, at least one, by the middle one and both ends."""
    middle, low, high = (_least(float(value)) for value in (np.median(differences), min(differences), max(differences)))
    return f"{middle} in the middle, {low} at best, {high} at worst" if low != high else middle


def calibration_line(pairs: Sequence[Ratio]) -> str:
    """How many A/A pairs were called different, though nothing differs."""
    if not pairs:
        return "No A/A pair ran (`duplicate` in the sweep), so that the calibration was not checked."
    different = sum(pair.verdict.is_different for pair in pairs)
    return f"A/A, the same trial twice: {different} of {count_text(len(pairs), 'pair', 'pairs')} called different."


def cpu_text(ratio: Ratio) -> str | None:
    """What CPU time says, where it calls a ratio otherwise; else null."""
    if ratio.cpu is None or not ratio.is_contradicted:
        return None
    return f"CPU time says {ratio_text(ratio.cpu.estimate)}: {ratio.cpu.verdict.value}"


def _least(difference: float) -> str:
    return percent_text(difference) if difference <= 1 else "more than 100 %"


def decision_lines(ratios: Iterable[Ratio]) -> Iterator[str]:
    """How many ratios are undecided, and what a decision about them would take; nothing if there are none."""
    undecided = [ratio for ratio in ratios if ratio.verdict is Verdict.UNDECIDED]
    known = sorted(ratio.sessions for ratio in undecided if ratio.sessions is not None)
    if not undecided:
        return
    if not known:
        single = all(ratio.estimate.low is None for ratio in undecided)
        why = "one session gives no interval" if single else f"{MOST_SESSIONS} sessions more would not decide them"
        yield f"{len(undecided)} undecided: {why}."
        return
    times = sorted(ratio.more_s for ratio in undecided if ratio.more_s is not None)
    each = " each" if len(times) > 1 else ""
    took = f" ({range_text([_time(end) for end in (times[0], times[-1])])}{each})" if times else ""
    sessions = range_text([str(known[0]), str(known[-1])])
    rest = f"; {len(undecided) - len(known)} of them more than {MOST_SESSIONS}" if len(known) < len(undecided) else ""
    yield f"{len(undecided)} undecided: a decision takes about {sessions} sessions more{took}{rest}."


def range_text(ends: Sequence[str]) -> str:
    """From the first to the last of two; once if they are the same."""
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def _time(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{math.ceil(seconds)} s"
    return f"{math.ceil(seconds / _MINUTE_S)} min" if seconds < 2 * _HOUR_S else f"{seconds / _HOUR_S:.0f} h"


# Transitions


def transition_text(found: Transition, is_bound: bool) -> str:
    """Where the regime changes, in words that follow `at batch` or stand alone.

    Args:
        found: the transition.
        is_bound: it is there or at a larger batch, as on a CPU, whose floor is a lower bound.
    """
    first, last = found.batches[0], found.batches[-1]
    at = "at least at" if is_bound else "at"
    if found.side is Side.BELOW:
        by = "by the floor " if is_bound else ""
        return f"{by}below {first}, the smallest batch that was measured"
    if found.side is Side.ABOVE:
        return f"above {last}, the largest batch that was measured"
    assert found.batch is not None
    if found.interval is None:
        return f"{at} {number_text(found.batch)}; a single session gives no interval"
    return f"{at} {number_text(found.batch)} {batch_interval_text(found)}"


def number_text(value: float) -> str:
    """A batch, which between two measured ones is no whole number."""
    return f"{value:.0f}" if value >= 100 or math.isclose(value, round(value), abs_tol=0.05) else f"{value:.1f}"


def batch_interval_text(found: Transition) -> str:
    """The interval of a transition that has one, in brackets."""
    assert found.interval is not None
    first, last = found.batches[0], found.batches[-1]
    low = f"below {first}" if found.interval.low is None else number_text(found.interval.low)
    high = f"above {last}" if found.interval.high is None else number_text(found.interval.high)
    return f"[{low}, {high}]"
