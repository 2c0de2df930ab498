"""Counts of operations by name, and the text in which they stand in a row."""

from collections import Counter
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from runners.contract.record import FactValue

_NONE = "none"


def counts_as_text(names: Iterable[str]) -> str:
    """`MatMul 72, Add 14`: the most frequent first."""
    ordered: List[Tuple[str, int]] = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join("%s %d" % item for item in ordered) or _NONE


def parsed_counts(text: str) -> Dict[str, int]:
    """The counts by name, of such a text."""
    if text == _NONE:
        return {}
    pairs = (item.rpartition(" ") for item in text.split(", "))
    return {name: int(count) for name, _, count in pairs}


def operation_facts(names: Optional[Mapping[str, int]]) -> Dict[str, FactValue]:
    """`operations`, how many a call dispatches, and `operations_by_name`; null where they cannot be counted."""
    if names is None:
        return {"operations": None, "operations_by_name": None}
    return {"operations": sum(names.values()), "operations_by_name": counts_as_text(Counter(names).elements())}
