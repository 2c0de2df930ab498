"""Conditions of claims: those of all commands, and on the options of workloads that are numbers, such as `layers`.

A claim that asks for what a store does not have is no mistake, as it is in a command: it is not decided.
"""

import json
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from orchestrator.analysis.axes import AXES, Axis, Group, Row, Value, axis
from orchestrator.analysis.conditions import Condition, Operator, accepted, parse_conditions
from orchestrator.errors import ConfigurationError
from runners.contract.catalogue import WORKLOADS, IntegerRange

_NEXT: Final = re.compile(r"\s+(?=[A-Za-z_]\w*\s*(?:!=|>=|<=|=|~|>|<))")
_WRITTEN_OUT: Final = frozenset({"workload", "backend", "options"})
"""Of these a word is not enough: `bert` is a workload, and `bert-base` another that a store may have without it."""
_NAME: Final = re.compile(r"\s*([A-Za-z_]\w*)")


@lru_cache(maxsize=4096)
def _option(options: str | None, name: str) -> Value:
    value = json.loads(options or "{}").get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _axis_of_option(name: str) -> Axis:
    def read(row: Row) -> Value:
        return _option(row["workload_options"], name)

    return Axis(name, Group.WORK, "option of some workloads", ("workload", "workload_options"), read, is_number=True)


OPTION_AXES: Final = {
    name: _axis_of_option(name)
    for info in WORKLOADS.values()
    for name, option in info.options.items()
    if isinstance(option, IntegerRange) and name not in AXES
}
"""By name: null for a workload that does not have it."""


@dataclass(frozen=True)
class Allowed:
    """What a condition leaves."""

    values: frozenset[Value]
    missing: tuple[str, ...]
    """What it asks for and no trial has, in words."""


def claim_axis(name: str) -> Axis:
    """The axis of a name, those of options included.

    Raises:
        ConfigurationError: there is none.
    """
    return OPTION_AXES[name] if name in OPTION_AXES else axis(name)


def claim_conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Conditions as they were written; of each text one or several, with blanks between them.

    Raises:
        ConfigurationError: one is no condition, or its axis is unknown.
    """
    return tuple(_parsed(piece) for text in texts for piece in _NEXT.split(text.strip()))


def allowed(condition: Condition, known: Set[Value]) -> Allowed:
    """Which of the values that there are a condition leaves, one by one: some may be there and others not."""
    if condition.operator is Operator.UNEQUAL:
        unwanted = [
            _allowed(replace(condition, operator=Operator.EQUAL, values=(one,)), known) for one in condition.values
        ]
        return Allowed(frozenset(known) - frozenset().union(*(one.values for one in unwanted)), ())
    if condition.operator is not Operator.EQUAL:
        return _allowed(condition, known)
    found = [_allowed(replace(condition, values=(one,)), known) for one in condition.values]
    return Allowed(
        frozenset().union(*(one.values for one in found)), tuple(text for one in found for text in one.missing)
    )


def _allowed(condition: Condition, known: Set[Value]) -> Allowed:
    exact = condition.axis.name in _WRITTEN_OUT and condition.operator is Operator.EQUAL
    try:
        if exact and not known & {*condition.values}:
            return Allowed(frozenset(), (f"no trial has {condition.text}",))
        return Allowed(accepted(condition, known), ())
    except ConfigurationError:
        return Allowed(frozenset(), (f"no trial has {condition.text}",))


def _parsed(piece: str) -> Condition:
    found = _NAME.match(piece)
    if found is None or found[1] not in OPTION_AXES:
        (condition,) = parse_conditions(piece)
        return condition
    # An option is a number, and is written as any other number.
    (condition,) = parse_conditions(AXES["batch"].name + piece[found.end() :])
    return replace(condition, axis=OPTION_AXES[found[1]])
