"""SQL over the store: a DuckDB connection with one view per table, of one moment.

`trials`        a row per trial and attempt, with those that are not sealed yet
`samples`       a row per timed sample of `trials`, all modes below each other
`latest`        of each `trial_key` on each system the row that was started last, whatever its status
`systems`, `environments`, `campaigns`     the small tables

A sandboxed connection opens the files of its views and no other, and its settings cannot be changed. `querying.ask`
refuses whatever is no query, too: on the bare connection a COPY could still name one of these very files.
"""

# ruff: noqa: S608 -- every name in these queries is ours, and quoted where it is not

import os
import re
import secrets
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import duckdb
import pyarrow.fs as pafs

from orchestrator.errors import StoreError
from orchestrator.store.facade import Store
from orchestrator.store.query.reading import View, current_view, read_small
from orchestrator.store.schema import TRIALS

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


def connect(
    store: Store | View,
    *,
    sandboxed: bool = True,
    names: Collection[str] = VIEWS,
    more: Mapping[str, str] = MappingProxyType({}),
) -> duckdb.DuckDBPyConnection:
    """A connection with the views, of the store as it is now.

    Args:
        store: what to read.
        sandboxed: whether files other than the store's are out of reach, for reading and for writing.
        names: the views that will be asked; each takes a while to define, and `trials` is always there.
        more: further views over these, as queries, by name.

    Raises:
        StoreError: a file cannot be read.
    """
    view = store if isinstance(store, View) else current_view(store.layout)
    connection = duckdb.connect()
    _set_up(connection)
    define_trials(connection, view, "trials")
    for table in ("systems", "environments", "campaigns"):
        if table in names:
            # In one piece: DuckDB does not take slices of nested columns.
            connection.register(table, read_small(view.snapshot, table).combine_chunks())
    for name, query in (("samples", _samples()), ("latest", _LATEST), *more.items()):
        if name in names or name in more:
            connection.execute(f"CREATE VIEW {name} AS {query}")
    if sandboxed:
        _lock(connection, _plain_files(view))
    return connection


def define_trials(connection: duckdb.DuckDBPyConnection, view: View, name: str) -> None:
    """Makes a view of trials.

    Raises:
        StoreError: a file cannot be read.
    """
    connection.register(f"_{name}_unsealed", view.unsealed)
    sealed = view.snapshot.files["trials"]
    branches = []
    try:
        if sealed:
            branches.append(f"SELECT * FROM {_sealed(connection, view, name)}")
        if len(view.unsealed) or not sealed:
            branches.append(f"SELECT * FROM _{name}_unsealed")
        connection.execute(f"CREATE VIEW {quoted(name)} AS {' UNION ALL '.join(branches)}")
    except duckdb.Error as error:
        raise unreadable(error) from error


def unreadable(error: duckdb.Error) -> StoreError:
    """An error of the files or the machine, as one line."""
    text = re.sub(r"^[A-Za-z ]+ Error: ", "", str(error).split("\n")[0])
    if re.search(r"No space left|max_temp_directory_size|taxmeter-sql-", text):
        return StoreError(f"the query needs more temporary space: {text}; free some, or set TMPDIR to another disk")
    return StoreError(f"the store cannot be read: {text}; `taxmeter results verify` tells more")


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it consists of."""
    return '"' + name.replace('"', '""') + '"'


def _set_up(connection: duckdb.DuckDBPyConnection) -> None:
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


def _sealed(connection: duckdb.DuckDBPyConnection, view: View, name: str) -> str:
    files = _plain_files(view)
    if files:
        return f"read_parquet({_literal(files)}, hive_partitioning = false)"
    # Through Arrow, which knows the file system and takes names as they are.
    connection.register(f"_{name}_sealed", view.snapshot.dataset("trials"))
    return f"_{name}_sealed"


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


def _lock(connection: duckdb.DuckDBPyConnection, files: Iterable[str]) -> None:
    connection.execute(f"SET allowed_paths = {_literal(list(files))}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value).lower()
