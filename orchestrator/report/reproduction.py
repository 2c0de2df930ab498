"""A reproduction for the terminal: then and now side by side, the verdicts, and what else differs."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from orchestrator.analysis import MARGIN, Change, Estimate, Verdict
from orchestrator.analysis.reproduction import Comparison, ModeComparison
from orchestrator.report.comparison import render_changes
from orchestrator.report.terminal import ruled_table
from orchestrator.report.text import (
    count_text,
    duration_text,
    indented,
    ratio_text,
    rule_lines,
    shape_name,
    statuses_text,
)

_MARGIN = f"{MARGIN:.0%}"
_ORDER = sorted(Verdict, key=lambda verdict: not verdict.is_equivalent)


def render_reproduction(
    comparisons: Sequence[Comparison], differing: Sequence[Change], notes: Sequence[str]
) -> RenderableType:
    """Then and now for each configuration, the counts of verdicts, and the fields that differ."""
    parts: list[RenderableType] = [
        Text(
            "Median latency [95 % interval] then and now. Ratio: latency then over latency now, above 1 is faster now; "
            "its interval is unpaired, over the processes of both sides."
        )
    ]
    for comparison in comparisons:
        parts.extend(_comparison(comparison))
    parts.append(Text())
    parts.append(Text.assemble(("Verdicts: ", "bold"), _counts(comparisons)))
    ratios = [mode.ratio for comparison in comparisons for mode in comparison.modes if mode.ratio is not None]
    parts += [Text(line) for line in rule_lines(ratios, MARGIN)]
    parts.append(Text("Identity:", style="bold"))
    parts += [indented(note, 2) for note in notes]
    if differing:
        parts.append(Text("What else differs between then and now:", style="bold"))
        parts.extend(render_changes([(change, "") for change in differing]))
    else:
        parts.append(Text("Nothing else that is known differs between then and now."))
    return Group(*parts)


def _comparison(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text(f"\n{shape_name(comparison.shape)}, batch {comparison.batch}, {comparison.backend}", style="bold")
    then, now = comparison.sides.then, comparison.sides.now
    key = "the same trial key" if then.trial_key == now.trial_key else f"trial key {now.trial_key}"
    ended = [statuses_text(found, "no trial") for found in (comparison.statuses_then, comparison.statuses_now)]
    yield Text(f"  then: {then.campaign_id} on {then.host}, trial key {then.trial_key}, {ended[0]}")
    yield Text(f"  now:  {now.campaign_id} on {now.host}, {key}, {ended[1]}")
    for reason in comparison.reasons_now:
        yield Text(f"        {reason}", style="red")
    if not comparison.modes:
        yield Text("  no side has a latency, so there is nothing to compare", style="yellow")
        return
    table = ruled_table("", "then", "now", "ratio", "verdict")
    for mode in comparison.modes:
        ratio = "-" if mode.ratio is None else ratio_text(mode.ratio.estimate, decimals=3)
        table.add_row(Text(mode.name), Text(_latency(mode.then)), Text(_latency(mode.now)), Text(ratio), _verdict(mode))
    yield Padding(table, (0, 0, 0, 2))


def _latency(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    size = f"{count_text(estimate.processes, 'round', 'rounds')}, {count_text(estimate.samples, 'sample', 'samples')}"
    return f"{duration_text(estimate)}\n{size}"


def _verdict(mode: ModeComparison) -> Text:
    if mode.ratio is None:
        missing = "then" if mode.then is None else "now"
        return Text(f"nothing to compare: no latency {missing}", style="yellow")
    if mode.ratio.estimate.low is None:
        return Text("undecided: a side has one process only, which gives no interval", style="yellow")
    verdict = mode.ratio.verdict
    style = "green" if verdict.is_equivalent else "red" if verdict is Verdict.SLOWER else "yellow"
    return Text(_words(verdict), style=style)


def _words(verdict: Verdict) -> str:
    if verdict is Verdict.UNDECIDED:
        return f"undecided: neither a difference nor equality within {_MARGIN} is shown; --rounds takes more"
    within = [f"reproduced within {_MARGIN}"] if verdict.is_equivalent else []
    return ", ".join([*within, *([f"{verdict.value} now"] if verdict.is_different else [])])


def _counts(comparisons: Sequence[Comparison]) -> str:
    modes = [mode for comparison in comparisons for mode in comparison.modes]
    words = [mode.ratio and _words(mode.ratio.verdict).partition(":")[0] for mode in modes]
    names = [*(_words(verdict).partition(":")[0] for verdict in _ORDER), None]
    counts = [f"{words.count(name)} {name or 'without a comparison'}" for name in names if name in words]
    return f"{', '.join(counts) or 'none'} (of {count_text(len(modes), 'ratio', 'ratios')})"
