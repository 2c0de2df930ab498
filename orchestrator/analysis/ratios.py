"""Ratios of two sides: how their processes pair, the interval with the campaign's own prior, and the verdict.

A ratio is that of two processes of one **session**, which took turns, or else of one **round**. Of a campaign it is the
geometric mean over its sessions or rounds, whose processes are fresh: they are the unit. Its interval is a moderated t
(`moderation`). **Unpaired** it is Welch's t over processes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from functools import cached_property
from statistics import median
from typing import Any, Final

import numpy as np

from orchestrator.analysis.axes import Row, grouped, sorting
from orchestrator.analysis.statistics import Estimate, Floats, mean_ratio, unpaired_ratio
from orchestrator.analysis.verdict import MARGIN, UNJUDGED, Judgement, Verdict, judge_family
from orchestrator.store.schema import EXECUTION, RUN, WORK
from runners.contract import Interleaving, Status
from runners.statistics.moderation import Prior, Spread, fitted_prior

Place = tuple[str, str]
"""Campaign and host."""
Visit = tuple[str, str, int]
"""Campaign, host and round: a time and a place that several trials share."""

Group = Mapping[tuple[Any, ...], Mapping[int, Sequence[Row]]]
"""Trials that differ in the backend alone, by backend and replicate."""

BASELINE: Final = "eager"
_GROUP: Final = (*RUN, *WORK, "protocol")
"""What the trials share that are compared with each other: all but the backend."""
_SIDE: Final = (*EXECUTION, "trial_key")
_SESSION: Final = ("session_id", "interleaving")
RATIO_COLUMNS: Final = (*_GROUP, *_SIDE, "round", "replicate", "status", "started_at", "finished_at", *_SESSION)
"""The columns that ratios and priors need beside those of a reading."""


class Pairing(Enum):
    """What is independent in a ratio."""

    TURNS = "turns"
    """Sessions whose processes took turns on both sides."""
    ROUNDS = "rounds"
    """Rounds that both sides ran on the same host, a process each."""
    UNPAIRED = "unpaired"
    """Processes of both sides: nothing that they share is known."""


@dataclass(frozen=True)
class Reading:
    """Where in a row a number stands, and which direction is better."""

    column: str
    higher_is_better: bool = False
    count: str | None = None
    """The column with the number of samples; null where each process gives one value."""
    between: float = 0.0
    """How much a ratio differs from campaign to campaign beyond what their sessions show, a standard deviation of
    logarithms."""
    witness: str | None = None
    """The column with the CPU time of the same calls, where it is kept beside wall time."""


@dataclass(frozen=True)
class Witness:
    """The same ratio from CPU time per call."""

    estimate: Estimate
    verdict: Verdict


@dataclass(frozen=True)
class Ratio:
    """One side against another."""

    estimate: Estimate
    """Above 1 is better, whatever the metric."""
    pairing: Pairing
    session_s: float | None
    """What one session more takes, or one round of both sides; null if rows do not say when trials ended."""
    judgement: Judgement = UNJUDGED
    """Reached together with all ratios that are shown with it."""
    cpu: Witness | None = None
    """Null unless it is about lone calls on a CPU, in pairs."""

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def sessions(self) -> int | None:
        """About how many sessions or rounds more would decide it; null as in the judgement."""
        more = self.judgement.sessions
        return more if more is None or self.pairing is not Pairing.UNPAIRED else math.ceil(more / 2)

    @property
    def more_s(self) -> float | None:
        """About how many seconds that takes."""
        return None if self.sessions is None or self.session_s is None else self.sessions * self.session_s

    @property
    def is_contradicted(self) -> bool:
        """Whether CPU time calls it otherwise: different where it is not, or in the other direction."""
        return self.cpu is not None and self.cpu.verdict.direction != self.verdict.direction


@dataclass(frozen=True)
class Twin:
    """An A/A pair: nothing differs between its sides, so that it shows how often that is called a difference."""

    row: Row
    """One of its trials."""
    ratio: Ratio
    """The first over the second; judged together with all pairs that are looked at."""


@dataclass
class Priors:
    """What the cells of campaigns say of their variances, for whatever is read of them.

    Cells are the backends against eager within each group, and the A/A pairs: they do not depend on what is asked.
    """

    rows: Sequence[Row]
    """Of each trial the attempt that counts, both halves of A/A pairs, with `RATIO_COLUMNS`: whole campaigns."""
    _spreads: dict[str, dict[tuple[Place, Pairing], list[Spread]]] = field(default_factory=dict)
    _fitted: dict[tuple[str, Pairing, frozenset[Place]], Prior | None] = field(default_factory=dict)

    @cached_property
    def groups(self) -> list[Group]:
        """The trials that ended ok, by what is the same but for the backend."""
        return _groups(row for row in self.rows if row["status"] == Status.OK.value)

    def of(self, places: Iterable[Place], pairing: Pairing, column: str) -> Prior | None:
        """The prior of ratios of a column in some places that pair in some way."""
        key = (column, pairing, frozenset(places))
        if key not in self._fitted:
            if column not in self._spreads:
                self._spreads[column] = _spreads(self.groups, column)
            known = self._spreads[column]
            cells = [spread for place in sorted(key[2]) for spread in known.get((place, pairing), ())]
            self._fitted[key] = fitted_prior(cells)
        return self._fitted[key]


def ratio_of(ours: Sequence[Row], theirs: Sequence[Row], reading: Reading, priors: Priors) -> Ratio | None:
    """How many times better one side is than another; null without a value above 0 on each."""
    if not ours or not theirs or any(not (row[reading.column] or 0) > 0 for row in (*ours, *theirs)):
        return None
    pairing, pairs = _pairs(ours, theirs)
    used = [row for pair in pairs for side in pair for row in side]
    samples = sum(samples_of(row, reading.count) for row in used)
    sign = 1 if reading.higher_is_better else -1
    if pairing is Pairing.UNPAIRED:
        up, down = (np.exp(_means(side, reading)) for side in (ours, theirs)[::sign])
        return Ratio(unpaired_ratio(up, down, samples), pairing, _unpaired_s(ours, theirs))
    places = {place_of(row) for row in used}
    between = reading.between / math.sqrt(len(places))
    logs = sign * _log_ratios(pairs, reading.column)
    estimate = mean_ratio(logs, samples, priors.of(places, pairing, reading.column), between)
    found = Ratio(estimate, pairing, _pair_s(pairs, pairing))
    cpu = _cpu(pairs, pairing, reading, priors, between)
    return found if cpu is None else replace(found, cpu=Witness(cpu, Verdict.UNDECIDED))


def judged(ratios: Sequence[Ratio], margin: float = MARGIN) -> list[Ratio]:
    """Ratios that are shown together, with their verdicts; those of CPU time are judged together, too."""
    judgements = judge_family([ratio.estimate for ratio in ratios], margin)
    witnesses = iter(judge_family([ratio.cpu.estimate for ratio in ratios if ratio.cpu is not None], margin))
    return [
        replace(ratio, judgement=judgement, cpu=ratio.cpu and replace(ratio.cpu, verdict=next(witnesses).verdict))
        for ratio, judgement in zip(ratios, judgements, strict=True)
    ]


def twins_of(priors: Priors, reading: Reading, margin: float = MARGIN) -> tuple[Twin, ...]:
    """The A/A pairs of campaigns, judged together: of 100 such families 5 have one that is called different."""
    found = []
    for group in priors.groups:
        for first, second in _halves(group, reading.column):
            # Whatever state the machine is in, it is the same program on both sides
            same = replace(reading, higher_is_better=False, between=0.0)
            ratio = ratio_of(second, first, same, priors)
            if ratio is not None:
                found.append(Twin(first[0], ratio))
    ratios = judged([twin.ratio for twin in found], margin)
    return tuple(replace(twin, ratio=ratio) for twin, ratio in zip(found, ratios, strict=True))


def samples_of(row: Row, count: str | None) -> int:
    """How many samples are behind the number of a trial."""
    return 1 if count is None else int(row[count] or 1)


def place_of(row: Row) -> Place:
    return row["campaign_id"], row["host"] or ""


def visit_of(row: Row) -> Visit:
    return (*place_of(row), row["round"])


def is_ok(row: Row) -> bool:
    """Whether the trial has numbers that count."""
    return bool(row["status"] == Status.OK.value)


def by_visit(rows: Iterable[Row], column: str) -> dict[Visit, float]:
    """A number of each visit that ended well and has it."""
    return {visit_of(row): row[column] for row in rows if is_ok(row) and row[column] is not None}


def shared_visits(*sides: Mapping[Visit, Any]) -> list[Visit]:
    """The visits that pair all of some sides, in order; none if they are too few to pair by.

    What disturbs a whole round then cancels out. A visit alone has no interval, and few of many would throw most
    processes away.
    """
    shared = sorted(set.intersection(*(set(side) for side in sides)))
    return shared if len(shared) >= 2 and 2 * len(shared) >= min(map(len, sides)) else []


_Pair = tuple[Sequence[Row], Sequence[Row]]


def _pairs(ours: Sequence[Row], theirs: Sequence[Row]) -> tuple[Pairing, list[_Pair]]:
    """What pairs with what, the oldest way of pairing last; unpaired it is all with all."""
    up, down = map(_by_session, (ours, theirs))
    shared = sorted(set(up) & set(down))
    # A few of many would throw most processes away, those that were measured alone among them.
    if shared and 2 * len(shared) >= min(len(_by_visit(side)) for side in (ours, theirs)):
        return Pairing.TURNS, [(up[name], down[name]) for name in shared]
    rounds = [_by_visit(side) for side in (ours, theirs)]
    visits = shared_visits(*rounds)
    if visits:
        return Pairing.ROUNDS, [(rounds[0][visit], rounds[1][visit]) for visit in visits]
    return Pairing.UNPAIRED, [(ours, theirs)]


def _log_ratios(pairs: Iterable[_Pair], column: str) -> Floats:
    """Of our value by theirs, of each pair; if the user pooled several trials of one, of their geometric means."""
    means = ((sum(math.log(row[column]) for row in side) / len(side) for side in pair) for pair in pairs)
    return np.array([up - down for up, down in means])


def _cpu(pairs: Sequence[_Pair], pairing: Pairing, reading: Reading, priors: Priors, between: float) -> Estimate | None:
    if reading.witness is None:
        return None
    used = [row for pair in pairs for side in pair for row in side]
    if any(row["device"] != "cpu" or not (row[reading.witness] or 0) > 0 for row in used):
        return None
    prior = priors.of(map(place_of, used), pairing, reading.witness)
    return mean_ratio(-_log_ratios(pairs, reading.witness), len(used), prior, between)


def _spreads(groups: Iterable[Group], column: str) -> dict[tuple[Place, Pairing], list[Spread]]:
    found: dict[tuple[Place, Pairing], list[Spread]] = {}
    for group in groups:
        for ours, theirs in (*_beside(group, column), *_halves(group, column)):
            pairing, pairs = _pairs(ours, theirs)
            if pairing is not Pairing.UNPAIRED and len(pairs) > 1:
                spread = Spread(float(_log_ratios(pairs, column).var(ddof=1)), len(pairs) - 1)
                found.setdefault((place_of(ours[0]), pairing), []).append(spread)
    return found


def _usable(rows: Iterable[Row], column: str) -> list[Row]:
    return [row for row in rows if (row[column] or 0) > 0]


def _groups(rows: Iterable[Row]) -> list[Group]:
    """The sides of each in order, eager first, and of each side its trials by replicate."""
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], dict[int, list[Row]]]] = {}
    for row in rows:
        sides = groups.setdefault(tuple(row[name] for name in _GROUP), {})
        side = (row["backend"] != BASELINE, *(row[name] for name in _SIDE))
        sides.setdefault(side, {}).setdefault(row["replicate"], []).append(row)
    return [dict(sorted(groups[key].items())) for key in sorted(groups, key=sorting)]


def _beside(group: Group, column: str) -> Iterator[_Pair]:
    """Each backend with the first that was measured, which is eager where it was."""
    sides = [some for side in group.values() if (some := _usable(side.get(0, ()), column))]
    for other in sides[1:]:
        yield other, sides[0]


def _halves(group: Group, column: str) -> Iterator[_Pair]:
    for side in group.values():
        halves = [_usable(side.get(replicate, ()), column) for replicate in (0, 1)]
        if all(halves):
            yield halves[0], halves[1]


def _by_session(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Those that had turns with others."""
    in_turns = (
        row for row in rows if row["session_id"] is not None and row["interleaving"] != Interleaving.ALONE.value
    )
    return grouped(in_turns, lambda row: row["session_id"])


