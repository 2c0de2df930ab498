"""Verdicts in words, the same in every view: what differs, what could have been found, what a decision takes."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from orchestrator.analysis import Ratio, Verdict
from orchestrator.analysis.verdict import MOST_SESSIONS
from orchestrator.report.wording import count_text, ratio_text

COLOURS: Final = {
    Verdict.FASTER: "green",
    Verdict.SLIGHTLY_FASTER: "green",
    Verdict.SLOWER: "red",
    Verdict.SLIGHTLY_SLOWER: "red",
    Verdict.EQUIVALENT: "",
    Verdict.UNDECIDED: "yellow",
}
_OF_TIME: Final = (
    *("latency", "throughput", "floor", "dispatch", "graph", "busy", "kernel_sum", "overhead", "cpu_time"),
)
_BETTER: Final = {"faster": "better", "slower": "worse"}
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


def verdict_name(verdict: Verdict, metric: str = "latency") -> str:
    """A verdict in a word or two: what is no time is better or worse."""
    if metric.startswith(_OF_TIME):
        return verdict.value
    return " ".join(_BETTER.get(word, word) for word in verdict.value.split())


def counts_text(ratios: Sequence[Ratio], metric: str = "latency") -> str:
    """How many ratios have each verdict: `2 faster, 1 undecided`."""
    counts = Counter(one.verdict for one in ratios)
    return ", ".join(f"{counts[one]} {verdict_name(one, metric)}" for one in Verdict if counts[one])


def rule_lines(ratios: Sequence[Ratio], margin: float) -> Iterator[str]:
    """The rule, what could have been found, and what a decision would take; nothing without ratios."""
    if not ratios:
        return
    together = f"all {len(ratios)} judged together (Holm)" if len(ratios) > 1 else "judged alone"
    yield (
        f"Different: the interval excludes 1, {together}. Equivalent, or slightly: all of it lies within "
        f"{percent(margin)}."
    )
    found = [one.judgement.least for one in ratios if one.judgement.least is not None]
    if found:
        middle, low, high = (_least(float(value)) for value in (np.median(found), min(found), max(found)))
        spread = f" in the middle, {low} at best, {high} at worst" if low != high else ""
        yield f"Smallest difference that could have been found: {middle}{spread}."
    yield from _decisions([one for one in ratios if one.verdict is Verdict.UNDECIDED])


def calibration_line(pairs: Sequence[Ratio]) -> str:
    """How many A/A pairs were called different, though nothing differs."""
    if not pairs:
        return "No A/A pair ran (`duplicate` in the sweep), so that the calibration was not checked."
    different = sum(one.verdict.is_different for one in pairs)
    return f"A/A, the same trial twice: {different} of {count_text(len(pairs), 'pair', 'pairs')} called different."


def cpu_text(ratio: Ratio) -> str | None:
    """What CPU time says, where it calls a ratio otherwise; else null."""
    if ratio.cpu is None or not ratio.is_contradicted:
        return None
    return f"CPU time says {ratio_text(ratio.cpu.estimate)}: {ratio.cpu.verdict.value}"


def percent(share: float) -> str:
    """A share as `4.2 %`, `3 %`, and above ten without digits behind the point."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{float(f'{100 * share:.1f}'):g} %"


def _least(difference: float) -> str:
    return percent(difference) if difference <= 1 else "more than 100 %"


def _decisions(undecided: Sequence[Ratio]) -> Iterator[str]:
    known = sorted(one.sessions for one in undecided if one.sessions is not None)
    if not undecided:
        return
    if not known:
        single = all(one.estimate.low is None for one in undecided)
        why = "one session gives no interval" if single else f"{MOST_SESSIONS} sessions more would not decide them"
        yield f"{len(undecided)} undecided: {why}."
        return
    times = sorted(one.more_s for one in undecided if one.more_s is not None)
    each = " each" if len(times) > 1 else ""
    took = f" ({_range([_time(one) for one in (times[0], times[-1])])}{each})" if times else ""
    sessions = _range([str(known[0]), str(known[-1])])
    rest = f"; {len(undecided) - len(known)} of them more than {MOST_SESSIONS}" if len(known) < len(undecided) else ""
    yield f"{len(undecided)} undecided: a decision takes about {sessions} sessions more{took}{rest}."


def _range(ends: Sequence[str]) -> str:
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def _time(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{math.ceil(seconds)} s"
    return f"{math.ceil(seconds / _MINUTE_S)} min" if seconds < 2 * _HOUR_S else f"{seconds / _HOUR_S:.0f} h"
