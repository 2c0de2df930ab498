"""Proves that a store is sound: every byte can be read, every row is one of ours, all of it fits together.

Nothing is changed.
"""

# ruff: noqa: S608 -- every name in these queries is ours

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.files import try_lock
from orchestrator.store.query.sql import connect, query_errors
from orchestrator.store.query.tabular import is_partial_export
from orchestrator.store.query.view import View
from orchestrator.store.schema import KEYS, SCHEMA_VERSION, SCHEMAS
from orchestrator.store.storage.journal import read_segment
from orchestrator.store.storage.layout import PART, Layout, Snapshot, first_line
from orchestrator.store.storage.parts import file_name
from orchestrator.store.validation import told, violations, without
from runners.contract import ContractError, decode
from runners.system import Fingerprint, hw_id, system_id

RESTORE: Final = "restore it from a copy of the store, or move it out and `taxmeter results merge` such a copy"
_DROP: Final = "no taxmeter writes that; `taxmeter results drop` takes its campaign out"
_PUSH: Final = "delete it and push the store again"
_SHOWN: Final = 5
_BATCH_ROWS: Final = 8192


@dataclass(frozen=True)
class Problem:
    """Something that is damaged."""

    place: str
    what: str
    remedy: str


@dataclass
class Verification:
    """What was found."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no damage."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows that could be read, by table."""
    files: int = 0
    unsealed: int = 0
    """Rows of `trials` that are in the journal alone."""

    def damage(self, place: object, what: str, remedy: str) -> None:
        self.problems.append(Problem(str(place), what, remedy))


def verify(view: View, layout: Layout | None) -> Verification:
    """Checks a store.

    Args:
        layout: where it is; null for one that is not a directory here, and has only sealed files.

    Raises:
        StoreError: the store cannot be listed at all, or a file changed while it was checked.
    """
    found = Verification()
    readable = _check_files(view.snapshot, _PUSH if layout is None else RESTORE, found)
    found.unsealed = len(view.unsealed)
    _check_rows(view.unsealed.to_batches(), "trials", "the journal", found)
    if layout is not None:
        _check_journal(layout, found)
        _check_strays(layout, view.snapshot, found)
    tables = _check_small(readable, found)
    is_partial = layout is not None and is_partial_export(layout.root)
    _check_trials(View(readable, view.unsealed), tables, found, is_partial=is_partial)
    return found


def _check_files(snapshot: Snapshot, remedy: str, found: Verification) -> Snapshot:
    """Reads every row of every file; returns the snapshot of those that are whole."""
    good: dict[str, tuple[str, ...]] = {}
    for table in SCHEMAS:
        kept = []
        for path in snapshot.files[table]:
            found.files += 1
            try:
                with snapshot.filesystem.open_input_file(path) as stream:
                    content = stream.read_buffer()
                if file_name(content) != PurePosixPath(path).name:
                    found.damage(path, "its content is not that of its name", remedy)
                    continue
                if not _has_columns(pq.read_schema(pa.BufferReader(content)), path, table, found):
                    continue
                rows = replace(snapshot, files={table: (path,)}).dataset(table)
                month = PART.search(path) if table == "trials" else None
                batches = rows.to_batches(batch_size=_BATCH_ROWS, batch_readahead=1)
                _check_rows(batches, table, path, found, None if month is None else month[1])
            except (pa.ArrowException, OSError, ValueError, StoreError) as error:
                found.damage(path, f"cannot be read: {first_line(error)}", RESTORE)
                continue
            kept.append(path)
        good[table] = tuple(kept)
    return replace(snapshot, files=good)


