"""Options that several commands share."""

from pathlib import Path
from typing import Any

import click

from orchestrator.errors import ConfigurationError
from orchestrator.store import Results, Store, is_store, is_url, open_store


class StorePlace(click.ParamType[str | Path]):
    """A directory, or the URL of a store that was pushed."""

    name = "path|url"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> str | Path:
        """A URL stays a text: a path would lose one of its slashes."""
        return str(value) if is_url(str(value)) else Path(value)


inventory_option = click.option(
    "--inventory",
    type=click.Path(path_type=Path),
    default=Path("hostinventory.yaml"),
    show_default=True,
    help="The machines.",
)
limit_option = click.option(
    "--limit", default=None, metavar="PATTERN", help="Hosts to use, such as 'a100-*:!a100-07'; all without it."
)
results_option = click.option(
    "--results",
    "results_directory",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="The result store.",
)
place_option = click.option(
    "--results",
    "place",
    type=StorePlace(),
    default=Path("results"),
    show_default=True,
    help="The result store, or the URL of one that was pushed.",
)


def open_existing(directory: Path) -> Store:
    """Opens a store of this machine, to read or to write.

    Raises:
        ConfigurationError: there is none.
    """
    if not directory.is_dir():
        raise ConfigurationError("no such store; run `make cluster-sweep`, or name one with --results", file=directory)
    return Store.open(directory)


def open_results(place: str | Path) -> Results:
    """Opens a store for reading, wherever it is.

    Raises:
        ConfigurationError: there is none.
    """
    if isinstance(place, Path):
        open_existing(place)
    return open_store(place)


def require_store(place: str | Path) -> Results:
    """Opens a store for reading, and refuses a directory that does not look like one.

    Raises:
        ConfigurationError: there is none.
    """
    opened = open_results(place)
    if isinstance(place, Path) and not is_store(place):
        raise ConfigurationError("is no result store: it has no STORE.json, no trials/ and no journal/", file=place)
    return opened
