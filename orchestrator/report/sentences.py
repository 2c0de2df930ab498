"""What a campaign found, in sentences: what is how much faster, what the framework takes, up to where that matters."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from orchestrator.analysis import Cell, Line, Ratio, SettingSummary, Shape, Transition, Turning, Verdict
from orchestrator.analysis.transition import Side
from orchestrator.report.verdicts import percent
from orchestrator.report.wording import duration_text, is_vague, percent_text

_THAN = "than eager"
_FACTOR = re.compile(r"(times (?:faster|slower))")
_ALONE = {
    Verdict.EQUIVALENT: "equal within {margin}",
    Verdict.SLIGHTLY_FASTER: "faster by less than {margin}",
    Verdict.SLIGHTLY_SLOWER: "slower by less than {margin}",
    Verdict.UNDECIDED: "undecided",
}


def sentences(summary: SettingSummary, margin: float, name: Callable[[Shape], str]) -> Iterator[str]:
    """A sentence for each workload and shape of which there is something to say.

    Args:
        summary: of one setting.
        margin: within which two things are equivalent; 0.03 is 3 %.
        name: of a shape, by which it is told from the others of the setting.
    """
    for shape in dict.fromkeys(line.shape for line in summary.lines):
        lines = [line for line in summary.lines if line.shape == shape]
        turnings = [turning for turning in summary.turnings if turning.shape == shape]
        said = [*_speed(lines, margin), *_framework(lines), *_turning(turnings)]
        if said:
            yield f"{name(shape)}: {'; '.join(said)}."


def transition_text(found: Transition, is_bound: bool) -> str:
    """Where the regime changes, in words that follow `at batch` or stand alone.

    Args:
        found: the transition.
        is_bound: it is there or at a larger batch, as on a CPU, whose floor is a lower bound.
    """
    first, last = found.batches[0], found.batches[-1]
    at = "at least at" if is_bound else "at"
    if found.side is Side.BELOW:
        by = "by the floor " if is_bound else ""
        return f"{by}below {first}, the smallest batch that was measured"
    if found.side is Side.ABOVE:
        return f"above {last}, the largest batch that was measured"
    assert found.batch is not None
    if found.interval is None:
        return f"{at} {number_text(found.batch)}; a single round gives no interval"
    return f"{at} {number_text(found.batch)} {_interval(found)}"


def number_text(value: float) -> str:
    """A batch, which between two measured ones is no whole number."""
    return f"{value:.0f}" if value >= 100 or math.isclose(value, round(value), abs_tol=0.05) else f"{value:.1f}"


def _interval(found: Transition) -> str:
    assert found.interval is not None
    first, last = found.batches[0], found.batches[-1]
    low = f"below {first}" if found.interval.low is None else number_text(found.interval.low)
    high = f"above {last}" if found.interval.high is None else number_text(found.interval.high)
    return f"[{low}, {high}]"


def _speed(lines: Sequence[Line], margin: float) -> list[str]:
    said: list[str] = []
    backends = dict.fromkeys(cell.backend for line in lines for cell in line.cells if cell.ratio is not None)
    for backend in backends:
        found = {
            line.batch: cell.ratio
            for line in lines
            for cell in line.cells
            if cell.backend == backend and cell.ratio is not None
        }
        parts = _by_verdict(found, margin)
        text = f"{backend} {', '.join(parts)}"
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
            text = f"{_factors(values)} times {verdict.value}" if values else verdict.value
        else:
            text = _ALONE[verdict].format(margin=percent(margin))
        yield text if len(some) == len(found) else f"{text} {_batches(some)}"


def _factors(values: Sequence[float]) -> str:
    low, high = f"{values[0]:.2f}", f"{values[-1]:.2f}"
    return low if low == high else f"{low} to {high}"


def _batches(batches: Iterable[int]) -> str:
    listed = [str(batch) for batch in batches]
    return f"at batch {listed[0]}" if len(listed) == 1 else f"at batches {', '.join(listed)}"


def _framework(lines: Sequence[Line]) -> Iterator[str]:
    """What the framework takes at least under the first backend with a floor, which is eager where it was measured."""
    cells = [(line.batch, cell) for line in lines for cell in line.cells if _has_floor(cell)]
    if not cells:
        return
    backend = cells[0][1].backend
    shares = {batch: _share(cell) for batch, cell in cells if cell.backend == backend}
    floors = [cell.floor for _, cell in cells if cell.backend == backend and cell.floor is not None]
    first, last = next(iter(shares)), list(shares)[-1]
    ends = f"{percent_text(shares[first])} of a call"
    if first != last:
        ends += f" at batch {first}, {percent_text(shares[last])} at {last}"
    yield f"{backend}'s framework takes at least {duration_text(floors[0])}, {ends}"


def is_above_call(cell: Cell) -> bool:
    """Whether a floor was disturbed so much that it is no bound: a call took less."""
    return cell.floor is not None and cell.latency is not None and cell.floor.value > cell.latency.value


def _has_floor(cell: Cell) -> bool:
    is_measured = cell.floor is not None and cell.floor_proven and cell.latency is not None
    return is_measured and not is_above_call(cell) and (cell.latency is None or not is_vague(cell.latency))


def _share(cell: Cell) -> float:
    assert cell.floor is not None
    assert cell.latency is not None
    return cell.floor.value / cell.latency.value


def _turning(turnings: Sequence[Turning]) -> Iterator[str]:
    inside = [turning for turning in turnings if turning.transition.side is Side.INSIDE]
    if inside:
        each = [f"{_at(turning.transition)} ({turning.backend})" for turning in inside]
        yield f"framework and arithmetic are even at batch {', '.join(each)} or a larger one"


def _at(found: Transition) -> str:
    assert found.batch is not None
    interval = "" if found.interval is None else f" {_interval(found)}"
    return number_text(found.batch) + interval
