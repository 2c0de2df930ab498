"""The axes that a table needs beside those asked for, so that work is neither pooled nor compared with other work.

What is computed, and how, is never pooled. Software, systems and methods are not added: which of them a comparison is
about is for the user to say.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from orchestrator.analysis.axes import AXES, OPTION_AXES, Axis, Group, columns_of, other_options, values_of

Row = dict[str, Any]

_OF_A_SYSTEM: Final = frozenset({"device", "threads"})
"""Who compares systems compares a GPU with a processor, or processors with all of their threads."""
_OF_A_WORKLOAD: Final = frozenset({"options", "sequence_length", "image_size"})


def of_work(compared: Collection[str]) -> tuple[Axis, ...]:
    """The axes of work and backend on which two trials must agree to be one thing.

    Args:
        compared: names of the axes on which sides are meant to differ.
    """
    axes = [one for one in AXES.values() if one.group in (Group.WORK, Group.BACKEND) and one.name != "seed"]
    options = sorted(OPTION_AXES.keys() & set(compared))
    if options:
        axes = [other_options(options) if one.name == "options" else one for one in axes]
    return tuple(one for one in axes if one.name not in compared)


def followers(compared: Collection[str]) -> frozenset[str]:
    """The names of axes of work on which sides may differ, because they follow what is compared."""
    groups = {AXES[name].group for name in compared if name in AXES}
    found = _OF_A_SYSTEM if Group.SYSTEM in groups else frozenset()
    return found | _OF_A_WORKLOAD if "workload" in compared else found


def unnamed(rows: Iterable[Row], key: Sequence[Axis], compared: Collection[str]) -> tuple[Axis, ...]:
    """The axes of work and backend that are missing in a key.

    Args:
        rows: trials, with the columns of all axes.
        key: the axes of cells.
        compared: names of those on which a cell and its baseline are meant to differ.
    """
    wanted = [one for one in of_work(compared) if one.name not in {where.name for where in key}]
    columns = columns_of([*key, *wanted])
    distinct = {tuple(row.get(name) for name in columns): row for row in rows}.values()
    loose = followers(compared)
    corresponding = [where for where in key if where.name not in compared]
    found: list[Axis] = []
    for where in wanted:
        # Within a cell nothing may differ; between a cell and its baseline what follows from their difference may.
        apart = [*(key if where.name in loose else corresponding), *found]
        coarse = {values_of(row, apart) for row in distinct}
        # What the axes before it tell apart already needs no other: each model has its own sequence length.
        if len({values_of(row, [*apart, where]) for row in distinct}) > len(coarse):
            found.append(where)
    return tuple(found)
