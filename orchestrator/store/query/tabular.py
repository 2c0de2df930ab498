"""Rows as files of other programs: CSV, JSON (one object per line) and Parquet; and files that appear whole or not."""

# ruff: noqa: S608 -- every name in these queries is ours, and quoted where it is not

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.boundary import MAX_JSON_BYTES, load_json, read_foreign_file
from orchestrator.errors import ConfigurationError, ForeignDataError, StoreError
from orchestrator.store.storage.layout import first_line

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

ArrowTable: TypeAlias = pa.Table

FORMATS: Final = ("csv", "parquet", "json")
SIDE_FILE: Final = ".columns.json"
MARK: Final = "EXPORT.json"
"""Stands in every directory that an export made."""
_STORE: Final = "STORE.json"
"""Stands in every directory that is a store."""


def write_rows(rows: pa.RecordBatchReader, path: Path, form: str) -> int:
    """Writes rows to a file and returns their number. Whatever `rows` raises comes through.

    Args:
        path: of the file; one that is there is overwritten.

    Raises:
        OSError: the disk refuses.
        StoreError: a value has no form in this format.
    """
    if form == "parquet":
        return _write_parquet(rows, path)
    import duckdb

    failures: list[Exception] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except Exception as error:
            failures.append(error)
            raise

    options = "FORMAT csv, HEADER" if form == "csv" else "FORMAT json"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", pa.RecordBatchReader.from_batches(rows.schema, batches()))
        target = "'" + str(path).replace("'", "''") + "'"
        try:
            copied = connection.execute(f"COPY (SELECT * FROM rows) TO {target} ({options}, USE_TMP_FILE false)")
            return int(copied.fetchall()[0][0])
        except duckdb.Error as error:
            # DuckDB makes text of what its source raised.
            if failures:
                raise failures[0] from error
            text = str(error).splitlines()[0]
            if isinstance(error, duckdb.IOException):
                said = re.search(r'"exception_message":"((?:[^"\\]|\\.)*)"', text)
                problem = said[1] if said else text.removeprefix("IO Error: ")
                raise OSError(errno.EIO, problem.rpartition(": ")[2]) from error
            raise StoreError(f"cannot write {path}: {text}") from error


@contextmanager
def relation_of(rows: ArrowTable) -> Iterator["DuckDBPyRelation"]:
    """Rows as a relation of DuckDB, with times in UTC, for as long as the block lasts."""
    import duckdb  # who lists campaigns does not wait for it

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", rows.combine_chunks())
        yield connection.view("rows")


def described(schema: pa.Schema) -> list[dict[str, str]]:
    """Name, type, unit and better direction of columns, for formats that have no place for them."""
    return [
        {
            "name": field.name,
            "type": str(field.type),
            **{key.decode(): value.decode() for key, value in sorted((field.metadata or {}).items())},
        }
        for field in schema
    ]


def write_description(path: Path, document: dict[str, Any]) -> None:
    """Writes a JSON document for people."""
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def is_partial_export(directory: Path) -> bool:
    """Whether a directory is an export of some trials only."""
    path = directory / MARK
    try:
        document = load_json(read_foreign_file(path, MAX_JSON_BYTES), str(path))
    except FileNotFoundError:
        return False
    except ForeignDataError as error:
        raise StoreError(f"{error}; delete it if this is no export") from error
    return isinstance(document, dict) and bool(document.get("partial"))


@contextmanager
def appearing(target: Path, *, force: bool, directory: bool = False) -> Iterator[Path]:
    """A path to write a file or a directory to, which stands under `target` once all went well, whole.

    Args:
        force: whether to take the place of what is there; of a directory only if an export made it.
        directory: whether it is to be a directory, which alone may take the place of one.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    with place_errors(target):
        require_place(target, force=force, directory=directory)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            _take_place(temporary, target)
        finally:
            # Where nothing can be deleted nothing could be written, and that is what the user has to hear.
            with suppress(OSError):
                _delete(temporary)


def require_place(target: Path, *, force: bool, directory: bool = False) -> None:
    """Refuses a place at which something must not be written; the arguments are those of `appearing`.

    Raises:
        ConfigurationError: there is something, or it is within a store.
        OSError: nobody may look.
    """
    store = next((parent for parent in target.resolve().parents if (parent / _STORE).is_file()), None)
    if store is not None:
        raise ConfigurationError(f"is within the result store {store}; name a place outside of it", file=target)
    if target.is_dir() and not directory:
        raise ConfigurationError("is a directory; name a file", file=target)
    if target.exists() and not force:
        raise ConfigurationError("is there already; name another place, or add --force", file=target)
    if target.is_dir() and not (target / MARK).is_file() and any(target.iterdir()):
        raise ConfigurationError(f"is no export (it has no {MARK}), and --force would delete it", file=target)


@contextmanager
def place_errors(target: Path) -> Iterator[None]:
    """Turns an error of the disk into one line about the place that the user named."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            # Arrow's word for whatever the query raised; the disk's errors have numbers.
            raise StoreError(f"the rows for {target} cannot be read: {first_line(error)}") from error
        raise ConfigurationError(f"cannot be written: {error.strerror or error}", file=target) from error


def _write_parquet(rows: pa.RecordBatchReader, path: Path) -> int:
    count = 0
    with pq.ParquetWriter(path, rows.schema, compression="zstd", write_page_checksum=True) as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _take_place(temporary: Path, target: Path) -> None:
    if target.is_dir():
        old = target.with_name(f".{target.name}.{os.getpid()}.old")
        target.replace(old)
        temporary.replace(target)
        shutil.rmtree(old)
    else:
        temporary.replace(target)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
