"""Asks the views: one query, which can only read, and one line where it is wrong."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from orchestrator.errors import ConfigurationError, near_names
from orchestrator.store.query.views import VIEWS, unreadable

_READING: Final = {"SELECT", "EXPLAIN"}
_USERS: Final = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.InvalidTypeException,
    duckdb.NotImplementedException,
    duckdb.OutOfRangeException,
    duckdb.PermissionException,
    duckdb.SyntaxException,
    duckdb.TypeMismatchException,
)
"""Errors in a query; all others are those of the machine or the files."""


def ask(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.DuckDBPyRelation:
    """The result of one query, as a relation that has not run yet.

    Raises:
        ConfigurationError: it is no single query, is wrong, or would do something else than read.
    """
    with query_errors(connection, query):
        statements = connection.extract_statements(query)
        if len(statements) != 1:
            found = "no query" if not statements else f"{len(statements)} statements"
            raise ConfigurationError(f"SQL: expected one query, found {found}")
        _refuse_writing(connection, query)
        return connection.sql(query)


def named_views(query: str) -> list[str]:
    """The views that a query can mean; all where it asks what there is, or names none."""
    words = set(re.findall(r"\w+", query.lower()))
    named = [name for name in VIEWS if name in words]
    asks_what_there_is = any(word in {"show", "describe", "information_schema"} or "duckdb_" in word for word in words)
    return list(VIEWS) if asks_what_there_is or not named else named


@contextmanager
def query_errors(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[None]:
    """Turns an error of DuckDB into one line; around everything that binds or runs a query.

    Raises:
        ConfigurationError: the query is at fault.
        StoreError: a file or the machine is.
    """
    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        if not isinstance(error, _USERS) or re.search(r"Parquet file|Invalid PAR1|Snappy|ZSTD", text):
            raise unreadable(error) from error
        raise ConfigurationError(_explained(connection, query, text)) from None


def _refuse_writing(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    # The files of the views are open to the connection, and some statements would write into them.
    kind = connection.extract_statements(query)[0].type.name
    if kind == "EXPLAIN":
        explained = re.sub(
            r"^\s*explain\s+(\([^)]*\)\s*)?(analyze\b\s*)?(\([^)]*\)\s*)?", "", query, flags=re.IGNORECASE
        )
        kind = (
            connection.extract_statements(explained)[0].type.name if explained != query else "a comment before EXPLAIN"
        )
    if kind == "MULTI":
        raise ConfigurationError("SQL: a PIVOT needs its values: write PIVOT … ON column IN (value, …) USING …")
    if kind not in _READING:
        raise ConfigurationError(
            f"SQL: {kind} does something else than read; a query starts with SELECT, FROM or WITH, and --output or "
            "`taxmeter results export` writes files"
        )


def _explained(connection: duckdb.DuckDBPyConnection, query: str, text: str) -> str:
    problem, _, _ = text.partition("\n\nLINE ")
    problem = re.sub(r"^[A-Za-z ]+ Error: ", "", problem.split("\n")[0]).rstrip("!. ")
    if "file system operations are disabled" in text:
        return "SQL: a query reads the store and no other file, and writes none; --output writes its result to one"
    name = re.search(r'(?:[Cc]olumn named|[Cc]olumn|Table with name|Function with name|near) "?([\w.]+)"?', problem)
    word = name[1] if name else ""
    hint = ""
    if "Table with name" in problem:
        hint = f"{near_names(word, VIEWS)}; tables: {', '.join(VIEWS)}"
    elif re.search(r"[Cc]olumn", problem) and re.search(r"not found|does not have", problem):
        hint = f"{near_names(word, _columns(connection))}; `DESCRIBE trials` lists the columns of a table"
    return f"SQL{_place(query, text, word)}: {problem}{hint}"


def _place(query: str, text: str, word: str) -> str:
    """Where in the query it is, as far as DuckDB tells or the name gives it away."""
    marked = re.search(r"\n\nLINE (\d+): (.*)\n( *)\^", text)
    if marked:
        number = int(marked[1])
        shown = marked[2].removeprefix("...").removesuffix("...")
        line = query.splitlines()[number - 1] if number <= len(query.splitlines()) else ""
        cut = 3 if marked[2].startswith("...") else 0
        column = len(marked[3]) - len(f"LINE {number}: ") - cut + max(0, line.find(shown)) + 1
        return f", line {number}, column {column}"
    found = re.search(rf"\b{re.escape(word)}\b", query) if word else None
    if found is None:
        return ""
    before = query[: found.start()]
    return f", line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def _columns(connection: duckdb.DuckDBPyConnection) -> set[str]:
    rows = connection.execute("SELECT DISTINCT column_name FROM duckdb_columns() WHERE NOT internal").fetchall()
    return {row[0] for row in rows}