def _by_visit(rows: Sequence[Row]) -> dict[Visit, list[Row]]:
    return grouped(rows, visit_of)


def _means(rows: Sequence[Row], reading: Reading) -> Floats:
    """The logarithm of one value per visit."""
    visits = _by_visit(rows).values()
    return np.array([sum(math.log(row[reading.column]) for row in some) / len(some) for some in visits])


def _pair_s(pairs: Sequence[_Pair], pairing: Pairing) -> float | None:
    """Of a session from its first start to its last end, of a round the time of both."""
    found = []
    for pair in pairs:
        times = _times([row for side in pair for row in side])
        if times is None:
            return None
        if pairing is Pairing.TURNS:
            found.append((max(end for _, end in times) - min(start for start, _ in times)).total_seconds())
        else:
            found.append(sum((end - start).total_seconds() for start, end in times))
    return median(found)


def _unpaired_s(*sides: Sequence[Row]) -> float | None:
    """Of one process more on each side."""
    times = [found for side in sides if (found := _times(side)) is not None]
    if len(times) < len(sides):
        return None
    return sum(median([(end - start).total_seconds() for start, end in side]) for side in times)


def _times(rows: Sequence[Row]) -> list[tuple[datetime, datetime]] | None:
    """When trials started and ended; null if one does not say."""
    if any(row["finished_at"] is None for row in rows):
        return None
    return [(row["started_at"], row["finished_at"]) for row in rows]
