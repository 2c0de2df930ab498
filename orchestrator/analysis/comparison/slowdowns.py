"""The gate of continuous integration: did anything become slower, beyond doubt and by more than is allowed?

A gate that cries wolf is switched off. So only a slow-down fails whose whole interval lies beyond the limit after
Holm's correction over all cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.analysis.axes import Key, key_text
from orchestrator.analysis.comparison.pivot import ComparedSide, Texts, pivot_sides
from orchestrator.analysis.comparison.table import ComparisonTable, Entry
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.pooling import Policy
from orchestrator.analysis.ratios import Ratio
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.verdict import Verdict, slower_beyond
from orchestrator.errors import ConfigurationError
from orchestrator.store import Results

MAX_SLOWDOWN = 0.05
BASELINE, CANDIDATE = "baseline", "candidate"


class Outcome(Enum):
    """What became of one cell of the baseline, or of one that only the candidate has."""

    SLOWER = "slower"
    """Beyond doubt, by more than the limit."""
    MISSING = "missing"
    """The baseline was measured, the candidate was not."""
    UNDECIDED = "undecided"
    """Neither a slow-down beyond the limit nor the absence of one is shown."""
    FASTER = "faster"
    """Beyond doubt, by however little."""
    WITHIN_LIMIT = "within the limit"
    """No slow-down beyond the limit, beyond doubt."""
    NEW = "new"
    """Only the candidate was measured."""


@dataclass(frozen=True)
class GatedCell:
    """One configuration."""

    name: str
    """What it is, in words."""
    outcome: Outcome
    entry: Entry
    """Of the candidate, or of the baseline where the candidate has none."""
    reason: str | None
    """Why it is missing."""


@dataclass(frozen=True)
class Gate:
    """The decision, and what it rests on."""

    table: ComparisonTable
    cells: tuple[GatedCell, ...]
    """The worst first."""
    max_slowdown: float
    baseline: str
    candidate: str
    require_all: bool
    ratios: tuple[Ratio, ...]
    """All that there are, judged by the limit: slower by more than that, equivalent if that is excluded."""

    @property
    def failures(self) -> tuple[GatedCell, ...]:
        """The cells that let the gate fail."""
        failing = {Outcome.SLOWER, Outcome.MISSING} if self.require_all else {Outcome.SLOWER}
        return tuple(cell for cell in self.cells if cell.outcome in failing)

    @property
    def passed(self) -> bool:
        return not self.failures

    def count(self, outcome: Outcome) -> int:
        return sum(cell.outcome is outcome for cell in self.cells)


def gate(
    results: Results,
    baseline: Texts,
    candidate: Texts = "campaign=newest",
    max_slowdown: float = MAX_SLOWDOWN,
    match: Sequence[str] | None = None,
    where: Texts = (),
    policy: Policy | None = None,
    *,
    require_all: bool = False,
) -> Gate:
    """Decides whether a candidate is slower than its baseline.

    Args:
        results: of `open_store`.
        baseline: conditions, as `campaign=previous`; trials of the candidate among them are left out.
        candidate: conditions; by default the newest campaign.
        max_slowdown: what is allowed: 0.05 is 5 %.
        match: names of the axes on which cells correspond; by default what makes a configuration.
        where: conditions that all trials meet.
        policy: the metric, and what may be pooled.
        require_all: whether a cell that only the baseline has is a failure.

    Raises:
        ConfigurationError: there is nothing to compare, or trials would be pooled that differ.
    """
    if not max_slowdown > 0:
        raise ConfigurationError(f"is {max_slowdown:g}, expected more than 0, such as 5%", key="--max-slowdown")
    left = parse_conditions(baseline, "--baseline")
    right = parse_conditions(candidate, "--candidate")
    sides = ComparedSide.of(left, BASELINE), ComparedSide.of(right, CANDIDATE)
    conditions = parse_conditions(where, "--where")
    table = pivot_sides(Snapshot.of(results), sides, conditions, match, policy or Policy(), without_overlap=True)
    entries = [(entry, entry.ratio) for entry in table.ratios if entry.ratio is not None]
    judgements = slower_beyond([ratio.estimate for _, ratio in entries], max_slowdown)
    ratios = [replace(ratio, judgement=found) for (_, ratio), found in zip(entries, judgements, strict=True)]
    slower = {entry.key: ratio.verdict for (entry, _), ratio in zip(entries, ratios, strict=True)}
    return Gate(
        table=table,
        cells=_gated(table, slower),
        max_slowdown=max_slowdown,
        baseline=" ".join(condition.text for condition in (*conditions, *left)),
        candidate=" ".join(condition.text for condition in (*conditions, *right)),
        require_all=require_all,
        ratios=tuple(ratios),
    )


def _gated(table: ComparisonTable, slower: Mapping[Key, Verdict]) -> tuple[GatedCell, ...]:
    candidates = {entry.key[:-1]: entry for entry in table.entries if entry.key[-1] == CANDIDATE}
    found = []
    for entry in table.entries:
        other = candidates.get(entry.key[:-1])
        name = key_text(entry.key[:-1], table.axes[:-1]) or "all"
        if entry.is_baseline and entry.cell.measured and (other is None or not other.cell.measured):
            reason = other.problem if other is not None else "the candidate has no such trial"
            found.append(GatedCell(name, Outcome.MISSING, entry, reason))
        elif not entry.is_baseline and entry.cell.measured:
            found.append(GatedCell(name, _outcome(entry, slower.get(entry.key)), entry, entry.problem))
    order = list(Outcome)

    def badness(cell: GatedCell) -> tuple[int, float]:
        return order.index(cell.outcome), cell.entry.ratio.estimate.value if cell.entry.ratio else 0.0

    return tuple(sorted(found, key=badness))


def _outcome(entry: Entry, slower: Verdict | None) -> Outcome:
    if entry.ratio is None:
        # A ratio that is not defined says nothing about slower; a baseline that was not measured makes it new.
        return Outcome.UNDECIDED if entry.baseline is not None and entry.baseline.measured else Outcome.NEW
    if slower is Verdict.SLOWER:
        return Outcome.SLOWER
    if entry.ratio.verdict.direction > 0:
        return Outcome.FASTER
    return Outcome.WITHIN_LIMIT if slower is Verdict.EQUIVALENT else Outcome.UNDECIDED
