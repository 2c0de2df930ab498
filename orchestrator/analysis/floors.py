"""The dispatch floor of a structure: one number for all of its trials in a place, whichever of them it was taken for.

Each task measures it anew. A disturbance can only make a twin slower, so that of several measurements the least counts:
of the small twin and of the large one each, before the line is drawn through both.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from orchestrator.store.tax import floor_columns, floor_s
from runners.contract import Status

Row: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[Any, ...]

_PLACE: Final = ("system_id", "environment_id", "isolation", "method_version")
_TWINS: Final = ("dispatch_floor_small_s", "dispatch_floor_large_s")
FLOOR_COLUMNS: Final = (*_PLACE, "status", "dispatch_floor_structure", "dispatch_floor_valid", *_TWINS)
"""The columns of `trials` that common floors are read from."""


def common_floors(rows: Iterable[Row]) -> dict[Key, float]:
    """The floor of each structure in each place, in seconds, by `floor_key`; where it is proven by proven rows alone.

    A trial that did not end ok says nothing: what disturbed it disturbed its floor.

    Args:
        rows: with `FLOOR_COLUMNS`, of one campaign or several.
    """
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        known = row["dispatch_floor_small_s"] is not None and row["dispatch_floor_structure"] is not None
        if known and row["status"] == Status.OK.value:
            groups.setdefault(floor_key(row), []).append(row)
    found = {}
    for key, group in groups.items():
        proven = [row for row in group if row["dispatch_floor_valid"] is True] or group
        small, large = ([row[name] for row in proven if row[name] is not None] for name in _TWINS)
        seconds = floor_s(min(small), min(large, default=None))
        if seconds > 0:
            found[key] = seconds
    return found


def floor_key(row: Row) -> Key:
    """What trials have in common that have one floor."""
    return tuple(row[name] for name in (*_PLACE, "dispatch_floor_structure"))


def with_common_floors(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows in which the floor of the structure stands, and what follows from it for each trial's latency.

    Args:
        rows: with `FLOOR_COLUMNS` and `latency_sync_median_s`.
    """
    known = [dict(row) for row in rows]
    floors = common_floors(known)
    for row in known:
        seconds = floors.get(floor_key(row))
        if seconds is None:
            continue
        row["dispatch_floor_s"] = seconds
        if row["dispatch_floor_valid"] is True and row["latency_sync_median_s"]:
            row.update(floor_columns(row["latency_sync_median_s"], seconds))
    return known
