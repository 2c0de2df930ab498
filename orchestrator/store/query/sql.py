"""SQL over the store: a DuckDB connection with one view per table, of one moment, and queries that can only read.

`trials`        a row per trial and attempt, with those that are not sealed yet
`samples`       a row per timed sample of `trials`, all modes below each other
`latest`        of each `trial_key` on each system the row that was started last, whatever its status
`systems`, `environments`, `campaigns`     the small tables

A sandboxed connection opens the files of its views and no other, and its settings cannot be changed. `ask` refuses
whatever is no query, too: on the bare connection a COPY could still name one of these very files. A query that is wrong
is a `ConfigurationError`; a file that cannot be read, or a machine without room, a `StoreError`.
"""

# ruff: noqa: S608 -- every name in these queries is ours, and quoted where it is not

import os
import re
import secrets
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow.fs as pafs

from orchestrator.errors import ConfigurationError, StoreError, near_names, one_line, some_names
from orchestrator.store.query.view import View
from orchestrator.store.schema import TRIALS

if TYPE_CHECKING:
    import duckdb  # listing, and reading by Arrow, do not wait for it

VIEWS: Final = ("trials", "samples", "systems", "environments", "campaigns", "latest")

_SAMPLE_KEYS: Final = (
    *("trial_id", "attempt", "trial_key", "campaign_id", "round", "replicate", "status", "method_version"),
    *("workload", "batch", "sequence_length", "image_size", "backend", "dtype", "device", "threads"),
    *("environment", "environment_id", "isolation", "host", "hw_id", "system_id", "cpu_model", "gpu_name"),
    *("driver_version", "started_at"),
)
_MODES: Final = [
    field.name.removeprefix("samples_").removesuffix("_cpu_s")
    for field in TRIALS
    if field.name.startswith("samples_") and field.name.endswith("_cpu_s")
]
# Among rows of one start the key decides, so that the answer is the same whenever it is asked for.
_LATEST: Final = """
    SELECT trials.* FROM trials SEMI JOIN (
        SELECT unnest(max(struct_pack(started_at, attempt, trial_id))) FROM trials GROUP BY trial_key, system_id
    ) AS newest USING (trial_id, attempt)
"""
_MEMORY_SHARE: Final = 0.5
"""Of the machine's memory; what needs more goes to the disk."""

_READING: Final = {"SELECT", "EXPLAIN"}
_USERS: Final = {
    *("ParserException", "BinderException", "CatalogException", "ConversionException", "InvalidInputException"),
    *("InvalidTypeException", "NotImplementedException", "OutOfRangeException", "PermissionException"),
    *("SyntaxException", "TypeMismatchException"),
}
"""Errors of DuckDB in a query; all others are those of the machine or the files."""


def connect(
    view: View,
    *,
    sandboxed: bool = True,
    names: Collection[str] = VIEWS,
    more: Mapping[str, str] = MappingProxyType({}),
) -> "duckdb.DuckDBPyConnection":
    """A connection with the views.

    Args:
        sandboxed: whether files other than the store's are out of reach, for reading and for writing.
        names: the views that will be asked; each takes a while to define, and `trials` is always there.
        more: further views over these, as queries, by name.
    """
    import duckdb

    connection = duckdb.connect()
    _set_up(connection)
    define_trials(connection, view, "trials")
    for table in ("systems", "environments", "campaigns"):
        if table in names:
            # In one piece: DuckDB does not take slices of nested columns.
            connection.register(table, view.snapshot.table(table).combine_chunks())
    for name, query in (("samples", _samples()), ("latest", _LATEST), *more.items()):
        if name in names or name in more:
            connection.execute(f"CREATE VIEW {name} AS {query}")
    if sandboxed:
        connection.execute(f"SET allowed_paths = {_literal(_plain_files(view))}")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    return connection


def define_trials(connection: "duckdb.DuckDBPyConnection", view: View, name: str) -> None:
    """Makes a view of trials."""
    import duckdb

    connection.register(f"_{name}_unsealed", view.unsealed)
    sealed = view.snapshot.files["trials"]
    branches = []
    try:
        if sealed and (files := _plain_files(view)):
            branches.append(f"SELECT * FROM read_parquet({_literal(files)}, hive_partitioning = false)")
        elif sealed:
            # Through Arrow, which knows the file system and takes names as they are.
            connection.register(f"_{name}_sealed", view.snapshot.dataset("trials"))
            branches.append(f"SELECT * FROM _{name}_sealed")
        if len(view.unsealed) or not sealed:
            branches.append(f"SELECT * FROM _{name}_unsealed")
        connection.execute(f"CREATE VIEW {quoted(name)} AS {' UNION ALL '.join(branches)}")
        odd = sorted({*connection.table(quoted(name)).columns}.symmetric_difference(TRIALS.names))
    except duckdb.Error as error:
        raise _unreadable(error) from error
    if odd:
        raise StoreError(
            f"{view.snapshot.directory}: its trials have other columns than this taxmeter's: {some_names(odd)}"
        )


