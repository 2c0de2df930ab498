"""Checks that the rows of a store fit together."""

# ruff: noqa: S608 -- every name in these queries is ours

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from orchestrator.errors import StoreError
from orchestrator.store.query.querying import query_errors
from orchestrator.store.query.reading import View, read_small
from orchestrator.store.query.views import connect
from orchestrator.store.schema import TRIALS
from orchestrator.store.storage.small import KEYS
from orchestrator.store.storage.snapshot import SCHEMAS, Snapshot
from orchestrator.store.verification.findings import RESTORE, Verification, line_of
from runners.contract import ContractError, decode
from runners.system import Fingerprint, hw_id, system_id

_SHOWN: Final = 5


def check_small(snapshot: Snapshot, found: Verification) -> dict[str, pa.Table]:
    """Checks the small tables, and returns their rows."""
    tables = {}
    for name, key in KEYS.items():
        try:
            rows = read_small(snapshot, name)
        except (StoreError, ValueError) as error:
            found.damage(f"{snapshot.directory}/{name}", line_of(error), RESTORE)
            rows = SCHEMAS[name].empty_table()
        keys = rows[key].to_pylist()
        for twice in sorted(one for one, count in Counter(keys).items() if count > 1):
            found.damage(
                f"{snapshot.directory}/{name}", f"{key} {twice} is there more than once", "delete one of its files"
            )
        tables[name] = rows
        found.rows[name] = len(rows)
    _check_identities(snapshot, tables["systems"], found)
    return tables


def _check_identities(snapshot: Snapshot, systems: pa.Table, found: Verification) -> None:
    anonymised = older = 0
    for row in systems.to_pylist():
        document = json.loads(row["fingerprint"])
        if document.pop("anonymised", False):
            anonymised += 1
            continue
        try:
            fingerprint = decode(Fingerprint, document, "fingerprint")
        except ContractError:
            older += 1
            continue
        for name, computed in {"system_id": system_id(fingerprint), "hw_id": hw_id(fingerprint)}.items():
            if computed != row[name]:
                found.damage(
                    f"{snapshot.directory}/systems",
                    f"system {row['system_id']}: its fingerprint has the {name} {computed}, not {row[name]}",
                    RESTORE,
                )
    if anonymised:
        found.notes.append(f"{anonymised} systems are anonymised: their fingerprints cannot be compared with their ids")
    if older:
        found.notes.append(
            f"{older} systems have fingerprints of another taxmeter, which cannot be compared with their ids"
        )


def check_trials(view: View, tables: Mapping[str, pa.Table], found: Verification, *, is_partial: bool = False) -> None:
    """Checks that trials are unique and join, that none is missing, and that each stands in its month.

    Args:
        view: rows that can be read.
        tables: what they refer to.
        found: where the findings go.
        is_partial: whether the store is an export of some trials only.

    Raises:
        StoreError: a file changed while it was checked.
    """
    connection = connect(view, sandboxed=False)
    for name, rows in tables.items():
        connection.register(f"known_{name}", rows.combine_chunks())
    place = f"{view.snapshot.directory}/trials"
    with query_errors(connection, ""):
        found.rows["trials"] = connection.sql("SELECT count(*) FROM trials").fetchall()[0][0]
        doubled = connection.sql(
            "SELECT trial_id, attempt, count(*) FROM trials GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL"
        ).fetchall()
        if doubled:
            shown = ", ".join(f"{one[0]} attempt {one[1]}" for one in doubled[:_SHOWN])
            found.damage(
                place,
                f"{len(doubled)} rows are there more than once: {shown}{_more(doubled)}",
                "merge the store into a new one: `taxmeter results merge` takes each row once",
            )
        _check_joins(connection, place, found)
        _check_totals(connection, found, is_partial=is_partial)
    _check_months(view.snapshot, connection, found)


def _check_joins(connection: duckdb.DuckDBPyConnection, place: str, found: Verification) -> None:
    for name, key in KEYS.items():
        dangling = connection.sql(
            f"SELECT {key}, count(*) FROM trials WHERE {key} IS NOT NULL "
            f"AND {key} NOT IN (SELECT {key} FROM known_{name}) GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        if dangling:
            rows = sum(one[1] for one in dangling)
            shown = ", ".join(str(one[0]) for one in dangling[:_SHOWN])
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


def _check_months(snapshot: Snapshot, connection: duckdb.DuckDBPyConnection, found: Verification) -> None:
    if not isinstance(snapshot.filesystem, pafs.LocalFileSystem):
        return
    for path in snapshot.files["trials"]:
        month = path.rpartition("month=")[2][:7]
        starts = ds.dataset(path, schema=TRIALS, format="parquet").to_table(columns=["started_at"])
        connection.register("starts", starts)
        wrong = connection.sql(
            f"SELECT count(*) FROM starts WHERE strftime(started_at, '%Y-%m') != '{month}'"
        ).fetchall()[0][0]
        if wrong:
            found.damage(path, f"{wrong} rows started in another month than {month}", RESTORE)


def _more(items: Sequence[object]) -> str:
    return f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
