"""The stores that commands read and write: their options, and what is said of one that is not there."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.errors import ConfigurationError, StoreError
from orchestrator.store import Results, Store, is_store, is_url, open_store

DEFAULT_RESULTS: Final = Path("results")
_INSIDE: Final = {
    *("current", "generations", "trials", "systems", "environments", "campaigns"),
    *("journal", "quarantine", "tmp"),
}
"""Directories of a store, which are no stores."""
_BEFORE_THE_FIRST_ROW: Final = {"README.md", "lock", "lock.compaction", "lock.push", "tmp", "generations", "current"}
"""What may stand in a store that nothing was written to yet, or is just being made."""
_NOT_WRITABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR}


class StorePlace(click.ParamType[str | Path]):
    """A directory, or the URL of a store that was pushed."""

    name = "path|url"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> str | Path:
        """A URL stays a text: a path would lose one of its slashes."""
        return str(value) if is_url(str(value)) else Path(value)


class WritableStore(click.ParamType[Path]):
    """The directory of a store to write to, which need not be there yet."""

    name = "path"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> Path:
        """Refuses what would become a store in a place where nobody looks for one."""
        if is_url(str(value)):
            raise ConfigurationError(
                f"{value}: this command writes; give a directory with --results, then `taxmeter results push`"
            )
        path = Path(value)
        _refuse_file(path)
        resolved = path.resolve()
        for root in resolved.parents:
            if (root / "STORE.json").is_file() and resolved.relative_to(root).parts[0] in _INSIDE:
                raise ConfigurationError(f"is a part of the store {root}; give --results {root}", file=path)
        return path


results_option = click.option(
    "--results",
    "results_directory",
    type=WritableStore(),
    default=DEFAULT_RESULTS,
    show_default=True,
    help="The result store.",
)
place_option = click.option(
    "--results",
    "place",
    type=StorePlace(),
    default=DEFAULT_RESULTS,
    show_default=True,
    help="The result store, or the URL of one that was pushed.",
)


def open_existing(directory: Path) -> Store:
    """Opens a store of this machine, to read or to write; an empty directory is an empty one."""
    _refuse_file(directory)
    if not directory.is_dir():
        raise ConfigurationError("no such store; run `make cluster-sweep`, or name one with --results", file=directory)
    if (directory / "latest.json").is_file() and not is_store(directory):
        url = directory.absolute().as_uri()
        raise ConfigurationError(f"is a store that was pushed; read it by its URL, {url}", file=directory)
    if not is_store(directory) and _foreign(directory):
        raise _no_store(directory)
    return Store.open(directory)


def open_results(place: str | Path) -> Results:
    """Opens a store for reading, wherever it is."""
    if isinstance(place, Path):
        open_existing(place)
    return open_store(place)


def require_store(place: str | Path) -> Results:
    """Opens a store for reading, and refuses a directory that does not look like one."""
    opened = open_results(place)
    if isinstance(place, Path) and not is_store(place):
        raise _no_store(place)
    return opened


@contextmanager
def writing() -> Iterator[None]:
    """Around what writes to a store: says what to do where that is not allowed."""
    try:
        yield
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _NOT_WRITABLE:
            mend = "this command writes to the store: make it writable, or give a copy with --results"
            raise ConfigurationError(f"{error}; {mend}") from error
        raise


def _foreign(directory: Path) -> bool:
    """Whether something stands in a directory that is not of a store."""
    try:
        names = {path.name for path in directory.iterdir()}
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}", file=directory) from None
    return any(not name.startswith(".") for name in names - _BEFORE_THE_FIRST_ROW)


def _refuse_file(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ConfigurationError("is a file; give the directory of the result store", file=path)


def _no_store(directory: Path) -> ConfigurationError:
    return ConfigurationError("is no result store: it has no STORE.json, no trials/ and no journal/", file=directory)