def _check_rows(
    batches: Iterable[pa.RecordBatch], table: str, place: str, found: Verification, month: str | None = None
) -> None:
    """Judges rows by the validator of all rows; those of a part started in its month."""
    lines: list[str] = []
    elsewhere = 0
    for batch in batches:
        lines += told(batch, table, violations(batch, table))
        if month is not None:
            months = pc.strftime(batch["started_at"].cast(pa.timestamp("us")), format="%Y-%m")
            elsewhere += pc.sum(pc.not_equal(months, month)).as_py() or 0
    for line in lines[:_SHOWN]:
        found.damage(place, line, _DROP)
    if len(lines) > _SHOWN:
        found.damage(place, f"{len(lines) - _SHOWN} more rows of `{table}` are wrong", _DROP)
    if elsewhere:
        found.damage(place, f"{elsewhere} rows started in another month than {month}", RESTORE)


def _has_columns(schema: pa.Schema, path: str, table: str, found: Verification) -> bool:
    """Judges a file's version and columns; whether its rows can be read together with others."""
    has_all = True
    text = (schema.metadata or {}).get(b"schema_version", b"")
    version = int(text) if text.isdigit() else None
    if version is None:
        found.damage(path, "says no schema version", "a file that taxmeter did not write; move it out of the store")
    elif version != SCHEMA_VERSION:
        what = f"has schema {version}, and this taxmeter knows {SCHEMA_VERSION}"
        found.damage(path, what, "move it out of the store, and read it with the taxmeter that wrote it")
    for ours in SCHEMAS[table]:
        position = schema.get_field_index(ours.name)
        if position < 0:
            has_all = False
            found.damage(path, f"lacks the column {ours.name}", RESTORE)
        elif not schema.field(position).type.equals(ours.type) and not pa.types.is_nested(ours.type):
            found.damage(path, f"column {ours.name} is {schema.field(position).type}, not {ours.type}", RESTORE)
    return has_all


