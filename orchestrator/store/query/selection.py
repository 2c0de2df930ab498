"""Reading the store from Python: choose rows and columns, take them as Arrow, DuckDB, pandas or Polars.

    results = open_store("results")
    fast = results.trials("status = 'ok' AND latency_sync_median_s < 0.01", columns=["workload", "backend"])
    fast.pandas()

Nothing is read before it is asked for, and then only the columns and row groups that are needed.
"""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from orchestrator.errors import ConfigurationError, StoreError, near_names
from orchestrator.store.objects.location import is_url
from orchestrator.store.objects.remote import snapshot_at
from orchestrator.store.query.querying import ask, named_views, query_errors
from orchestrator.store.query.reading import View, current_view, read_small
from orchestrator.store.query.views import connect, quoted
from orchestrator.store.schema import SCHEMAS, TRIALS
from orchestrator.store.storage.files import Layout

Condition: TypeAlias = pc.Expression | str

_STORED: Final = ("STORE.json", "trials", "journal")
"""One of these stands in every store."""


@dataclass(frozen=True)
class Selection:
    """Rows and columns of a table, of one moment."""

    view: View
    table: str
    condition: Condition | None
    """An Arrow expression, or the text of an SQL condition."""
    columns: tuple[str, ...]

    def arrow(self) -> pa.Table:
        """As an Arrow table, with the units in the metadata of its fields.

        Raises:
            ConfigurationError: the condition is wrong.
            StoreError: a file cannot be read.
        """
        schema = pa.schema([SCHEMAS[self.table].field(name) for name in self.columns], SCHEMAS[self.table].metadata)
        if isinstance(self.condition, str):
            connection = connect(self.view, names=[self.table])
            with query_errors(connection, self.condition):
                return self._chosen(connection, self.condition).to_arrow_table().cast(schema)
        with _arrow_errors(self):
            return self._dataset().to_table(columns=list(self.columns), filter=self.condition).cast(schema)

    def duckdb(self) -> DuckDBPyRelation:
        """As a relation, to go on with in DuckDB; it reads when its rows are fetched.

        Raises:
            ConfigurationError: the condition is wrong.
            StoreError: a file cannot be read.
        """
        connection = connect(self.view, names=[self.table])
        if self.condition is None or isinstance(self.condition, str):
            condition = "true" if self.condition is None else self.condition
            with query_errors(connection, condition):
                return self._chosen(connection, condition)
        with _arrow_errors(self):
            rows = self._dataset()
            # It binds the condition, so that what is wrong with it is said here and not by DuckDB.
            rows.scanner(filter=self.condition)
            connection.register("selection", rows.filter(self.condition))
        return connection.view("selection").project(self._projection())

    def pandas(self) -> Any:
        """As a pandas DataFrame.

        Raises:
            ConfigurationError: the condition is wrong, or pandas is not installed.
            StoreError: a file cannot be read.
        """
        _imported("pandas")
        return self.arrow().to_pandas()

    def polars(self) -> Any:
        """As a Polars DataFrame.

        Raises:
            ConfigurationError: the condition is wrong, or Polars is not installed.
            StoreError: a file cannot be read.
        """
        return _imported("polars").from_arrow(self.arrow())

    def __len__(self) -> int:
        """The number of rows.

        Raises:
            ConfigurationError: the condition is wrong.
            StoreError: a file cannot be read.
        """
        if isinstance(self.condition, str):
            connection = connect(self.view, names=[self.table])
            with query_errors(connection, self.condition):
                return int(connection.view(self.table).filter(self.condition).count("*").fetchall()[0][0])
        with _arrow_errors(self):
            return int(self._dataset().count_rows(filter=self.condition))

    def _chosen(self, connection: DuckDBPyConnection, condition: str) -> DuckDBPyRelation:
        return connection.view(self.table).filter(condition).project(self._projection())

    def _projection(self) -> str:
        return ", ".join(map(quoted, self.columns))

    def _dataset(self) -> ds.Dataset:
        if self.table != "trials":
            return ds.dataset(read_small(self.view.snapshot, self.table))
        sealed = self.view.snapshot.dataset("trials")
        return ds.dataset([sealed, ds.dataset(self.view.unsealed)]) if len(self.view.unsealed) else sealed


@dataclass(frozen=True)
class Results:
    """A store to read. Each call sees the store as it is then; what it returns does not change any more."""

    place: str
    """A directory, or the URL of a store that was pushed."""

    def view(self) -> View:
        """All rows as they are now.

        Raises:
            ConfigurationError: the store of a URL is not there.
            StoreError: a file cannot be read.
        """
        if is_url(self.place):
            return View(snapshot_at(self.place), TRIALS.empty_table())
        return current_view(Layout(Path(self.place)))

    def trials(self, filter: Condition | None = None, columns: Sequence[str] | None = None) -> Selection:  # noqa: A002
        """Trials, those that are not sealed yet too, each once.

        Args:
            filter: an Arrow expression (`pc.field("status") == "ok"`) or an SQL condition (`"status = 'ok'"`).
            columns: names of columns; all of them if null.

        Raises:
            ConfigurationError: a column is unknown.
            StoreError: a file cannot be read.
        """
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

    def connect(self, more: Mapping[str, str] = MappingProxyType({})) -> DuckDBPyConnection:
        """A DuckDB connection with the views of `orchestrator.store.query.views`, for several queries over one moment.

        Args:
            more: further views, as queries by name, such as `orchestrator.analysis.tax.VIEWS`.

        Raises:
            StoreError: a file cannot be read.
        """
        return connect(self.view(), more=more)

    def sql(self, query: str, more: Mapping[str, str] = MappingProxyType({})) -> DuckDBPyRelation:
        """The answer to a query over the views; `more` as in `connect`.

        Raises:
            ConfigurationError: the query is wrong, or would do something else than read.
            StoreError: a file cannot be read.
        """
        return ask(connect(self.view(), names=named_views(query), more=more), query)

    def _select(self, table: str, condition: Condition | None, columns: Sequence[str] | None) -> Selection:
        known = SCHEMAS[table].names
        wanted = tuple(known if columns is None else columns)
        for name in wanted:
            if name not in known:
                raise ConfigurationError(f"`{table}` has no column {name}{near_names(name, known)}")
        return Selection(self.view(), table, condition, wanted)


def open_store(place: Path | str) -> Results:
    """Opens a store for reading.

    Args:
        place: its directory, or the URL of one that was pushed, such as `s3://bucket/lab`.

    Raises:
        ConfigurationError: there is no such directory.
    """
    if not is_url(str(place)) and not Path(place).is_dir():
        raise ConfigurationError("no such store", file=Path(place))
    return Results(str(place))


def is_store(directory: Path) -> bool:
    """Whether a directory looks like a store; one that is empty yet does not."""
    return any((directory / name).exists() for name in _STORED)


def _imported(name: str) -> Any:
    """A library that only some readers want.

    Raises:
        ConfigurationError: it is not installed.
    """
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
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        table = selection.table
        unknown = re.search(r"No match for FieldRef\.Name\((.*?)\)", text)
        if unknown:
            near = near_names(unknown[1], SCHEMAS[table].names)
            raise ConfigurationError(f"`{table}` has no column {unknown[1]}{near}") from None
        if isinstance(error, pa.ArrowNotImplementedError):
            raise ConfigurationError(f"the condition does not fit the columns of `{table}`: {text}") from None
        raise StoreError(f"cannot read {selection.view.snapshot.directory}: {text}") from error
