"""Pieces of HTML. Whatever comes from the store passes `text`, and nothing else makes markup of it."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Markup:
    """HTML that is safe to put into a page."""

    html: str


Content = Markup | str | int | float | None


def text(value: Content) -> str:
    """What stands on the page for a value: markup as it is, all else escaped; null is empty."""
    if isinstance(value, Markup):
        return value.html
    return "" if value is None else html.escape(str(value))


def element(name: str, *content: Content, **attributes: str | bool | None) -> Markup:
    """An element. An attribute that is true has no value; one that is null or false is left out.

    Underscores in names of attributes stand for hyphens; one at the end is dropped (`class_`).
    """
    named = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{named}>{''.join(map(text, content))}</{name}>")


def joined(parts: Iterable[Content]) -> Markup:
    return Markup("".join(map(text, parts)))


def table(
    caption: str, head: Sequence[Content], rows: Iterable[Sequence[Content | Markup]], **attributes: str
) -> Markup:
    """A table in a box that scrolls by itself, so that the page never does so sideways.

    The first cell of each row is its heading. A row's cells may be elements of the name `td` already.
    """
    headings = joined(element("th", heading, scope="col") for heading in head)
    body = joined(element("tr", element("th", row[0], scope="row"), *map(_cell, row[1:])) for row in rows)
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", headings)),
        element("tbody", body),
        **attributes,
    )
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(content: Content) -> Markup:
    if isinstance(content, Markup) and content.html.startswith("<td"):
        return content
    return element("td", content)