def ask(connection: "duckdb.DuckDBPyConnection", query: str) -> "duckdb.DuckDBPyRelation":
    """The result of one query that does nothing but read, as a relation that has not run yet."""
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
def query_errors(connection: "duckdb.DuckDBPyConnection", query: str) -> Iterator[None]:
    """Turns an error of DuckDB into one line; around everything that binds or runs a query."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        if type(error).__name__ not in _USERS or re.search(r"Parquet file|Invalid PAR1|Snappy|ZSTD", text):
            raise _unreadable(error) from error
        raise ConfigurationError(_explained(connection, query, text)) from None


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it consists of."""
    return '"' + name.replace('"', '""') + '"'


def _unreadable(error: "duckdb.Error") -> StoreError:
    """An error of the files or the machine, as one line."""
    text = re.sub(r"^[A-Za-z ]+ Error: ", "", one_line(str(error).split("\n")[0]))
    if re.search(r"No space left|max_temp_directory_size|taxmeter-sql-", text):
        return StoreError(f"the query needs more temporary space: {text}; free some, or set TMPDIR to another disk")
    return StoreError(f"the store cannot be read: {text}; `taxmeter results verify` tells more")


def _set_up(connection: "duckdb.DuckDBPyConnection") -> None:
    memory = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _MEMORY_SHARE)
    # DuckDB makes the directory when it needs it: nobody must have been able to prepare one of its name.
    spill = Path(tempfile.gettempdir()) / f"taxmeter-sql-{secrets.token_hex(16)}"
    connection.execute("LOAD parquet")
    for name, value in {
        "memory_limit": f"{memory // 2**20} MiB",
        "threads": len(os.sched_getaffinity(0)),
        "temp_directory": str(spill),
        "TimeZone": "UTC",
        # The files never change: their footers need not be read again for every query.
        "parquet_metadata_cache": True,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # A table's name must never mean a variable of the program that asks.
        "python_enable_replacements": False,
    }.items():
        connection.execute(f"SET {name} = {_literal(value)}")


def _plain_files(view: View) -> list[str]:
    """The parts that DuckDB can open itself; none where it cannot open all."""
    files = list(view.snapshot.files["trials"])
    is_local = isinstance(view.snapshot.filesystem, pafs.LocalFileSystem)
    return files if is_local and not any(set("*?[") & set(file) for file in files) else []


def _samples() -> str:
    keys = ", ".join(quoted(key) for key in _SAMPLE_KEYS)
    branches = []
    for mode in _MODES:
        # Lists of one row are unnested side by side; the last samples of a series may have no pressure.
        pressure = f"samples_{mode}_pressure_s"
        branches.append(
            f"SELECT {keys}, '{mode}' AS mode, generate_subscripts(samples_{mode}_s, 1) AS position, "
            f"unnest(samples_{mode}_s) AS duration_s, unnest(samples_{mode}_cpu_s) AS cpu_s, "
            + (f"unnest({pressure})" if pressure in TRIALS.names else "CAST(NULL AS DOUBLE)")
            + " AS pressure_s FROM trials"
        )
    return " UNION ALL ".join(branches)


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value).lower()


def _refuse_writing(connection: "duckdb.DuckDBPyConnection", query: str) -> None:
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


def _explained(connection: "duckdb.DuckDBPyConnection", query: str, text: str) -> str:
    problem, _, _ = text.partition("\n\nLINE ")
    problem = re.sub(r"^[A-Za-z ]+ Error: ", "", problem.split("\n")[0]).rstrip("!. ")
    if "file system operations are disabled" in text:
        return "SQL: a query reads the store and no other file, and writes none; --output writes its result to one"
    name = re.search(r'(?:[Cc]olumn named|[Cc]olumn|Table with name|Function with name|near) "?([\w.]+)"?', problem)
    word = name[1] if name else ""
    hint = ""
    if "Table with name" in problem:
        tables = dict.fromkeys([*VIEWS, *sorted(_names(connection, "view_name", "duckdb_views"))])
        hint = f"{near_names(word, tables)}; tables: {', '.join(tables)}"
    elif re.search(r"[Cc]olumn", problem) and re.search(r"not found|does not have", problem):
        names = _names(connection, "column_name", "duckdb_columns")
        has_it = f"column_name = {_literal(word)} AND NOT starts_with(table_name, '_')"
        others = sorted(_names(connection, "table_name", "duckdb_columns", has_it))
        where = (
            f"; {', '.join(others)} {'has' if len(others) == 1 else 'have'} it" if others else near_names(word, names)
        )
        hint = f"{where}; `DESCRIBE trials` lists the columns of a table"
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


def _names(connection: "duckdb.DuckDBPyConnection", column: str, catalogue: str, condition: str = "true") -> set[str]:
    rows = connection.execute(f"SELECT {column} FROM {catalogue}() WHERE NOT internal AND {condition}").fetchall()
    return {row[0] for row in rows}
