"""Ratios of a page: each cell against the baseline backend beside it, and against the baseline system.

Verdicts are reached for the ratios of one panel together (Holm), as `taxmeter compare` does for the table of that
panel: who looks at a panel looks at all of it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.analysis.axes import Value
from orchestrator.analysis.comparing.cells import Cell
from orchestrator.analysis.comparing.policies import Interval
from orchestrator.analysis.comparing.ratios import Noise, Place, Ratio, judged, noise_floors, noise_of, ratio_of
from orchestrator.analysis.comparing.reading import Moment
from orchestrator.analysis.verdict import MINIMUM_EFFECT, Verdict
from orchestrator.report.page.cells import Cells
from orchestrator.report.page.model import Mode, Timing
from orchestrator.report.page.places import KEY, PLACE

Key = tuple[Value, ...]
Pair = tuple[Key, Key]
Floors = Mapping[Mode, Mapping[Place, Noise]]

_NAMES: Final = tuple(one.name for one in KEY)
_BACKEND: Final = _NAMES.index("backend")
_SYSTEM: Final = _NAMES.index("system")
_ENVIRONMENT: Final = _NAMES.index("environment")
_ENVIRONMENT_ID: Final = _NAMES.index("environment_id")
OF_A_PLACE: Final = {one.name for one in PLACE} - {"isolation", "method"}
"""Names of the axes on which a cell and that on another system may differ."""
_MATCHED: Final = tuple(number for number, name in enumerate(_NAMES) if name not in OF_A_PLACE)
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


def timings_of(cells: Cells, pairs: Pairs, floors: Floors) -> dict[Key, dict[Mode, Timing]]:
    """The latencies of all cells with their ratios."""
    backends = {mode: _judged(cells, pairs.backends, mode, floors[mode], _panel) for mode in Mode}
    systems = {mode: _judged(cells, pairs.systems, mode, floors[mode], _panel_of_systems) for mode in Mode}
    return {
        key: {mode: Timing(cell[mode].estimate, backends[mode].get(key), systems[mode].get(key)) for mode in Mode}
        for key, cell in cells.items()
    }


def floors_of(moment: Moment, visited: Collection[tuple[str, str]], *, without_flagged: bool = False) -> Floors:
    """The noise floor of both latencies, by campaign and host, from all A/A pairs there.

    Args:
        moment: of the store.
        visited: the campaigns and hosts of the selection.
        without_flagged: leaves out trials that guards flagged.

    Raises:
        StoreError: a file cannot be read.
    """
    campaigns = {campaign for campaign, _ in visited}
    twins = moment.twins(campaigns, [mode.metric for mode in Mode], without_flagged=without_flagged)
    here = [row for row in twins if (row["campaign_id"], row["host"] or "") in visited]
    return {mode: noise_floors(here, mode.metric) for mode in Mode}


def _judged(
    cells: Cells, pairs: Iterable[Pair], mode: Mode, floors: Mapping[Place, Noise], panel: Any
) -> dict[Key, Ratio]:
    families: dict[Key, dict[Key, Ratio]] = {}
    for key, base in pairs:
        ratio = _ratio(cells[key][mode], cells[base][mode], mode, floors)
        if ratio is not None:
            families.setdefault(panel(key, base), {})[key] = ratio
    found: dict[Key, Ratio] = {}
    for family in families.values():
        found |= zip(family, judged(list(family.values())), strict=True)
    return found


def _ratio(cell: Cell, base: Cell, mode: Mode, floors: Mapping[Place, Noise]) -> Ratio | None:
    if not cell.measured or not base.measured:
        return None
    found = ratio_of(cell, base, mode.metric, Interval.STUDENT)
    if found is None:
        return None
    noise = noise_of((cell, base), floors)
    return Ratio(*found, noise, noise.effect(MINIMUM_EFFECT), noise.margin(MINIMUM_EFFECT), Verdict.INCONCLUSIVE)


def _panel(key: Key, base: Key) -> Key:  # noqa: ARG001 -- panels of both kinds are told by the same two keys
    """Place and shape: all but backend and batch."""
    return key[:_BACKEND]


def _panel_of_systems(key: Key, base: Key) -> Key:
    """Both places and the shape."""
    return (*base[: len(PLACE)], *key[:_BACKEND])


def _work(key: Key) -> Key:
    return tuple(key[number] for number in _MATCHED)


def _counterpart(key: Key, found: Sequence[Key]) -> Key | None:
    """The cell on the other system: of the same environment, else of that of the same name, else the only one."""
    for number in (_ENVIRONMENT_ID, _ENVIRONMENT):
        same = [one for one in found if one[number] == key[number]]
        if len(same) == 1:
            return same[0]
    return found[0] if len(found) == 1 else None
