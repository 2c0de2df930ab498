"""What is known about the systems and environments of a page, side by side, and what else differs in its ratios."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow.compute as pc

from orchestrator.analysis.axes import Value
from orchestrator.analysis.confounders import (
    FACTS_OF_A_RUN,
    Change,
    Confounders,
    Dimensions,
    Fields,
    change_columns,
    row_id,
)
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.report.page.cells import Cells
from orchestrator.report.page.model import Difference, FactTable, Field, Mode, PageSystem
from orchestrator.report.page.places import KEY
from orchestrator.report.page.ratios import Pair, Pairs

Row = dict[str, Any]
Key = tuple[Value, ...]

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_MHZ: Final = 10**6
_LONGEST: Final = 160
"""Of a value in a table of facts; the whole of it stands in the store."""
_ENVIRONMENT_ID: Final = [one.name for one in KEY].index("environment_id")
_COMPARED: Final = {"backends": ("backend",), "systems": ("system", "host", "driver")}


def hardware_table(systems: Sequence[PageSystem], dimensions: Dimensions) -> FactTable:
    """All fields of the fingerprints; a column per system."""
    known = [dimensions.systems.get(one.system_id, {}) for one in systems]
    return FactTable(tuple(one.label for one in systems), _fields(known, "system"))


def software_table(cells: Iterable[Key], environments: Mapping[str, str], dimensions: Dimensions) -> FactTable:
    """Versions and builds; a column per environment that trials ran in.

    Args:
        cells: keys of cells.
        environments: the name of each environment, by identity.
        dimensions: what trials refer to.
    """
    there = {str(key[_ENVIRONMENT_ID]) for key in cells}
    used = sorted(there & environments.keys() & dimensions.environments.keys(), key=lambda one: environments[one])
    names = [environments[one] for one in used]
    labels = tuple(
        f"{environments[one]} {one[:8]}" if names.count(environments[one]) > 1 else environments[one] for one in used
    )
    return FactTable(labels, _fields([dimensions.environments[one] for one in used], "environment"))


def differences_of(
    moment: Snapshot, condition: pc.Expression | None, cells: Cells, pairs: Pairs, mode: Mode
) -> tuple[Difference, ...]:
    """What else differs between the sides of the ratios of one mode, without what is compared.

    Hardware is left out of ratios of systems, because the table of systems shows all of it.

    Raises:
        StoreError: a file cannot be read.
    """
    sides: dict[str, tuple[Pair, ...]] = {"backends": pairs.backends, "systems": pairs.systems}
    used = {
        row["campaign_id"]
        for some in sides.values()
        for pair in some
        for key in pair
        for row in cells[key][mode].measured
    }
    rows = {row_id(row): row for campaign in sorted(used) for row in _change_rows(moment, condition, campaign)}
    finder = Confounders(moment.dimensions(), rows)
    counts: dict[tuple[str, Change], int] = {}
    for name, some in sides.items():
        for ours, theirs in some:
            cell, base = cells[ours][mode], cells[theirs][mode]
            if not cell.measured or not base.measured:
                continue
            for one in finder.between(base.measured, cell.measured, _COMPARED[name], conditions=False):
                if not (name == "systems" and one.group == "system"):
                    counts[name, one] = counts.get((name, one), 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1].field))
    return tuple(Difference(name, one.field, _cut(one.then), _cut(one.now), count) for (name, one), count in ordered)


def _change_rows(moment: Snapshot, condition: pc.Expression | None, campaign: str) -> list[Row]:
    """The rows of a campaign, with as little of their facts as tells where they ran: there may be very many."""
    here = (pc.field("campaign_id") == campaign) & (pc.field("status") == "ok")
    found = moment.rows(change_columns(), here if condition is None else here & condition)
    texts: dict[str, str] = {}
    for row in found:
        facts = json.loads(row["facts"] or "{}")
        text = json.dumps({name: value for name, value in facts.items() if name.startswith(FACTS_OF_A_RUN)})
        row["facts"] = texts.setdefault(text, text)
        row["protocol"] = texts.setdefault(row["protocol"], row["protocol"])
        row["conditions_before"] = None
    return found


def _fields(known: Sequence[Fields], group: str) -> tuple[Field, ...]:
    names = dict.fromkeys(name for fields in known for of, name in fields if of == group)
    found = [Field(name, _values(name, [fields.get((group, name), frozenset()) for fields in known])) for name in names]
    return tuple(sorted(found, key=lambda one: not one.differs))


def _values(name: str, columns: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """One text per column. Of long lists that differ, such as the flags of processors, only what not all have."""
    lists = [_list(one) for one in columns if one]
    if len(set(columns)) > 1 and lists and all(one is not None for one in lists):
        common = frozenset.intersection(*(one for one in lists if one is not None))
        shown = f"{len(common)} that all have"
        return tuple(
            _cut(", ".join([shown, *sorted((_list(one) or frozenset()) - common)])) if one else "" for one in columns
        )
    return tuple(_cut(" / ".join(_shown(name, value) for value in sorted(one))) for one in columns)


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
    return frozenset(found) if all(isinstance(one, str) for one in found) else None


def _shown(name: str, value: str) -> str:
    if name.endswith("_bytes") and value.isdigit() and int(value) >= _KIB:
        return _size(int(value))
    if name.endswith("_hz") and value.isdigit() and int(value) >= _MHZ:
        return f"{int(value) / _MHZ:,g} MHz"
    return f"{value[:16]}…" if re.fullmatch(r"(sha256:)?[0-9a-f]{64}", value) else value


def _size(number: int) -> str:
    if number >= _GIB:
        return f"{number / _GIB:,.1f} GiB"
    return f"{number / _MIB:,.0f} MiB" if number >= _MIB else f"{number / _KIB:,.0f} KiB"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
