"""Whether a claim holds: its cases, each judged by the threshold, and all of them together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from orchestrator.analysis.claiming.cases import Case, Cases
from orchestrator.analysis.claiming.configurations import Configuration, chosen
from orchestrator.analysis.claiming.figures import Finding, judge
from orchestrator.analysis.claiming.relations import rank_correlations, scalings, transitions
from orchestrator.analysis.claiming.schema import (
    Claim,
    Flat,
    Growth,
    Level,
    Ordering,
    RankCorrelation,
    Ratio,
    Scaling,
    Transition,
)
from orchestrator.analysis.claiming.statistics import flats, growths, levels, orderings, ratios
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.tax import Regime


@dataclass(frozen=True)
class JudgedCase:
    """A case and what it says."""

    case: Case
    finding: Finding


@dataclass(frozen=True)
class Decision:
    """What the store says about a claim."""

    claim: Claim
    finding: Finding
    cases: tuple[JudgedCase, ...]
    """Those that fail first, then those that do not decide, then by how near they are to the threshold."""
    left_out: tuple[Case, ...]
    """Cases that cannot run."""
    missing: tuple[str, ...]
    """Why there are no more cases, or why they do not decide; empty if nothing is missing."""

    def count(self, finding: Finding) -> int:
        """Cases that say this."""
        return sum(1 for one in self.cases if one.finding is finding)


def decide(claim: Claim, every: Sequence[Configuration]) -> Decision:
    """Decides a claim from all configurations of a store.

    It holds in all cases, or in any, as it says. It fails if one case is proven to, or all are. Bounds that one case of
    several could pass by chance are widened for their number.
    """
    about, missing = chosen(every, parse_conditions(claim.conditions), every)
    if claim.regime is not None:
        wanted = Regime(claim.regime)
        before = len(about)
        about = [one for one in about if one.regime is wanted]
        if before and not about:
            missing.append(f"no configuration is proven to be {claim.regime}")
    found = _cases(claim, about, every) if about else Cases((), ())
    missing += [text for text in found.missing if text not in missing]
    if not about and not missing:
        missing.append(f"no trial meets {' '.join(claim.conditions)}, taken together")
    judged = _judged(claim, [case for case in found.cases if not case.is_impossible])
    left_out = tuple(case for case in found.cases if case.is_impossible)
    finding = _together(claim, [one.finding for one in judged])
    if left_out and not judged:
        missing.append(f"nothing of it can run: {left_out[0].note}")
    lacking = tuple(_lacking(finding, judged, missing))
    return Decision(claim, finding, _ordered(claim, judged), left_out, lacking)


def _cases(claim: Claim, about: Sequence[Configuration], every: Sequence[Configuration]) -> Cases:
    statistic = claim.statistic
    match statistic:
        case Ratio():
            return ratios(statistic, about, every)
        case Flat():
            return flats(statistic, about)
        case Growth():
            return growths(statistic, about)
        case Level():
            return levels(statistic, about)
        case Ordering():
            return orderings(statistic, about, every)
        case Transition():
            return transitions(statistic, about, every)
        case RankCorrelation():
            return rank_correlations(statistic, about)
        case Scaling():
            return scalings(statistic, about)
        case _:
            assert_never(statistic)


def _judged(claim: Claim, cases: Sequence[Case]) -> tuple[JudgedCase, ...]:
    family = max(1, sum(1 for case in cases if case.figure is not None))
    in_all = claim.holds_for == "all"
    return tuple(
        JudgedCase(
            case,
            Finding.NOT_ENOUGH_DATA
            if case.figure is None
            else judge(
                case.figure,
                claim.statistic.threshold,
                family_of_holding=1 if in_all else family,
                family_of_failing=family if in_all else 1,
            ),
        )
        for case in cases
    )


def _together(claim: Claim, findings: Sequence[Finding]) -> Finding:
    decisive, other = (Finding.FAILS, Finding.HOLDS) if claim.holds_for == "all" else (Finding.HOLDS, Finding.FAILS)
    if decisive in findings:
        return decisive
    return other if findings and set(findings) == {other} else Finding.NOT_ENOUGH_DATA


def _ordered(claim: Claim, judged: Sequence[JudgedCase]) -> tuple[JudgedCase, ...]:
    order = (Finding.FAILS, Finding.NOT_ENOUGH_DATA, Finding.HOLDS)
    least, most = claim.statistic.threshold.ends

    def distance(one: JudgedCase) -> float:
        value = None if one.case.figure is None else one.case.figure.value
        return math.inf if value is None else min(abs(value - least), abs(value - most))

    return tuple(sorted(judged, key=lambda one: (order.index(one.finding), distance(one))))


def _lacking(finding: Finding, judged: Sequence[JudgedCase], missing: Sequence[str]) -> list[str]:
    lost = list(dict.fromkeys(missing))
    if finding is not Finding.NOT_ENOUGH_DATA:
        return lost
    without = [one.case for one in judged if one.case.figure is None]
    single = [one.case for one in judged if one.case.figure is not None and one.case.figure.low is None]
    wide = [
        one.case
        for one in judged
        if one.finding is Finding.NOT_ENOUGH_DATA and one.case.figure is not None and one.case.figure.low is not None
    ]
    for cases, reason in (
        (without, "no number"),
        (single, "a single process, so no interval"),
        (wide, "interval too wide"),
    ):
        if cases:
            first = f" ({cases[0].note})" if cases[0].note and cases is without else ""
            lost.append(f"{reason}: {cases[0].label or 'the only case'}{first}{_more(len(cases) - 1)}")
    return lost


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
