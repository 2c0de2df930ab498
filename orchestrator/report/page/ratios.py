"""Ratios of a page: each cell against the baseline backend beside it, and against the baseline system.

Verdicts are reached for all ratios of a page of one kind and latency together (Holm), as `taxmeter compare` does for a
table: who looks at a page looks at all of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.axes import Value
from orchestrator.analysis.ratios import Priors, Ratio, judged, ratio_of
from orchestrator.report.page.cells import Cells
from orchestrator.report.page.model import Mode, Timing
from orchestrator.report.page.places import KEY, PLACE

Key = tuple[Value, ...]
Pair = tuple[Key, Key]

_NAMES: Final = tuple(one.name for one in KEY)
_BACKEND: Final = _NAMES.index("backend")
_SYSTEM: Final = _NAMES.index("system")
_ENVIRONMENT: Final = _NAMES.index("environment")
_ENVIRONMENT_ID: Final = _NAMES.index("environment_id")
_OF_A_PLACE: Final = {one.name for one in PLACE} - {"isolation", "method"}
"""Names of the axes on which a cell and that on another system may differ."""
_MATCHED: Final = tuple(number for number, name in enumerate(_NAMES) if name not in _OF_A_PLACE)
"""What two cells on different systems share, so that their ratio means the hardware."""


@dataclass(frozen=True)
class Pairs:
    """Which cell is compared with which, the cell first."""

    backends: tuple[Pair, ...]
    systems: tuple[Pair, ...]


def pairs_of(cells: Cells, backend: str | None, system: str | None) -> Pairs:
    """The pairs of cells that ratios are made of.

    Args:
        cells: by key.
        backend: the baseline backend; null for no ratios of backends.
        system: identity of the baseline system; null for no ratios of systems.
    """
    beside, across = [], []
    there: dict[Key, list[Key]] = {}
    for key in cells:
        if key[_SYSTEM] == system:
            there.setdefault(_work(key), []).append(key)
    for key in cells:
        base = (*key[:_BACKEND], backend, *key[_BACKEND + 1 :])
        if backend is not None and key[_BACKEND] != backend and base in cells:
            beside.append((key, base))
        other = _counterpart(key, there.get(_work(key), ()))
        if system is not None and key[_SYSTEM] != system and other is not None:
            across.append((key, other))
    return Pairs(tuple(beside), tuple(across))


def commands_of(cells: Iterable[Key], backend: str | None, system: str | None) -> dict[str, tuple[str, ...]]:
    """What asks `taxmeter compare` for the ratios of a page, by the name of the chart: its options.

    Args:
        cells: keys.
        backend: the baseline backend; null for no ratios of backends.
        system: identity of the baseline system; null for no ratios of systems.
    """
    keys = list(cells)
    varying = [name for number, name in enumerate(_NAMES) if len({key[number] for key in keys}) > 1]
    work = ["workload", *(name for name in varying if name not in ("workload", "backend"))]
    across = [*(name for name in work if name not in _OF_A_PLACE or name == "environment"), "backend"]
    found: dict[str, tuple[str, ...]] = {}
    if backend is not None:
        found["speedups"] = ("--rows", ",".join(work), "--cols", "backend", "--baseline", f"backend={backend}")
    if system is not None:
        found["hardware"] = ("--rows", ",".join(across), "--cols", "system", "--baseline", f"system={system}")
    return found


def timings_of(cells: Cells, pairs: Pairs, priors: Mapping[Mode, Priors]) -> dict[Key, dict[Mode, Timing]]:
    """The latencies of all cells with their ratios."""
    backends = {mode: _judged(cells, pairs.backends, mode, priors[mode]) for mode in Mode}
    systems = {mode: _judged(cells, pairs.systems, mode, priors[mode]) for mode in Mode}
    return {
        key: {mode: Timing(cell[mode].estimate, backends[mode].get(key), systems[mode].get(key)) for mode in Mode}
        for key, cell in cells.items()
    }


def _judged(cells: Cells, pairs: Iterable[Pair], mode: Mode, priors: Priors) -> dict[Key, Ratio]:
    found = {}
    for key, base in pairs:
        ratio = ratio_of(cells[key][mode].measured, cells[base][mode].measured, mode.metric.reading, priors)
        if ratio is not None:
            found[key] = ratio
    return dict(zip(found, judged(list(found.values())), strict=True))


def _work(key: Key) -> Key:
    return tuple(key[number] for number in _MATCHED)


def _counterpart(key: Key, found: Sequence[Key]) -> Key | None:
    """The cell on the other system: of the same environment, else the only one of an environment of the same name."""
    for number in (_ENVIRONMENT_ID, _ENVIRONMENT):
        same = [other for other in found if other[number] == key[number]]
        if len(same) == 1:
            return same[0]
    return None
