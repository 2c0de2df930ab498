"""Raw samples of a page: thinned to what a page can carry, packed, compressed, and unpacked when somebody looks.

Of every series that is kept, number, least, median and largest are those of all its samples; the samples that are
shown are every n-th in their order, so that trends and steps stay where they are, while single outliers may be left
out. They are rounded to a 65,535th of the range of their series.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orchestrator.analysis.confounders import RowId, row_id
from orchestrator.analysis.ratios import visit_of
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.report.page.cells import Mode, PageCell
from orchestrator.store import Selection

_BUDGET: Final = 1_200_000
"""Samples on a page: about 3 MB of it."""
_FEWEST: Final = 4
"""Samples of a series, however many series there are; below it series are left out instead."""
_BLOCK: Final = 2**17
"""Bytes before compression, more or less: what is unpacked for one look."""
_STEPS: Final = 2**16 - 1
HEADER: Final = np.dtype(
    [
        ("mode", "<u2"),
        ("campaign", "<u2"),
        ("host", "<u2"),
        ("round", "<u2"),
        ("count", "<u4"),
        ("kept", "<u4"),
        ("least", "<f4"),
        ("median", "<f4"),
        ("largest", "<f4"),
        ("flagged", "<u2"),
    ]
)
"""Of one series; seconds; `flagged` is how many guards flag its process. It stands before the samples of its cell, and
the script on the page reads the same."""

SeriesId = tuple[str, str, int, str]
"""Campaign, trial, attempt and mode."""


@dataclass(frozen=True)
class Taken:
    """Samples of one process in one mode."""

    row: Mapping[str, Any]
    mode: Mode
    count: int
    summary: tuple[float, float, float]
    """Least, median, largest."""
    values: NDArray[np.float64]
    """Those that are kept."""


@dataclass(frozen=True)
class SampleBook:
    """All samples of a page."""

    blocks: tuple[bytes, ...]
    """Compressed (raw deflate)."""
    index: tuple[tuple[int, int, int] | None, ...]
    """By cell: block, offset in it, and number of series; null without samples."""
    hosts: tuple[str, ...]
    """By the number in the headers."""
    kept: int
    total: int
    per_series: int | None
    """The most samples that are kept of a series; null if all are."""
    series: int
    series_total: int


def sample_book(
    moment: Snapshot,
    condition: pc.Expression | None,
    cells: Sequence[PageCell],
    campaigns: Sequence[str],
    hosts: Sequence[str],
    budget: int = _BUDGET,
) -> SampleBook:
    """The samples of the processes of some cells."""
    wanted = {row_id(row): number for number, cell in enumerate(cells) for row in cell.ok}
    lengths = _lengths(cells)
    cap, every = _limits(list(lengths.values()), budget)
    chosen = {key for number, key in enumerate(sorted(lengths)) if number % every == 0}
    by_cell: dict[int, list[Taken]] = {}
    kept = 0
    for row, mode, values in _series(moment, condition, wanted):
        if (*row_id(row), mode.value) in chosen:
            taken = _taken(row, mode, values, cap)
            kept += len(taken.values)
            by_cell.setdefault(wanted[row_id(row)], []).append(taken)
    places = ({name: number for number, name in enumerate(names)} for names in (campaigns, hosts))
    blocks, index = _packed(by_cell, len(cells), *places)
    longest = max(lengths.values(), default=0)
    total = sum(lengths.values())
    return SampleBook(
        blocks, index, tuple(hosts), kept, total, cap if longest > cap else None, len(chosen), len(lengths)
    )


def _limits(lengths: Sequence[int], budget: int) -> tuple[int, int]:
    """The most samples of a series, and of how many series one is kept."""
    if sum(lengths) <= budget:
        return max(lengths, default=_FEWEST), 1
    if _FEWEST * len(lengths) >= budget:
        return _FEWEST, -(-_FEWEST * len(lengths) // budget)
    low, high = _FEWEST, max(lengths)
    ordered = np.array(lengths)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(ordered, middle).sum() <= budget else (low, middle - 1)
    return low, 1


def _taken(row: Mapping[str, Any], mode: Mode, values: NDArray[np.float64], cap: int) -> Taken:
    count = len(values)
    kept = values if count <= cap else values[np.arange(cap) * count // cap]
    # Not np.median, which takes ten times as long for so few values; there are very many series.
    ordered = np.sort(values)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Taken(row, mode, count, (float(ordered[0]), float(median), float(ordered[-1])), kept)


def _packed(
    by_cell: Mapping[int, Sequence[Taken]], cells: int, campaigns: Mapping[str, int], hosts: Mapping[str, int]
) -> tuple[tuple[bytes, ...], tuple[tuple[int, int, int] | None, ...]]:
    blocks: list[bytes] = []
    index: list[tuple[int, int, int] | None] = []
    block = bytearray()
    for number in range(cells):
        taken = sorted(by_cell.get(number, ()), key=lambda series: (series.mode.value, *visit_of(series.row)))
        index.append((len(blocks), len(block), len(taken)) if taken else None)
        block += _headers(taken, campaigns, hosts)
        for series in taken:
            block += _rounded(series).tobytes()
        if len(block) >= _BLOCK or number == cells - 1:
            blocks.append(_deflated(bytes(block)))
            block = bytearray()
    return tuple(blocks), tuple(index)


def _headers(taken: Sequence[Taken], campaigns: Mapping[str, int], hosts: Mapping[str, int]) -> bytes:
    modes, found = list(Mode), []
    for series in taken:
        campaign, host, number = visit_of(series.row)
        where = modes.index(series.mode), campaigns[campaign], hosts[host], number
        flagged = len(series.row["guard_flags"] or ())
        found.append((*where, series.count, len(series.values), *series.summary, flagged))
    return np.array(found, dtype=HEADER).tobytes()


def _rounded(series: Taken) -> NDArray[np.uint16]:
    least, _, largest = series.summary
    width = largest - least
    scaled = (series.values - least) / width * _STEPS if width > 0 else np.zeros(len(series.values))
    return np.rint(scaled).astype("<u2")


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _lengths(cells: Sequence[PageCell]) -> dict[SeriesId, int]:
    """How many samples each series has, as its row says."""
    return {
        (*row_id(row), mode.value): int(row[str(mode.metric.count)])
        for cell in cells
        for row in cell.ok
        for mode in Mode
        if row[str(mode.metric.count)]
    }


def _series(
    moment: Snapshot, condition: pc.Expression | None, wanted: Mapping[RowId, int]
) -> Iterator[tuple[dict[str, Any], Mode, NDArray[np.float64]]]:
    """All series of the wanted trials, campaign by campaign so that not all of them are in memory."""
    names = ("campaign_id", "trial_id", "attempt", "host", "round", "guard_flags")
    for campaign in sorted({key[0] for key in wanted}):
        here = pc.field("campaign_id") == campaign
        columns = (*names, *(mode.samples for mode in Mode))
        here = here if condition is None else here & condition
        table = Selection(moment.view, "trials", here, columns).arrow()
        rows = table.select(names).to_pylist()
        for mode in Mode:
            column = _one_array(table[mode.samples])
            ends = column.offsets.to_numpy()
            numbers = column.values.to_numpy(zero_copy_only=False)
            for position, row in enumerate(rows):
                values = numbers[ends[position] : ends[position + 1]]
                if len(values) and row_id(row) in wanted:
                    yield row, mode, values


def _one_array(column: pa.ChunkedArray) -> pa.ListArray:
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
