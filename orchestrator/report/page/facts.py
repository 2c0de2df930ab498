"""What is known about the systems and environments of a page, side by side, and what else differs in its ratios."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.axes import Key, grouped
from orchestrator.analysis.confounders import Difference, Dimensions, Fields, gathered
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.analysis.statistics import Estimate
from orchestrator.report.page.cells import Against, Cells, Mode, Pairs
from orchestrator.report.page.html import Content, Markup, element, joined, table
from orchestrator.report.page.places import KEY, PageSystem
from orchestrator.report.text import count_text, listed, value_text

_KIB: Final = 2**10
_MHZ: Final = 10**6
_LONGEST: Final = 160
"""Of a value in a table of facts; the whole of it stands in the store."""
_CHANGES_SHOWN: Final = 3
_ENVIRONMENT_ID: Final = [axis.name for axis in KEY].index("environment_id")
_COMPARED: Final = {Against.BACKEND: ("backend",), Against.SYSTEM: ("system", "host", "driver")}


@dataclass(frozen=True)
class Field:
    """One fact of all systems or environments."""

    name: str
    values: tuple[str, ...]
    """One per column; empty where it is unknown."""

    @property
    def differs(self) -> bool:
        """Whether the columns are not all alike."""
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class FactTable:
    """Facts of systems or environments, side by side."""

    columns: tuple[str, ...]
    fields: tuple[Field, ...]


def hardware_of(systems: Sequence[PageSystem], dimensions: Dimensions) -> FactTable:
    """All fields of the fingerprints; a column per system."""
    known = [dimensions.systems.get(system.system_id, {}) for system in systems]
    return FactTable(tuple(system.label for system in systems), _fields(known, "system"))


def software_of(cells: Iterable[Key], environments: Mapping[str, str], dimensions: Dimensions) -> FactTable:
    """Versions and builds; a column per environment that trials ran in."""
    there = {str(key[_ENVIRONMENT_ID]) for key in cells}
    used = sorted(there & environments.keys() & dimensions.environments.keys(), key=lambda name: environments[name])
    names = [environments[identity] for identity in used]
    labels = tuple(
        f"{environments[identity]} {identity[:8]}"
        if names.count(environments[identity]) > 1
        else environments[identity]
        for identity in used
    )
    return FactTable(labels, _fields([dimensions.environments[identity] for identity in used], "environment"))


def differences_of(moment: Snapshot, cells: Cells, pairs: Pairs, mode: Mode) -> dict[Against, tuple[Difference, ...]]:
    """What else differs between the sides of the ratios of one mode, without what is compared; positions in `pairs`.

    Hardware is left out of ratios of systems, because the table of systems shows all of it.
    """
    used = {key for some in pairs.values() for pair in some for key in pair}
    finder = moment.confounders((row for key in used for row in cells[key][mode].measured), conditions=False)
    found = {}
    for against, some in pairs.items():
        sides = [(cells[theirs][mode].measured, cells[ours][mode].measured) for ours, theirs in some]
        changes = {
            number: finder.between(base, cell, _COMPARED[against], conditions=False)
            for number, (base, cell) in enumerate(sides)
            if base and cell
        }
        hidden = "system" if against is Against.SYSTEM else None
        found[against] = tuple(group for group in gathered(changes) if group.change.group != hidden)
    return found


def systems_table(systems: Sequence[PageSystem]) -> Markup:
    """What people call the systems, and what they are."""
    rows: list[Sequence[Content]] = [[system.label, system.hardware, ", ".join(system.hosts)] for system in systems]
    return table("Systems", ["system", "hardware", "hosts"], rows)


def facts_table(found: FactTable, caption: str, kind: str) -> Markup:
    """Facts side by side. What differs comes first and is marked; the rest can be unfolded."""
    if not found.columns:
        return element("p", "Nothing is known about them.")
    differing = [field for field in found.fields if field.differs]
    same = [field for field in found.fields if not field.differs]
    parts: list[Content] = []
    if differing:
        rows: list[Sequence[Content]] = [[field.name, *_marked(field.values)] for field in differing]
        parts.append(table(f"{caption}: what differs", ["", *found.columns], rows, class_=f"facts {kind}"))
    elif len(found.columns) > 1:
        parts.append(element("p", "They do not differ in anything that is known."))
    if same:
        head = ["", found.columns[0] if len(found.columns) == 1 else "all of them"]
        plain = table(f"{caption}: what all have in common", head, [[field.name, field.values[0]] for field in same])
        number = count_text(len(same), "field", "fields")
        title = f"{found.columns[0]}: {number}" if len(found.columns) == 1 else f"{number} in which they do not differ"
        parts.append(element("details", element("summary", title), plain))
    return joined(parts)


def differences_table(differences: Sequence[Difference], against: Against, *, has_ratios: bool) -> Markup:
    """What else differs between the sides of ratios."""
    if not has_ratios:
        return joined([])
    by_field = grouped(differences, lambda difference: difference.change.field)
    if not by_field:
        what = (
            "besides hardware and settings, which stand in the table of systems"
            if against is Against.SYSTEM
            else "that is known"
        )
        return element("p", f"Nothing else {what} differs between the sides of these ratios.", class_="note")
    rows: list[Sequence[Content]] = [
        [
            name,
            listed([f"{_cut(group.change.then)} → {_cut(group.change.now)}" for group in some], _CHANGES_SHOWN),
            sum(len(group.entries) for group in some),
        ]
        for name, some in sorted(by_field.items())
    ]
    caption = "What else differs between the sides of these ratios"
    return element(
        "details",
        element("summary", f"{caption}: {count_text(len(by_field), 'field', 'fields')}"),
        table(caption, ["field", "baseline → other side", "ratios"], rows),
    )


def _marked(values: Sequence[str]) -> list[Markup]:
    """Cells; those that have not the most frequent value stand out."""
    usual = max(values, key=lambda value: (values.count(value), -values.index(value)))
    lone = values.count(usual) == 1
    return [element("td", value or "unknown", class_="differs" if lone or value != usual else None) for value in values]


def _fields(known: Sequence[Fields], group: str) -> tuple[Field, ...]:
    names = dict.fromkeys(name for fields in known for of, name in fields if of == group)
    found = [Field(name, _values(name, [fields.get((group, name), frozenset()) for fields in known])) for name in names]
    return tuple(sorted(found, key=lambda field: not field.differs))


def _values(name: str, columns: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """One text per column. Of long lists that differ, such as the flags of processors, only what not all have."""
    lists = [_list(texts) for texts in columns if texts]
    if len(set(columns)) > 1 and lists and all(texts is not None for texts in lists):
        common = frozenset.intersection(*(texts for texts in lists if texts is not None))
        shown = f"{len(common)} that all have"
        return tuple(
            _cut(", ".join([shown, *sorted((_list(texts) or frozenset()) - common)])) if texts else ""
            for texts in columns
        )
    return tuple(_cut(" / ".join(_shown(name, value) for value in sorted(texts))) for texts in columns)


def _list(values: frozenset[str]) -> frozenset[str] | None:
    """The texts of a field that is one list of texts."""
    if len(values) != 1:
        return None
    (text,) = values
    if not text.startswith("["):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return frozenset(found) if all(isinstance(value, str) for value in found) else None


def _shown(name: str, value: str) -> str:
    if name.endswith("_bytes") and value.isdigit() and int(value) >= _KIB:
        return value_text(Estimate(float(value), None, None, 1, 1), "bytes")
    if name.endswith("_hz") and value.isdigit() and int(value) >= _MHZ:
        return f"{int(value) / _MHZ:,g} MHz"
    return f"{value[:16]}…" if re.fullmatch(r"(sha256:)?[0-9a-f]{64}", value) else value


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
