"""In what two documents differ, such as the fingerprints of two hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """One key and what each side has; `-` where a side has nothing."""

    key: str
    left: str
    right: str


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    """What differs, in the order of the keys.

    Of lists of words only the words that one side has alone are named. What is `private` always differs and is left
    out.
    """
    here, there = flattened(left), flattened(right)
    found = []
    for key in dict.fromkeys([*here, *there]):
        before, after = here.get(key), there.get(key)
        if before == after or key.partition(".")[0] == "private":
            continue
        if isinstance(before, tuple) and isinstance(after, tuple):
            found.append(Difference(key, _alone(before, after), _alone(after, before)))
        elif _shown(before) != _shown(after):
            found.append(Difference(key, _shown(before), _shown(after)))
    return found


def flattened(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings and lists of mappings as one mapping with dotted keys; a list of plain values stays a tuple."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{name}.")
        elif isinstance(value, Sequence) and any(isinstance(item, Mapping) for item in value):
            flat |= flattened({str(number): item for number, item in enumerate(value)}, f"{name}.")
        else:
            flat[name] = tuple(value) if isinstance(value, list | tuple) else value
    return flat


def _alone(words: Sequence[Any], others: Sequence[Any]) -> str:
    only = [str(word) for word in words if word not in others]
    return f"only {' '.join(only)}" if only else "-" if set(words) < set(others) else " ".join(map(str, words))


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return " ".join(map(str, value)) or "-" if isinstance(value, tuple) else str(value)
