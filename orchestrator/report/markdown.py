"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Any text, as a cell of a table in Markdown takes it."""
    return text.replace("|", "\\|").replace("\n", " ")


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(cell, cells))} |"


def head(names: Sequence[str]) -> list[str]:
    """The first two lines of a table in Markdown."""
    return [row(names), "|" + "---|" * len(names)]
