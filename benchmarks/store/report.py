"""Figures against their targets: a table for the terminal, and the same as a page of Markdown."""

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    what: str
    measured: str
    target: str = ""
    limit: str = ""
    """Of this machine, and how many times it is."""
    holds: bool | None = None
    """Null where there is no target."""


def at_most(
    what: str, value: float, target: float, show: Callable[[float], str], limit: str = "", note: str = ""
) -> Figure:
    """A figure that must not be larger than its target."""
    return Figure(what, show(value) + note, f"≤ {show(target)}", limit, value <= target)


def at_least(what: str, value: float, target: float, show: Callable[[float], str], limit: str = "") -> Figure:
    """A figure that must not be smaller than its target."""
    return Figure(what, show(value), f"≥ {show(target)}", limit, value >= target)


def told(what: str, measured: str, limit: str = "") -> Figure:
    """A figure without a target."""
    return Figure(what, measured, limit=limit)


def table(figures: Sequence[Figure]) -> str:
    """The table as Markdown, aligned so that a terminal shows it well."""
    head = ("what", "measured", "target", "against this machine's limit", "")
    marks = {True: "holds", False: "MISSED", None: ""}
    told = [(figure.what, figure.measured, figure.target, figure.limit, marks[figure.holds]) for figure in figures]
    rows = [head, *told]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def page(figures: Sequence[Figure], command: str, notes: str) -> str:
    """The page for `docs/measured/`."""
    return (
        "# The result store: how fast, how large\n\n"
        "Written by\n\n"
        f"```sh\n{command}\n```\n\n"
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}. Synthetic trials that nobody measured, in the real schema and "
        "through the product's own writer, server and readers; all limits are of the same run on the same disk.\n\n"
        f"{table(figures)}\n\n{notes}"
    )


def machine() -> str:
    """This machine in words."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{len(os.sched_getaffinity(0))} cores of {cpu}, {memory / 2**30:.0f} GiB, Linux {platform.release()}"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds * 1e3:,.0f} ms"


def per_second(rate: float) -> str:
    return f"{rate:,.0f} trials/s"


def bytes_each(size: float) -> str:
    return f"{size:,.0f} B"


def count(number: float) -> str:
    return f"{number:,.0f}"
