"""Ratios of two cells: how their processes pair, the interval, and the noise floor that a difference must exceed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np

from orchestrator.analysis.comparing.cells import Cell, is_measured, samples_of
from orchestrator.analysis.comparing.policies import Interval
from orchestrator.analysis.metrics import Metric
from orchestrator.analysis.pairing import Visit, shared_visits
from orchestrator.analysis.statistics import (
    LEVEL,
    MANY_PROCESSES,
    Estimate,
    Floats,
    bootstrap_paired_ratio,
    paired_ratio,
    unpaired_ratio,
)
from orchestrator.analysis.student import t_quantile
from orchestrator.analysis.verdict import LARGEST_EQUIVALENCE, Verdict, judge_family

Row = dict[str, Any]
Place = tuple[str, str]
"""Campaign and host."""

_NOISE_FACTOR: Final = 2.0
"""A difference counts from twice the half-width of the interval between equal things."""


class Pairing(Enum):
    """What is independent in a ratio."""

    PAIRED = "paired"
    """Rounds that both sides ran on the same host: what disturbs a round disturbs both and falls out."""
    UNPAIRED = "unpaired"
    """Processes of both sides: nothing that they share is known."""


@dataclass(frozen=True)
class Noise:
    """What the A/A pairs of the places of a ratio say."""

    half_width: float | None
    """Of the interval of an A/A ratio, relative; null if no pair has two rounds."""
    pairs: int

    def effect(self, minimum_effect: float) -> float:
        """From where on a difference counts: 0.03 is 3 %."""
        return minimum_effect if self.half_width is None else max(minimum_effect, _NOISE_FACTOR * self.half_width)

    def margin(self, minimum_effect: float) -> float:
        """Within which two things are equivalent: where noise hides real differences it does not make them none."""
        return max(minimum_effect, min(self.effect(minimum_effect), LARGEST_EQUIVALENCE))


@dataclass(frozen=True)
class Ratio:
    """One cell against another."""

    estimate: Estimate
    """Above 1 is better, whatever the metric."""
    pairing: Pairing
    interval: Interval
    """How it was found: few rounds, or a metric without samples, leave no bootstrap. Unpaired it is Student's."""
    noise: Noise
    minimum_effect: float
    """The smallest difference that counts here; 0.03 is 3 %."""
    margin: float
    """Within which the two are equivalent; less than the minimum effect on a noisy machine."""
    verdict: Verdict
    """Judged together with all ratios of its table (Holm)."""


def ratio_of(
    cell: Cell, baseline: Cell, metric: Metric, interval: Interval
) -> tuple[Estimate, Pairing, Interval] | None:
    """How much better a cell is than another, above 1, and how that was found; null where a value is not above 0.

    Args:
        cell: with measured trials.
        baseline: with measured trials.
        metric: decides which direction is better.
        interval: of a paired ratio, where it has enough rounds and samples.
    """
    ours, theirs = _by_visit(cell.measured), _by_visit(baseline.measured)
    if any(row[metric.column] <= 0 for row in (*cell.measured, *baseline.measured)):
        return None
    shared = shared_visits(ours, theirs)
    samples = sum(samples_of(row, metric) for row in (*cell.measured, *baseline.measured))
    if shared:
        up, down = (ours, theirs) if metric.higher_is_better else (theirs, ours)
        pairs = [(up[visit], down[visit]) for visit in shared]
        if interval is Interval.BOOTSTRAP and (drawn := _bootstrap(pairs, metric)) is not None:
            return drawn, Pairing.PAIRED, Interval.BOOTSTRAP
        return _paired(pairs, metric), Pairing.PAIRED, Interval.STUDENT
    above, below = (ours, theirs) if metric.higher_is_better else (theirs, ours)
    ratio = unpaired_ratio(_values(above.values(), metric), _values(below.values(), metric), samples)
    return ratio, Pairing.UNPAIRED, Interval.STUDENT


