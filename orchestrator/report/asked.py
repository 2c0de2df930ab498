"""What was asked for and changes what the numbers of a comparison mean, in the lines that compare and gate share."""

from collections.abc import Iterator
from typing import Final

from orchestrator.analysis import Pairing, Ratio
from orchestrator.analysis.comparison import ComparisonTable

_PAIRED: Final = {
    Pairing.TURNS: "taken in turns",
    Pairing.ROUNDS: "paired by round",
    Pairing.UNPAIRED: "unpaired: no shared rounds",
}


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
    """How the processes of the two sides pair in the ratios, as `paired by round`; empty if there is no ratio."""
    kinds = [one for one in Pairing if one in {entry.ratio.pairing for entry in table.ratios if entry.ratio}]
    if not kinds:
        return ""
    unless = "".join(f", or {_PAIRED[one]} where it says so" for one in kinds[1:])
    return f"{_PAIRED[kinds[0]]}{unless}"


def pairing_mark(ratio: Ratio, table: ComparisonTable) -> str:
    """What stands behind a ratio that was found in another way than most."""
    kinds = {one.ratio.pairing for one in table.ratios if one.ratio is not None}
    first = next(one for one in Pairing if one in kinds)
    return "" if ratio.pairing is first else f" {_PAIRED[ratio.pairing].partition(':')[0]}"
