"""What was asked for and changes what the numbers of a comparison mean, in the lines that compare and gate share."""

from collections import Counter
from collections.abc import Iterator

from orchestrator.analysis.comparing import ComparisonTable, Interval, Pairing, Ratio
from orchestrator.analysis.statistics import MANY_PROCESSES


def policy_lines(table: ComparisonTable) -> Iterator[str]:
    """What was left out, and what was pooled."""
    if table.policy.latest:
        yield "Of each cell only the newest campaign."
    if table.policy.without_flagged:
        yield "Without the trials that guards flagged as disturbed."
    if table.policy.pool:
        pooled = ", ".join(sorted(one.value for one in table.policy.pool))
        yield f"POOLED on request over different {pooled}: a cell may hold what is not one thing."


def flagged_line(table: ComparisonTable) -> str | None:
    """How many processes guards flagged; null if none."""
    flagged = sum(entry.cell.flagged for entry in table.entries)
    processes = sum(len(entry.cell.measured) for entry in table.entries)
    if not flagged:
        return None
    return f"Guards flagged {flagged} of {processes} processes as disturbed; --without-flagged leaves them out."


def pairing_text(table: ComparisonTable) -> str:
    """How the intervals of the ratios were found, as `paired by round`; empty if there is no ratio."""
    ratios = [entry.ratio for entry in table.entries if entry.ratio is not None]
    intervals = Counter(one.interval for one in ratios if one.pairing is Pairing.PAIRED)
    if not ratios:
        return ""
    if not intervals:
        return "unpaired: no shared rounds"
    unless = " unless it says unpaired" if intervals.total() < len(ratios) else ""
    return f"paired by round{_method(intervals, table.policy.interval)}{unless}"


def pairing_mark(ratio: Ratio, table: ComparisonTable) -> str:
    """What stands behind a ratio that was found in another way than most."""
    kinds = {one.ratio.pairing for one in table.ratios if one.ratio is not None}
    return " unpaired" if len(kinds) > 1 and ratio.pairing is Pairing.UNPAIRED else ""


def _method(intervals: Counter[Interval], asked: Interval) -> str:
    if asked is Interval.STUDENT:
        return ""
    drawn, paired = intervals[Interval.BOOTSTRAP], intervals.total()
    if drawn == paired:
        return ", by the bootstrap"
    needs = f"the bootstrap needs {MANY_PROCESSES} rounds, and samples"
    if not drawn:
        return f", by Student's t ({needs})"
    return f", by the bootstrap in {drawn} of {paired} ratios, else by Student's t ({needs})"