def _check_journal(layout: Layout, found: Verification) -> None:
    living = 0
    for segment in layout.segments():
        try:
            content = read_segment(segment)
            descriptor = os.open(segment, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                is_written = not try_lock(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            continue
        except (OSError, StoreError) as error:
            found.damage(segment, f"cannot be read: {first_line(error)}", "make it readable")
            continue
        living += is_written
        if content.damage is not None and not is_written:
            found.damage(
                segment,
                f"{content.damage}; {len(content.table)} rows are whole",
                "the next sweep, or `taxmeter results compact`, seals the whole rows and keeps the file in quarantine/",
            )
    if living:
        found.notes.append(f"{living} journals are being written right now")
    aside = sorted(layout.quarantine.iterdir()) if layout.quarantine.is_dir() else []
    found.notes += [f"{path}: put aside earlier, because something in it could not be read" for path in aside]


def _check_strays(layout: Layout, snapshot: Snapshot, found: Verification) -> None:
    """A file that does not belong there makes plain readers fail, or read rows that are none."""
    for table in SCHEMAS:
        root = Path(snapshot.directory) / table
        for path in sorted(root.rglob("*")) if root.is_dir() else []:
            name = str(path.relative_to(root))
            belongs = PART.fullmatch(name) if table == "trials" else "/" not in name and name.endswith(".parquet")
            if not path.is_dir() and not belongs:
                found.damage(path, "does not belong there, and plain readers fail on it", "move it out of the store")
    leftovers = list(layout.temporary.iterdir()) if layout.temporary.is_dir() else []
    if leftovers:
        found.notes.append(f"{layout.temporary}: {len(leftovers)} unfinished files; the next writer removes them")


def _check_small(snapshot: Snapshot, found: Verification) -> dict[str, pa.Table]:
    """Checks the small tables, and returns their rows."""
    tables = {}
    for name, key in KEYS.items():
        place = f"{snapshot.directory}/{name}"
        try:
            rows = snapshot.table(name)
        except (StoreError, ValueError) as error:
            found.damage(place, first_line(error), RESTORE)
            rows = SCHEMAS[name].empty_table()
        for twice in sorted(str(key) for key, count in Counter(rows[key].to_pylist()).items() if count > 1):
            found.damage(place, f"{key} {twice} is there more than once", "delete one of its files")
        tables[name] = rows
        found.rows[name] = len(rows)
    _check_identities(tables["systems"], f"{snapshot.directory}/systems", found)
    return tables


def _check_identities(systems: pa.Table, place: str, found: Verification) -> None:
    anonymised = older = 0
    good = (without(batch, violations(batch, "systems")) for batch in systems.to_batches())
    for row in (row for batch in good for row in batch.select(["system_id", "hw_id", "fingerprint"]).to_pylist()):
        document = json.loads(row["fingerprint"])
        if document.pop("anonymised", False):
            anonymised += 1
            continue
        try:
            fingerprint = decode(Fingerprint, document, "fingerprint")
            computed = {"system_id": system_id(fingerprint), "hw_id": hw_id(fingerprint)}
        except ContractError:
            older += 1
            continue
        for name in (name for name in computed if computed[name] != row[name]):
            what = f"its fingerprint has the {name} {computed[name]}, not {row[name]}"
            found.damage(place, f"system {row['system_id']}: {what}", RESTORE)
    if anonymised:
        found.notes.append(f"{anonymised} systems are anonymised: their fingerprints cannot be compared with their ids")
    if older:
        found.notes.append(
            f"{older} systems have fingerprints of another taxmeter, which cannot be compared with their ids"
        )


def _check_trials(view: View, tables: Mapping[str, pa.Table], found: Verification, *, is_partial: bool) -> None:
    """Checks that trials are in order and unique and join, that none is missing, and that each stands in its month."""
    place = f"{view.snapshot.directory}/trials"
    connection = connect(view, sandboxed=False, names=("trials", "campaigns"))
    for name, rows in tables.items():
        connection.register(f"known_{name}", rows.combine_chunks())
    with query_errors(connection, ""):
        found.rows["trials"] = connection.sql("SELECT count(*) FROM trials").fetchall()[0][0]
        doubled = connection.sql(
            "SELECT trial_id, attempt, count(*) FROM trials GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL"
        ).fetchall()
        if doubled:
            shown = ", ".join(f"{trial_id} attempt {attempt}" for trial_id, attempt, _ in doubled[:_SHOWN])
            found.damage(
                place,
                f"{len(doubled)} rows are there more than once: {shown}{_more(doubled)}",
                "merge the store into a new one: `taxmeter results merge` takes each row once",
            )
        _check_joins(connection, place, found)
        _check_totals(connection, found, is_partial=is_partial)


def _check_joins(connection: duckdb.DuckDBPyConnection, place: str, found: Verification) -> None:
    for name, key in KEYS.items():
        dangling = connection.sql(
            f"SELECT {key}, count(*) FROM trials WHERE {key} IS NOT NULL "
            f"AND {key} NOT IN (SELECT {key} FROM known_{name}) GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        if dangling:
            rows = sum(count for _, count in dangling)
            shown = ", ".join(str(value) for value, _ in dangling[:_SHOWN])
            found.damage(
                place,
                f"{rows} rows refer to {key} {shown}{_more(dangling)}, which `{name}` does not have",
                "merge a copy of the store that has them",
            )
        nameless = connection.sql(f"SELECT count(*) FROM trials WHERE {key} IS NULL").fetchall()[0][0]
        if nameless:
            found.notes.append(f"{nameless} rows have no {key}")


def _check_totals(connection: duckdb.DuckDBPyConnection, found: Verification, *, is_partial: bool) -> None:
    differing = connection.sql(
        "SELECT campaign_id, any_value(rows), count(trial_id) FROM campaigns LEFT JOIN trials USING (campaign_id) "
        "WHERE campaigns.finished_at IS NOT NULL GROUP BY campaign_id HAVING any_value(rows) > count(trial_id) "
        "ORDER BY ALL"
    ).fetchall()
    if is_partial and differing:
        found.notes.append(f"an export of some trials only: {len(differing)} campaigns had more rows when they ended")
        return
    for campaign, expected, seen in differing:
        found.damage(
            f"campaign {campaign}",
            f"has {seen} rows, and had {expected} when it ended",
            "merge a copy that has them all",
        )


def _more(items: Sequence[object]) -> str:
    return f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
