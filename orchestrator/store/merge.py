"""Unites two stores: the rows of another one that this one lacks.

The other store is only read, and its rows are judged as those of strangers. Whatever is added goes through the
journal, as everything does. Killed in the middle it is run again, and goes on: rows that are there already are not
taken twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.store.facade import Store
from orchestrator.store.query.sql import connect, define_trials, query_errors
from orchestrator.store.query.view import View, current_view
from orchestrator.store.schema import KEYS, TOTALS, TRIALS
from orchestrator.store.schema.tables import as_merged
from orchestrator.store.storage.parts import require_whole
from orchestrator.store.storage.writer import Writer
from orchestrator.store.validation import told, violations, without

_BATCH_ROWS: Final = 4096
_READ: Final = pa.schema([column.with_nullable(True) for column in TRIALS])
"""What a column lacks over there is for the judge of rows to say."""
_LOCAL: Final = frozenset({"origin", "origin_store"})

# Of each trial and attempt over there: how often it is there, with how many contents, how many of them as here.
_COMPARED: Final = """
    CREATE TEMP TABLE compared AS
    WITH mine AS (
        SELECT trial_id, attempt, hash(trials) AS content FROM trials
        WHERE campaign_id IN (SELECT DISTINCT campaign_id FROM theirs)
    ), other AS (
        SELECT trial_id, attempt, hash(theirs) AS content FROM theirs
    )
    SELECT trial_id, attempt, count(*) AS copies, count(DISTINCT other.content) AS contents,
           count(mine.content) > 0 AS is_mine, count(*) FILTER (other.content = mine.content) AS same
    FROM other LEFT JOIN mine USING (trial_id, attempt) GROUP BY trial_id, attempt
"""
_ALREADY: Final = """
    SELECT coalesce(sum(CASE WHEN is_mine THEN same WHEN contents = 1 THEN copies - 1 END), 0) FROM compared
"""
_DIFFERING: Final = """
    SELECT trial_id, attempt, copies, is_mine FROM compared
    WHERE CASE WHEN is_mine THEN same < copies ELSE contents > 1 END ORDER BY ALL
"""
# Numbering holds rows, samples included, in memory: only of those that are there more than once.
_NEW: Final = """
    SELECT theirs.* FROM theirs SEMI JOIN (FROM compared WHERE NOT is_mine AND copies = 1) USING (trial_id, attempt)
    UNION ALL
    SELECT theirs.* FROM theirs SEMI JOIN (FROM compared WHERE NOT is_mine AND copies > 1) USING (trial_id, attempt)
    QUALIFY row_number() OVER (PARTITION BY trial_id, attempt) = 1
"""


@dataclass
class MergeReport:
    """What a merge did."""

    added: int = 0
    """Rows of `trials`."""
    already: int = 0
    """Rows that were there, with the same content."""
    conflicts: list[str] = field(default_factory=list)
    """What is there with another content, and was not taken, one sentence each."""
    refused: list[str] = field(default_factory=list)
    """What no store takes, one sentence each; nor were the rows taken that refer to it."""
    small: dict[str, int] = field(default_factory=dict)
    """By small table, how many rows were added."""
    continued: int = 0
    """Campaigns that were there and have newer totals now."""


def merge(store: Store, other: View) -> MergeReport:
    """Adds to a store what another one has and it lacks.

    A row is known by its trial and attempt, a system and an environment by their identity, a campaign by its id.

    Raises:
        StoreError: one cannot be read, or the other written. What was added until then stays; run it again.
    """
    # All of it before anything is added: what is damaged would have fresh names here.
    require_whole(other.snapshot)
    report = MergeReport()
    with store.writer() as writer:
        # Before the trials: whoever looks meanwhile finds what a row refers to.
        left = {table: _merge_small(store, writer, other, table, report) for table in KEYS}
        connection = connect(current_view(store.layout), sandboxed=False, names=("trials",))
        try:
            define_trials(connection, other, "theirs")
            with query_errors(connection, ""):
                _compare(connection, report)
                for batch in _new_rows(connection):
                    taken = _judged(batch, left, report)
                    writer.append_batches([taken])
                    report.added += taken.num_rows
        finally:
            connection.close()
    return report


def _merge_small(store: Store, writer: Writer, other: View, table: str, report: MergeReport) -> set[str | None]:
    """Adds rows of a small table; the keys of those that were not taken."""
    key = KEYS[table]
    left: set[str | None] = set()
    there: dict[str, dict[str, Any]] = {}
    for batch in other.snapshot.table(table).combine_chunks().to_batches():
        wrong = violations(batch, table)
        report.refused += told(batch, table, wrong)
        left.update(batch.column(key)[place].as_py() for place in wrong)
        there = {row[key]: row for row in without(batch, wrong).to_pylist()} | there
    if table == "campaigns":
        here = {row[key]: row for row in store.campaigns().to_pylist()}
        left |= _continue_campaigns(writer, here, there, report)
        there = {name: as_merged(row) for name, row in there.items() if name not in here}
    report.small[table] = writer.put(table, list(there.values()))
    return left - there.keys()


def _continue_campaigns(
    writer: Writer, here: Mapping[str, Mapping[str, Any]], there: Mapping[str, Mapping[str, Any]], report: MergeReport
) -> set[str | None]:
    """Takes the newer totals of campaigns that both have; those that are not the same campaign."""
    differing: set[str | None] = set()
    newer = {}
    for name in sorted(here.keys() & there.keys()):
        mine, other = here[name], there[name]
        fixed = mine.keys() - {*TOTALS} - _LOCAL
        columns = [column for column in mine if column in fixed and mine[column] != other[column]]
        if columns:
            report.conflicts.append(f"campaign {name} has another {', '.join(columns)}")
            differing.add(name)
        elif other["finished_at"] is not None and (
            mine["finished_at"] is None or mine["finished_at"] < other["finished_at"]
        ):
            newer[name] = {column: other[column] for column in TOTALS}
    if newer:
        writer.finish_campaigns(newer)
    report.continued = len(newer)
    return differing


def _compare(connection: duckdb.DuckDBPyConnection, report: MergeReport) -> None:
    connection.execute(_COMPARED)
    report.already = int(connection.sql(_ALREADY).fetchall()[0][0])
    for trial_id, attempt, copies, is_mine in connection.sql(_DIFFERING).fetchall():
        what = "has another content" if is_mine else f"is there {copies} times, with other contents"
        report.conflicts.append(f"trial {trial_id}, attempt {attempt}, {what}")


def _new_rows(connection: duckdb.DuckDBPyConnection) -> Iterator[pa.RecordBatch]:
    """The rows that are not here, one of each trial and attempt."""
    for read in connection.sql(_NEW).to_arrow_reader(_BATCH_ROWS):
        rows = pa.Table.from_batches([read]).cast(_READ)
        for batch in rows.combine_chunks().to_batches(_BATCH_ROWS):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=TRIALS)


def _judged(rows: pa.RecordBatch, left: Mapping[str, set[str | None]], report: MergeReport) -> pa.RecordBatch:
    """The rows that can be taken; notes the others that are wrong themselves."""
    for table, key in KEYS.items():
        if left[table]:
            refers = pc.is_in(rows.column(key), pa.array(sorted(map(str, left[table])), pa.string()))
            rows = rows.filter(pc.invert(refers))
    wrong = violations(rows, "trials")
    report.refused += told(rows, "trials", wrong)
    return without(rows, wrong)
