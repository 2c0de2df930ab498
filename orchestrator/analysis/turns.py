"""Turns: of each process one number for each of its turns, cycle by cycle.

Cycle i of two processes of one session is comparable, because they ran within the same second. Of wall time the number
is the median of the turn's calls. Of CPU time it is their mean: the kernel adds the time of other threads in steps that
are longer than a call, so that only sums are right.
"""

from collections.abc import Callable, Collection
from typing import Final

import numpy as np
import pyarrow as pa

from orchestrator.analysis.statistics import Floats
from orchestrator.errors import StoreError

WALL, CPU = "turns_s", "turns_cpu_s"
"""Columns of rows, not of the store: seconds per call of each turn, median of wall and mean of CPU time; null without
turns."""
_SAMPLES: Final = {WALL: "samples_sync_s", CPU: "samples_sync_cpu_s"}
_TURNS: Final = "turn_samples"
SESSION: Final = "session_id"
SOURCES: Final = (SESSION, "interleaving", _TURNS, *_SAMPLES.values())
"""Columns of `trials` from which they are made."""
ALONE: Final = "alone"
"""How a process was interleaved that had no neighbour in its cycles."""


def stored(columns: Collection[str]) -> list[str]:
    """The columns of `trials` that must be read to have some columns of rows."""
    more = SOURCES if {WALL, CPU} & set(columns) else ()
    return [name for name in dict.fromkeys([*columns, *more]) if name not in _SAMPLES]


def with_turns(trials: pa.Table) -> pa.Table:
    """Trials with the numbers of their turns, in the columns `turns_s` and `turns_cpu_s`.

    Args:
        trials: with the columns `SOURCES`.

    Raises:
        StoreError: a trial has another number of samples than its turns.
    """
    alone = np.array([one == ALONE for one in trials["interleaving"].to_pylist()], dtype=np.bool_)
    session = np.array([one is not None for one in trials[SESSION].to_pylist()], dtype=np.bool_)
    for name, samples in _SAMPLES.items():
        of_segments = _segment_medians if name == WALL else _segment_means
        found = _of_turns(
            trials[samples].combine_chunks(), trials[_TURNS].combine_chunks(), session & ~alone, of_segments
        )
        trials = trials.append_column(name, pa.array(found, pa.list_(pa.float64())))
    return trials


def _of_turns(
    samples: pa.Array, turns: pa.Array, usable: np.ndarray, of_segments: Callable[[Floats, np.ndarray], Floats]
) -> list[Floats | None]:
    counts, sizes = (_lengths(one) for one in (turns, samples))
    usable = usable & (counts > 0) & (sizes > 0)
    chosen = pa.array(usable)
    lengths = turns.filter(chosen).flatten().to_numpy(zero_copy_only=False)
    values = samples.filter(chosen).flatten().to_numpy(zero_copy_only=False)
    ends = np.cumsum(counts[usable])
    if len(ends) and (np.cumsum(lengths)[ends - 1] != np.cumsum(sizes[usable])).any():
        raise StoreError(f"a trial has another number of samples than {_TURNS} says")
    numbers = np.split(of_segments(values, lengths), ends[:-1])
    rest = iter(numbers if len(ends) else [])
    return [next(rest) if one else None for one in usable]


def _lengths(lists: pa.Array) -> np.ndarray:
    found = pa.compute.fill_null(pa.compute.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.asarray(found, dtype=np.int64)


def _segment_medians(values: Floats, lengths: np.ndarray) -> Floats:
    """The median of each of the segments that follow each other; not a number where one is empty."""
    ordered = values[np.lexsort((values, np.repeat(np.arange(len(lengths)), lengths)))]
    starts = np.cumsum(lengths) - lengths
    found = np.full(len(lengths), np.nan)
    some = lengths > 0
    first, count = starts[some], lengths[some]
    found[some] = (ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2
    return found


def _segment_means(values: Floats, lengths: np.ndarray) -> Floats:
    """The mean of each of the segments that follow each other; not a number where one is empty."""
    found = np.full(len(lengths), np.nan)
    some = lengths > 0
    if some.any():
        found[some] = np.add.reduceat(values, (np.cumsum(lengths) - lengths)[some]) / lengths[some]
    return found
