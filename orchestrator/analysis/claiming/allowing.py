"""What conditions leave of what a store has, for claims.

A claim that asks for what a store does not have is no mistake, as it is in a command: it is not decided.
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.analysis.axes import Value
from orchestrator.analysis.conditions import Condition, Operator, accepted
from orchestrator.errors import ConfigurationError

_WRITTEN_OUT: Final = frozenset({"workload", "backend", "options"})
"""Of these a word is not enough: `bert` is a workload, and `bert-base` another that a store may have without it."""


@dataclass(frozen=True)
class Allowed:
    """What a condition leaves."""

    values: frozenset[Value]
    missing: tuple[str, ...]
    """What it asks for and no trial has, in words."""


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
