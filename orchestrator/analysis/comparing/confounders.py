"""What else differs between the two sides of each ratio, without the axes that are compared."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.analysis.changes import (
    FACTS_OF_A_RUN,
    Change,
    Dimensions,
    Fields,
    changed_conditions,
    differing,
    fields_of,
    joined,
)

Row = dict[str, Any]
RowId = tuple[str, str, int]

_MODEL_OF_CPU: Final = (
    *("cpu.vendor", "cpu.model_name", "cpu.family", "cpu.model", "cpu.stepping", "cpu.sockets", "cpu.cores"),
    *("cpu.threads", "cpu.numa_nodes", "cpu.caches", "cpu.flags", "cpu.max_frequency_hz"),
)
_HARDWARE: Final = (*_MODEL_OF_CPU, "gpus", "memory.total_bytes", "machine")
_SAME_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu": ("gpus",),
    "cpu": _MODEL_OF_CPU,
    "hw": _HARDWARE,
    "driver": ("gpu_driver_version", "gpu_cuda_version", "driver_"),
    "host": ("host",),
    "torch": ("torch", "torch_version"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime_version"),
    "isolation": ("isolation",),
    "method": ("method_version", "runner_sha256"),
}
_STACK: Final = ("environment", "lock_sha256", "image_digest", "image_id", "image_config_sha256")
"""That one environment is not the other; which versions differ is told."""
_WHOLE_GROUP: Final = {"system": "system", "protocol": "protocol"}


@dataclass(frozen=True)
class Difference:
    """A field that differs, and in which ratios of a table."""

    change: Change
    """`then` is the baseline's side."""
    entries: tuple[int, ...]
    """Positions of the ratios in the table."""


@dataclass
class Confounders:
    """Finds them, and remembers what equal trials say: most rows of a campaign say the same."""

    dimensions: Dimensions
    rows: Mapping[RowId, Row]
    """The columns of `change_columns`, by campaign, trial and attempt."""
    _known: dict[tuple[Any, ...], Fields] = field(default_factory=dict)
    _sides: dict[tuple[int, ...], Fields] = field(default_factory=dict)

    def between(
        self, baseline: Sequence[Row], cell: Sequence[Row], compared: Sequence[str], *, conditions: bool
    ) -> tuple[Change, ...]:
        """The fields that differ.

        Args:
            baseline: measured trials.
            cell: measured trials of the other side.
            compared: names of the axes on which the two are meant to differ.
            conditions: whether load, clocks and the like are told: where rounds are shared they fall out of the ratio.
        """
        before, after = (self._side(rows) for rows in (baseline, cell))
        found = () if before is after else differing(before, after)
        if conditions:
            found += tuple(changed_conditions(*([self.rows[row_id(row)] for row in rows] for rows in (baseline, cell))))
        return tuple(one for one in found if not is_left_out(one, compared))

    def _side(self, rows: Sequence[Row]) -> Fields:
        fields = {id(one): one for one in (self._fields(self.rows[row_id(row)]) for row in rows)}
        key = tuple(sorted(fields))
        if key not in self._sides:
            self._sides[key] = joined(fields.values())
        return self._sides[key]

    def _fields(self, row: Row) -> Fields:
        # Not of the whole facts: those count operations and bytes of this trial.
        facts = tuple(sorted(_facts_that_count(row["facts"]).items()))
        key = (facts, *(value for name, value in row.items() if name not in _VARYING))
        if key not in self._known:
            self._known[key] = fields_of(row, self.dimensions)
        return self._known[key]


_VARYING: Final = frozenset({"facts", "conditions_before", "trial_id", "attempt", "sweep"})


def row_id(row: Row) -> RowId:
    """What tells a row from all others."""
    return row["campaign_id"], row["trial_id"], row["attempt"]


def is_left_out(change: Change, compared: Sequence[str]) -> bool:
    """Whether a field says nothing but what is compared."""
    for name in compared:
        if _WHOLE_GROUP.get(name) == change.group:
            return True
        if name.startswith("environment") and change.field in _STACK:
            return True
        if any(_is_part(change.field, same) for same in _SAME_AS.get(name, ())):
            return True
    return False


def gathered(found: Mapping[int, Sequence[Change]]) -> tuple[Difference, ...]:
    """Each difference once, with the ratios that have it; those of most ratios first within their group."""
    positions: dict[Change, list[int]] = {}
    for position, changes in found.items():
        for one in changes:
            positions.setdefault(one, []).append(position)
    groups = list(dict.fromkeys(one.group for one in positions))
    ordered = sorted(positions, key=lambda one: (groups.index(one.group), -len(positions[one])))
    return tuple(Difference(one, tuple(positions[one])) for one in ordered)


def _is_part(name: str, of: str) -> bool:
    if of.endswith("_"):
        return name.startswith(of)
    return name == of or name.startswith((f"{of}.", f"{of}["))


def _facts_that_count(text: str | None) -> dict[str, str]:
    facts: dict[str, Any] = json.loads(text or "{}")
    return {name: str(value) for name, value in facts.items() if name.startswith(FACTS_OF_A_RUN)}