def judged(ratios: Sequence[Ratio]) -> list[Ratio]:
    """Ratios that are looked at together, with their verdicts."""
    verdicts = judge_family(
        [one.estimate for one in ratios], [one.minimum_effect for one in ratios], [one.margin for one in ratios]
    )
    return [replace(one, verdict=verdict) for one, verdict in zip(ratios, verdicts, strict=True)]


def noise_floors(rows: Iterable[Row], metric: Metric) -> Mapping[Place, Noise]:
    """The noise floor by campaign and host: the relative half-width of the interval of an A/A ratio there.

    Several pairs of one place estimate one scatter together. The widest of their own intervals would grow with their
    number, and with three rounds it is four times as wide as it need be.

    Args:
        rows: trials of A/A pairs, both halves.
        metric: what is compared.
    """
    twins: dict[tuple[str, str, str], dict[int, dict[int, float]]] = {}
    for row in rows:
        if is_measured(row, metric) and row[metric.column] > 0:
            pair = twins.setdefault((row["campaign_id"], row["host"] or "", row["trial_key"]), {})
            pair.setdefault(row["round"], {})[row["replicate"]] = math.log(row[metric.column])
    found: dict[Place, list[Floats]] = {}
    for (campaign, host, _), rounds in sorted(twins.items()):
        logs = [halves[0] - halves[1] for _, halves in sorted(rounds.items()) if {0, 1} <= halves.keys()]
        if logs:
            found.setdefault((campaign, host), []).append(np.array(logs))
    return {place: Noise(_common_half_width(pairs), len(pairs)) for place, pairs in found.items()}


def noise_of(cells: Sequence[Cell], floors: Mapping[Place, Noise]) -> Noise:
    """The noise floor of the places in which cells were measured: the widest of them."""
    places = {(row["campaign_id"], row["host"] or "") for cell in cells for row in cell.measured}
    there = [floors[place] for place in places if place in floors]
    known = [one.half_width for one in there if one.half_width is not None]
    return Noise(max(known, default=None), sum(one.pairs for one in there))


def _common_half_width(pairs: Sequence[Floats]) -> float | None:
    """Of the interval of one pair with as many rounds as they have on average, with the scatter of all."""
    degrees = sum(len(logs) - 1 for logs in pairs)
    if not degrees:
        return None
    variance = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in pairs) / degrees
    rounds = sum(len(logs) for logs in pairs) / len(pairs)
    return math.sinh(t_quantile((1 + LEVEL) / 2, degrees) * math.sqrt(variance / rounds))


def _by_visit(rows: Sequence[Row]) -> dict[Visit, list[Row]]:
    found: dict[Visit, list[Row]] = {}
    for row in rows:
        found.setdefault((row["campaign_id"], row["host"] or "", row["round"]), []).append(row)
    return found


def _bootstrap(pairs: Sequence[tuple[list[Row], list[Row]]], metric: Metric) -> Estimate | None:
    """Null with too few rounds, or without samples."""
    if metric.samples is None or len(pairs) < MANY_PROCESSES:
        return None
    up, down = ([_samples(pair[side], metric.samples) for pair in pairs] for side in (0, 1))
    return bootstrap_paired_ratio(up, down) if all(len(one) for one in (*up, *down)) else None


def _paired(pairs: Sequence[tuple[list[Row], list[Row]]], metric: Metric) -> Estimate:
    samples = sum(samples_of(row, metric) for pair in pairs for rows in pair for row in rows)
    above, below = (_values((pair[side] for pair in pairs), metric) for side in (0, 1))
    return paired_ratio(above, below, samples)


def _values(visits: Iterable[Sequence[Row]], metric: Metric) -> Floats:
    """One value per visit: if the user pooled several trials of a round, their geometric mean."""
    logs = [sum(math.log(row[metric.column]) for row in rows) / len(rows) for rows in visits]
    return np.exp(np.array(logs, dtype=np.float64))


def _samples(rows: Sequence[Row], column: str) -> Floats:
    return np.concatenate([np.array(row[column] or [], dtype=np.float64) for row in rows])
