"""Conditions on axes, as people write them: `gpu=A100`, `batch>=8`, `backend!=eager`, `workload~bert*`.

| written | accepts |
|---|---|
| `axis=value`, `axis=a,b` | these values |
| `axis!=value` | all others |
| `axis~pattern` | what the pattern matches, `*` and `?` as in file names, whatever the case |
| `axis>=8`, `<=`, `>`, `<` | numbers |

A value need not be written out: a word of it is enough where just one value has it (`gpu=A100`), and of an identity or
a campaign the beginning. A value that no trial has is an error, never an empty answer.
"""

import fnmatch
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.analysis.axes import AXES, OPTION_AXES, Axis, Value, axis
from orchestrator.errors import ConfigurationError, near_names

NEWEST: Final = "newest"
PREVIOUS: Final = "previous"
RECENT: Final = (NEWEST, PREVIOUS)
"""Of campaigns: the one that started last among those that the other conditions leave, and the one before it."""
NONE: Final = "none"
"""A number that a trial does not have."""
_SHOWN: Final = 12


class Operator(Enum):
    """How a condition compares; the value is how it is written."""

    UNEQUAL = "!="
    AT_LEAST = ">="
    AT_MOST = "<="
    EQUAL = "="
    LIKE = "~"
    ABOVE = ">"
    BELOW = "<"


_ORDERINGS: Final[Mapping[Operator, Callable[[int, int], bool]]] = {
    Operator.AT_LEAST: operator.ge,
    Operator.AT_MOST: operator.le,
    Operator.ABOVE: operator.gt,
    Operator.BELOW: operator.lt,
}
_OPERATORS: Final = "|".join(re.escape(operator.value) for operator in Operator)
_WRITTEN: Final = re.compile(rf"\s*(?P<axis>[A-Za-z_]\w*)\s*(?P<operator>{_OPERATORS})(?P<values>.*)", re.DOTALL)
_NEXT: Final = re.compile(rf"\s+(?=[A-Za-z_]\w*\s*(?:{_OPERATORS}))")


@dataclass(frozen=True)
class Condition:
    axis: Axis
    operator: Operator
    values: tuple[str, ...]
    """As they were written."""
    option: str | None = None
    """Where they were written, for errors."""

    @property
    def text(self) -> str:
        return f"{self.axis.name}{self.operator.value}{','.join(self.values)}"

    @property
    def is_recent(self) -> bool:
        """Whether it means a campaign by its age."""
        return self.axis.name == "campaign" and self.operator is Operator.EQUAL and set(self.values) <= {*RECENT}


def parse_conditions(texts: str | Sequence[str], option: str | None = None) -> tuple[Condition, ...]:
    """Conditions as they were written.

    Args:
        texts: one text or several, each with one condition or, with blanks between them, several:
            `gpu=A100 batch>=8`.
        option: where they were written, for errors.

    Raises:
        ConfigurationError: one is no condition, or its axis is unknown.
    """
    parts = [texts] if isinstance(texts, str) else texts
    return tuple(_parsed(piece, option) for text in parts for piece in _pieces(text, option))


def accepted(condition: Condition, known: Collection[Value]) -> frozenset[Value]:
    """Which of the values that there are a condition accepts.

    Raises:
        ConfigurationError: a value is unknown or means several, or none is accepted.
    """
    if condition.operator in _ORDERINGS:
        found = _ordered(condition, known)
    elif condition.operator is Operator.LIKE:
        shown = {value: condition.axis.shown(value).lower() for value in known}
        found = frozenset(
            value
            for value in known
            if any(fnmatch.fnmatchcase(shown[value], text.lower()) for text in condition.values)
        )
    else:
        named = frozenset(_named(condition, text, known) for text in condition.values)
        found = named if condition.operator is Operator.EQUAL else frozenset(known) - named
    if not found:
        raise ConfigurationError(
            f"no trial meets {condition.text}; {_there_are(condition.axis, known)}", key=condition.option
        )
    return found


def _pieces(text: str, option: str | None) -> list[str]:
    pieces, start, depth = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        found = _NEXT.match(text, position) if not depth else None
        if found and position > start and not text[position - 1].isspace():
            pieces.append(text[start:position])
            start = position
    pieces.append(text[start:])
    if not text.strip():
        raise ConfigurationError("is empty; write a condition such as gpu=A100", key=option)
    return pieces


def _parsed(text: str, option: str | None) -> Condition:
    found = _WRITTEN.fullmatch(text)
    if found is None:
        name = text.strip()
        hint = (
            f"{name}=VALUE"
            if name in AXES or name in OPTION_AXES
            else "axis=value, axis=a,b, axis!=value, axis~pattern or axis>=number"
        )
        raise ConfigurationError(f"{name!r} is no condition; write {hint}", key=option)
    # Options of a backend have commas within their parentheses.
    values = tuple(value.strip() for value in re.split(r",(?![^(]*\))", found["values"]))
    where = axis(found["axis"], option)
    how = Operator(found["operator"])
    if not all(values):
        raise ConfigurationError(f"{text.strip()}: a value is missing; write {where.name}{how.value}VALUE", key=option)
    if how in _ORDERINGS and not where.is_number:
        raise ConfigurationError(f"{text.strip()}: {where.name} is no number; write {where.name}=VALUE", key=option)
    if where.is_number and how is not Operator.LIKE:
        for value in values:
            if not (value == NONE and how not in _ORDERINGS) and not re.fullmatch(r"-?\d+", value):
                raise ConfigurationError(f"{where.name}{how.value}{value}: expected a whole number", key=option)
    return Condition(where, how, values, option)


def _ordered(condition: Condition, known: Collection[Value]) -> frozenset[Value]:
    if len(condition.values) > 1:
        raise ConfigurationError(f"{condition.text}: expected one number", key=condition.option)
    bound, holds = int(condition.values[0]), _ORDERINGS[condition.operator]
    return frozenset(value for value in known if isinstance(value, int) and holds(value, bound))


def _named(condition: Condition, text: str, known: Collection[Value]) -> Value:
    """The one value that a text means."""
    where = condition.axis
    if where.is_number:
        number = None if text == NONE else int(text)
        if number in known:
            return number
        raise ConfigurationError(f"no trial has {where.name}={text}; {_there_are(where, known)}", key=condition.option)
    texts = sorted(str(value) for value in known)
    exact = [value for value in texts if value == text] or [v for v in texts if v.lower() == text.lower()]
    if where.is_identity:
        exact = exact or [value for value in texts if value.startswith(text)]
    else:
        # `A100` is a word of `NVIDIA A100-SXM4-40GB`, and not of `NVIDIA A1000`.
        word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])", re.IGNORECASE)
        exact = exact or [value for value in texts if word.search(value)]
    if len(exact) == 1:
        return exact[0]
    if exact:
        raise ConfigurationError(
            f"{where.name}={text} may be {_listed(exact)}; write one of them out, or {where.name}~*{text}* for all",
            key=condition.option,
        )
    near = near_names(text, texts)
    raise ConfigurationError(
        f"no trial has {where.name}={text}{near or f'; {_there_are(where, known)}'}", key=condition.option
    )


def _there_are(where: Axis, known: Collection[Value]) -> str:
    numbers = sorted(value for value in known if isinstance(value, int))
    texts = [*map(str, numbers), *sorted(where.shown(value) for value in known if not isinstance(value, int))]
    return f"there are: {_listed(texts)}" if texts else "there is no trial at all"


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
