"""Reading the store from Python: choose rows and columns, take them as Arrow, DuckDB, pandas or Polars.

    results = open_store("results")
    fast = results.trials("status = 'ok' AND latency_sync_median_s < 0.01", columns=["workload", "backend"])
    fast.pandas()

Nothing is read before it is asked for, and then only the columns and row groups that are needed. A wrong condition or
column is a `ConfigurationError`, a file that cannot be read a `StoreError`.
"""

import importlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import ConfigurationError, StoreError, near_names
from orchestrator.store.query.sql import ask, connect, named_views, query_errors, quoted
from orchestrator.store.query.view import View, current_view
from orchestrator.store.schema import SCHEMAS, TRIALS
from orchestrator.store.storage.layout import Layout, first_line, is_url

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

Condition: TypeAlias = pc.Expression | str
"""An Arrow expression (`pc.field("status") == "ok"`), or the text of an SQL condition (`"status = 'ok'"`)."""

_STORED: Final = ("STORE.json", "trials", "journal")
"""One of these stands in every store."""


@dataclass(frozen=True)
class Selection:
    """Rows and columns of a table, of one moment."""

    view: View
    table: str
    condition: Condition | None
    columns: tuple[str, ...]

    def arrow(self) -> pa.Table:
        """As an Arrow table, with the units in the metadata of its fields."""
        if isinstance(self.condition, str):
            schema = pa.schema([SCHEMAS[self.table].field(name) for name in self.columns], SCHEMAS[self.table].metadata)
            with query_errors(connection := self._connection(), self.condition):
                return self._project(connection.view(self.table).filter(self.condition)).to_arrow_table().cast(schema)
        with _arrow_errors(self):
            return self.view.table(self.table, self.columns, self.condition)

    def duckdb(self) -> "DuckDBPyRelation":
        """As a relation, to go on with in DuckDB; it reads when its rows are fetched."""
        connection = self._connection()
        if self.condition is None or isinstance(self.condition, str):
            with query_errors(connection, self.condition or ""):
                return self._project(connection.view(self.table).filter(self.condition or "true"))
        with _arrow_errors(self):
            rows = self.view.dataset(self.table)
            # It binds the condition, so that what is wrong with it is said here and not by DuckDB.
            rows.scanner(filter=self.condition)
            connection.register("selection", rows.filter(self.condition))
        return self._project(connection.view("selection"))

    def pandas(self) -> Any:
        """As a pandas DataFrame, if pandas is installed."""
        _imported("pandas")
        return self.arrow().to_pandas()

    def polars(self) -> Any:
        """As a Polars DataFrame, if Polars is installed."""
        return _imported("polars").from_arrow(self.arrow())

    def __len__(self) -> int:
        if isinstance(self.condition, str):
            with query_errors(connection := self._connection(), self.condition):
                return int(connection.view(self.table).filter(self.condition).count("*").fetchall()[0][0])
        with _arrow_errors(self):
            return int(self.view.dataset(self.table).count_rows(filter=self.condition))

    def _connection(self) -> "DuckDBPyConnection":
        return connect(self.view, names=[self.table])

    def _project(self, rows: "DuckDBPyRelation") -> "DuckDBPyRelation":
        return rows.project(", ".join(map(quoted, self.columns)))


@dataclass(frozen=True)
class Results:
    """A store to read. Each call sees the store as it is then; what it returns does not change any more."""

    place: str
    """A directory, or the URL of a store that was pushed."""

    def view(self, *, sealed: bool = False) -> View:
        """All rows as they are now, or those that are sealed."""
        if is_url(self.place):
            from orchestrator.store.storage.objects import snapshot_at  # a directory does not wait for its libraries

            return View(snapshot_at(self.place), TRIALS.empty_table())
        layout = Layout(Path(self.place))
        return View(layout.snapshot(), TRIALS.empty_table()) if sealed else current_view(layout)

    def trials(self, filter: Condition | None = None, columns: Sequence[str] | None = None) -> Selection:  # noqa: A002
        """Trials, those that are not sealed yet too, each once; all rows and all columns if null."""
        return self._select("trials", filter, columns)

    def systems(self, filter: Condition | None = None, columns: Sequence[str] | None = None) -> Selection:  # noqa: A002
        """The systems that trials ran on; as `trials`."""
        return self._select("systems", filter, columns)

    def environments(self, filter: Condition | None = None, columns: Sequence[str] | None = None) -> Selection:  # noqa: A002
        """The environments that trials ran in; as `trials`."""
        return self._select("environments", filter, columns)

    def campaigns(self, filter: Condition | None = None, columns: Sequence[str] | None = None) -> Selection:  # noqa: A002
        """The campaigns, one row each; as `trials`."""
        return self._select("campaigns", filter, columns)

    def connect(self, more: Mapping[str, str] = MappingProxyType({})) -> "DuckDBPyConnection":
        """A DuckDB connection with the views of `orchestrator.store.query.sql`, for several queries over one moment.

        Args:
            more: further views, as queries by name, such as `orchestrator.analysis.tax.VIEWS`.
        """
        return connect(self.view(), more=more)

    def sql(self, query: str, more: Mapping[str, str] = MappingProxyType({})) -> "DuckDBPyRelation":
        """The answer to a query over the views, which can only read; `more` as in `connect`."""
        return ask(connect(self.view(), names=named_views(query), more=more), query)

    def _select(self, table: str, condition: Condition | None, columns: Sequence[str] | None) -> Selection:
        known = SCHEMAS[table].names
        wanted = tuple(known if columns is None else columns)
        for name in wanted:
            if name not in known:
                raise ConfigurationError(f"`{table}` has no column {name}{near_names(name, known)}")
        return Selection(self.view(sealed=table != "trials"), table, condition, wanted)


def equals(column: str, value: str) -> pc.Expression:
    """A condition on rows: this value."""
    return pc.field(column) == value


def among(column: str, values: Collection[str]) -> pc.Expression:
    """A condition on rows: one of these values."""
    return pc.field(column).isin(sorted(values))


def begins(column: str, text: str) -> pc.Expression:
    """A condition on rows: a value that begins so."""
    return pc.starts_with(pc.field(column), pattern=text)


def open_store(place: Path | str) -> Results:
    """Opens a store for reading: its directory, or the URL of one that was pushed, such as `s3://bucket/lab`."""
    if not is_url(str(place)) and not Path(place).is_dir():
        raise ConfigurationError("no such store", file=Path(place))
    return Results(str(place))


def is_store(directory: Path) -> bool:
    """Whether a directory looks like a store; one that is empty yet does not."""
    return any((directory / name).exists() for name in _STORED)


def _imported(name: str) -> Any:
    """A library that only some readers want."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigurationError(f"{name} is not installed; `pip install {name}` does it") from None


@contextmanager
def _arrow_errors(selection: Selection) -> Iterator[None]:
    """Turns an error of Arrow into one line: of the condition, or of a file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        text, table = first_line(error), selection.table
        unknown = re.search(r"No match for FieldRef\.Name\((.*?)\)", text)
        if unknown:
            near = near_names(unknown[1], SCHEMAS[table].names)
            raise ConfigurationError(f"`{table}` has no column {unknown[1]}{near}") from None
        if isinstance(error, pa.ArrowNotImplementedError):
            raise ConfigurationError(f"the condition does not fit the columns of `{table}`: {text}") from None
        raise StoreError(f"cannot read {selection.view.snapshot.directory}: {text}") from error
