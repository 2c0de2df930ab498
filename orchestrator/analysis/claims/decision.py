"""Whether a claim holds, and whether its published value is found again: its cases, judged one by one and together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, assert_never

from orchestrator.analysis.claims import cases, schema
from orchestrator.analysis.claims.cases import Case, Cases
from orchestrator.analysis.claims.configurations import Configuration, chosen, claim_columns, configurations
from orchestrator.analysis.claims.intervals import Agreement, Finding, Printed
from orchestrator.analysis.claims.schema import Claim
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.tax import Regime
from orchestrator.store import Results

Either = TypeVar("Either", Finding, Agreement)
_NO_INTERVAL: Final = "no interval (a single process, or a floor, of which the least counts)"


@dataclass(frozen=True)
class JudgedCase:
    """A case and what it says."""

    case: Case
    finding: Finding
    agreement: Agreement | None
    """Null where the source prints no number."""


@dataclass(frozen=True)
class Decision:
    """What the store says about a claim."""

    claim: Claim
    finding: Finding
    """Whether its direction holds."""
    agreement: Agreement | None
    """Whether the published value lies in the interval; null where the source prints no number."""
    cases: tuple[JudgedCase, ...]
    """Those that fail first, then those that do not decide, then by how near they are to the threshold."""
    left_out: tuple[Case, ...]
    """Cases that cannot run."""
    missing: tuple[str, ...]
    """Why there are no more cases, or why they do not decide; empty if nothing is missing."""

    def count(self, verdict: Finding | Agreement) -> int:
        return sum(verdict in (judged.finding, judged.agreement) for judged in self.cases)


def decide(claim: Claim, every: Sequence[Configuration]) -> Decision:
    """Decides a claim from all configurations of a store.

    It holds in all cases, or in any, as it says. It fails if one case is proven to, or all are; the published value is
    outside in the same way. Bounds that one case of several could pass by chance are widened for their number.
    """
    about, missing = chosen(every, claim.conditions, every)
    if claim.regime is not None and about:
        wanted = Regime(claim.regime)
        about = [configuration for configuration in about if configuration.regime is wanted]
        if not about:
            missing.append(f"no configuration is proven to be {claim.regime}")
    found = _cases(claim, about, every, is_complete=not missing) if about else Cases()
    missing += found.missing
    if not about and not missing:
        missing.append(f"no trial meets {' '.join(claim.where or ())}, taken together")
    judged = _judged(claim, [case for case in found.cases if not case.is_impossible])
    left_out = tuple(case for case in found.cases if case.is_impossible)
    finding = _together(
        claim.holds_for, [verdict.finding for verdict in judged], Finding.HOLDS, Finding.FAILS, Finding.NOT_ENOUGH_DATA
    )
    agreement = None
    if claim.published is not None:
        agreements = [verdict.agreement or Agreement.NOT_ENOUGH_DATA for verdict in judged]
        agreement = _together(
            claim.holds_for, agreements, Agreement.INSIDE, Agreement.OUTSIDE, Agreement.NOT_ENOUGH_DATA
        )
    if left_out and not judged:
        missing.append(f"nothing of it can run: {left_out[0].note}")
    if finding is Finding.NOT_ENOUGH_DATA:
        missing += _undecided(judged)
    return Decision(claim, finding, agreement, _ordered(claim, judged), left_out, tuple(dict.fromkeys(missing)))


def decide_all(results: Results, claims: Mapping[str, Claim], where: Sequence[str]) -> list[Decision]:
    """What the trials of a store that meet conditions say about claims; their scatter is that of their whole campaigns.

    Raises:
        ConfigurationError: no trial meets a condition.
    """
    snapshot, columns = Snapshot.of(results), claim_columns()
    rows = snapshot.rows(columns, snapshot.condition(parse_conditions(where, "--where")))
    every = configurations(rows, snapshot.whole(rows, columns) if where else rows)
    return [decide(claim, every) for claim in claims.values()]


def _cases(claim: Claim, about: Sequence[Configuration], every: Sequence[Configuration], *, is_complete: bool) -> Cases:
    statistic = claim.statistic
    match statistic:
        case schema.Ratio():
            return cases.ratios(statistic, about, every, is_complete=is_complete)
        case schema.Flat():
            return cases.flats(statistic, about)
        case schema.Growth():
            return cases.growths(statistic, about)
        case schema.Level():
            return cases.levels(statistic, about)
        case schema.Ordering():
            published = claim.published if isinstance(claim.published, tuple) else None
            return cases.orderings(statistic, about, every, published)
        case schema.Transition():
            return cases.transitions(statistic, about, every)
        case schema.RankCorrelation():
            return cases.rank_correlations(statistic, about)
        case schema.Trend():
            return cases.trends(statistic, about)
        case _:
            assert_never(statistic)


def _judged(claim: Claim, cases: Sequence[Case]) -> tuple[JudgedCase, ...]:
    family = max(1, sum(case.figure is not None for case in cases))
    holding, failing = (1, family) if claim.holds_for == "all" else (family, 1)
    printed = Printed.of(claim.published) if isinstance(claim.published, float) else None
    judged = []
    for case in cases:
        finding, agreement = Finding.NOT_ENOUGH_DATA, None
        published = printed if case.published is None else case.published
        if case.figure is not None:
            finding = claim.statistic.threshold.judge(case.figure, family_of_holding=holding, family_of_failing=failing)
        if published is not None:
            agreement = case.figure.agrees(published, family) if case.figure else Agreement.NOT_ENOUGH_DATA
        judged.append(JudgedCase(case, finding, agreement))
    return tuple(judged)


def _together(
    holds_for: Literal["all", "any"], verdicts: Sequence[Either], good: Either, bad: Either, unknown: Either
) -> Either:
    decisive, other = (bad, good) if holds_for == "all" else (good, bad)
    if decisive in verdicts:
        return decisive
    return other if verdicts and set(verdicts) == {other} else unknown


def _ordered(claim: Claim, judged: Sequence[JudgedCase]) -> tuple[JudgedCase, ...]:
    order = (Finding.FAILS, Finding.NOT_ENOUGH_DATA, Finding.HOLDS)
    ends = claim.statistic.threshold.ends

    def distance(verdict: JudgedCase) -> float:
        value = None if verdict.case.figure is None else verdict.case.figure.value
        return math.inf if value is None else min(abs(value - end) for end in ends)

    return tuple(sorted(judged, key=lambda verdict: (order.index(verdict.finding), distance(verdict))))


def _undecided(judged: Sequence[JudgedCase]) -> list[str]:
    reasons: dict[str, list[Case]] = {name: [] for name in ("no number", _NO_INTERVAL, "interval too wide")}
    for verdict in judged:
        figure = verdict.case.figure
        if figure is None:
            reasons["no number"].append(verdict.case)
        elif figure.low is None:
            reasons[_NO_INTERVAL].append(verdict.case)
        elif verdict.finding is Finding.NOT_ENOUGH_DATA:
            reasons["interval too wide"].append(verdict.case)
    found = []
    for reason, some in reasons.items():
        if some:
            note = f" ({some[0].note})" if some[0].note and some[0].figure is None else ""
            more = f" and {len(some) - 1} more" if len(some) > 1 else ""
            found.append(f"{reason}: {some[0].label or 'the only case'}{note}{more}")
    return found
