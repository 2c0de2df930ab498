"""What a campaign found, in whole sentences: speed, the framework's share, where the two are even."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from orchestrator.analysis import Ratio, Shape, Transition, Verdict
from orchestrator.analysis.axes import grouped
from orchestrator.analysis.summary import SettingSummary, SummaryCell, Turning
from orchestrator.analysis.transition import Side
from orchestrator.report.text import batch_interval_text, is_vague, number_text, percent_text, range_text

_THAN: Final = "than eager"
_FACTOR: Final = re.compile(r"(times (?:faster|slower))")
_ALONE: Final = {
    Verdict.EQUIVALENT: "equal within {margin}",
    Verdict.SLIGHTLY_FASTER: "faster by less than {margin}",
    Verdict.SLIGHTLY_SLOWER: "slower by less than {margin}",
    Verdict.UNDECIDED: "undecided",
}


def sentences(summary: SettingSummary, margin: float, name: Callable[[Shape], str]) -> Iterator[str]:
    """What is how much faster, what the framework takes, up to where that matters: a sentence for each shape."""
    for shape, cells in grouped(summary.cells, lambda cell: cell.shape).items():
        turnings = [turning for turning in summary.turnings if turning.shape == shape]
        said = [*_speed(cells, margin), *_framework(cells), *_turning(turnings)]
        if said:
            yield f"{name(shape)}: {'; '.join(said)}."


def _speed(cells: Sequence[SummaryCell], margin: float) -> list[str]:
    said: list[str] = []
    for backend, some in grouped(cells, lambda cell: cell.backend).items():
        found = {cell.batch: cell.ratio for cell in some if cell.ratio is not None}
        if not found:
            continue
        text = f"{backend} {', '.join(_by_verdict(found, margin))}"
        is_told = any(_THAN in earlier for earlier in said)
        said.append(text if is_told else _FACTOR.sub(rf"\1 {_THAN}", text, count=1))
    return said


def _by_verdict(found: dict[int, Ratio], margin: float) -> Iterator[str]:
    """A part for each verdict, with the batches if there are several."""
    for verdict in Verdict:
        some = {batch: ratio for batch, ratio in found.items() if ratio.verdict is verdict}
        if not some:
            continue
        if verdict in (Verdict.FASTER, Verdict.SLOWER):
            known = [ratio.estimate.value for ratio in some.values() if not is_vague(ratio.estimate)]
            values = sorted(value if verdict is Verdict.FASTER else 1 / value for value in known)
            factors = range_text([f"{value:.2f}" for value in values]) if values else ""
            text = f"{factors} times {verdict.value}" if factors else verdict.value
        else:
            text = _ALONE[verdict].format(margin=percent_text(margin))
        yield text if len(some) == len(found) else f"{text} {_batches(some)}"


def _batches(batches: Iterable[int]) -> str:
    shown = [str(batch) for batch in batches]
    return f"at batch {shown[0]}" if len(shown) == 1 else f"at batches {', '.join(shown)}"


def _framework(cells: Sequence[SummaryCell]) -> Iterator[str]:
    """What the framework takes at least under the first backend with a floor, which is eager where it was measured."""
    found = [
        (cell, cell.floor.value / cell.latency.value)
        for cell in cells
        if cell.floor and cell.floor_proven and cell.latency and not is_above_call(cell) and not is_vague(cell.latency)
    ]
    if not found:
        return
    backend = found[0][0].backend
    shares = {cell.batch: share for cell, share in found if cell.backend == backend}
    first, last = next(iter(shares)), list(shares)[-1]
    ends = f"{percent_text(shares[first])} of a call"
    if first != last:
        ends += f" at batch {first}, {percent_text(shares[last])} at {last}"
    yield f"{backend}'s framework is at least {ends}"


def is_above_call(cell: SummaryCell) -> bool:
    """Whether a floor was disturbed so much that it is no bound: a call took less."""
    return cell.floor is not None and cell.latency is not None and cell.floor.value > cell.latency.value


def _turning(turnings: Sequence[Turning]) -> Iterator[str]:
    inside = [turning for turning in turnings if turning.transition.side is Side.INSIDE]
    if inside:
        each = [f"{_at(turning.transition)} ({turning.backend})" for turning in inside]
        yield f"framework and arithmetic are even at batch {', '.join(each)} or a larger one"


def _at(found: Transition) -> str:
    assert found.batch is not None
    return number_text(found.batch) + ("" if found.interval is None else f" {batch_interval_text(found)}")
