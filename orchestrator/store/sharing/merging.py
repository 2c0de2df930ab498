"""Unites two stores: the rows of another one that this one lacks.

The other store is only read: part by part, so that its size does not matter. Whatever is added goes through the
journal, as everything does. Killed in the middle it is run again, and goes on: rows that are there already are not
taken twice.
"""

# ruff: noqa: S608 -- every name in these queries is ours, and quoted where it is not

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from orchestrator.errors import StoreError
from orchestrator.store.facade import Store
from orchestrator.store.query.querying import query_errors
from orchestrator.store.query.reading import View, current_view, read_small
from orchestrator.store.query.views import connect, define_trials
from orchestrator.store.schema import TRIALS
from orchestrator.store.storage.checking import require_whole_files
from orchestrator.store.storage.parts import CHECKED
from orchestrator.store.storage.writing import Writer

_BATCH_ROWS: Final = 4096
_Key: TypeAlias = tuple[str, int]
_TOTALS: Final = ("finished_at", "rows")
"""Columns of a campaign that change when it ends, and when it is continued; so do those that begin with `trials_`."""


@dataclass
class MergeReport:
    """What a merge did."""

    added: int = 0
    """Rows of `trials`."""
    already: int = 0
    """Rows that were there, with the same content."""
    conflicts: list[str] = field(default_factory=list)
    """What is there with another content, and was not taken, one sentence each."""
    systems: int = 0
    """Rows that were added, as for the next two."""
    environments: int = 0
    campaigns: int = 0
    continued: int = 0
    """Campaigns that were there and have newer totals now."""


def merge(store: Store, other: View) -> MergeReport:
    """Adds to a store what another one has and it lacks.

    A row is known by its trial and attempt, a system and an environment by their identity, a campaign by its id.

    Args:
        store: what is written.
        other: what is read, as it is at this moment.

    Raises:
        StoreError: one cannot be read, or the other written. What was added until then stays; run it again.
    """
    # All of it before anything is added: what is damaged would have fresh checksums here.
    require_whole_files(other.snapshot)
    report = MergeReport()
    with store.writer() as writer:
        _merge_small(store, writer, other, report)
        connection = connect(current_view(store.layout), sandboxed=False)
        try:
            _remember(connection, other)
            for number, part in enumerate(_pieces(other)):
                seen = _compared(connection, part, f"piece_{number}", report)
                for batch in _batches(part):
                    new = _unseen(pa.Table.from_batches([batch]), seen)
                    writer.append_batches(new.to_batches())
                    report.added += len(new)
        finally:
            connection.close()
    return report


def _merge_small(store: Store, writer: Writer, other: View, report: MergeReport) -> None:
    # Before the trials: whoever looks meanwhile finds what a row refers to.
    for row in read_small(other.snapshot, "systems").to_pylist():
        report.systems += writer.put_system(row)
    for row in read_small(other.snapshot, "environments").to_pylist():
        report.environments += writer.put_environment(row)
    known = {row["campaign_id"]: row for row in store.campaigns().to_pylist()}
    for row in read_small(other.snapshot, "campaigns").to_pylist():
        here = known.get(row["campaign_id"])
        if here is None:
            report.campaigns += writer.put_campaign(row)
        else:
            _compare_campaign(writer, here, row, report)


def _compare_campaign(writer: Writer, here: Mapping[str, Any], there: Mapping[str, Any], report: MergeReport) -> None:
    name = here["campaign_id"]
    fixed = [column for column in here if column not in _TOTALS and not column.startswith("trials_")]
    differing = [column for column in fixed if here[column] != there[column]]
    if differing:
        report.conflicts.append(f"campaign {name} has another {', '.join(differing)}")
    elif there["finished_at"] is not None and (
        here["finished_at"] is None or here["finished_at"] < there["finished_at"]
    ):
        writer.finish_campaign(name, **{column: there[column] for column in there if column not in fixed})
        report.continued += 1


def _remember(connection: duckdb.DuckDBPyConnection, other: View) -> None:
    """Makes a table of the rows here that could be there too, each with a digest of its content."""
    define_trials(connection, other, "theirs")
    with query_errors(connection, ""):
        connection.execute(
            "CREATE TEMP TABLE here AS SELECT trial_id, attempt, hash(trials) AS content FROM trials "
            "WHERE campaign_id IN (SELECT DISTINCT campaign_id FROM theirs)"
        )


def _compared(connection: duckdb.DuckDBPyConnection, part: View, name: str, report: MergeReport) -> set[_Key]:
    """The keys of a part that are here already; counts them, and remembers the others."""
    define_trials(connection, part, name)
    with query_errors(connection, ""):
        found = connection.sql(
            f"SELECT trial_id, attempt, hash({name}) = here.content AS same "
            f"FROM {name} JOIN here USING (trial_id, attempt)"
        ).to_arrow_table()
        # The other store may have a row twice.
        new = f"FROM {name} ANTI JOIN here USING (trial_id, attempt) GROUP BY trial_id, attempt"
        twice = connection.sql(
            f"SELECT trial_id, attempt, count(*), count(DISTINCT hash({name})) {new} HAVING count(*) > 1 ORDER BY ALL"
        ).fetchall()
        connection.execute(f"INSERT INTO here SELECT trial_id, attempt, first(hash({name})) {new}")
        connection.execute(f"DROP VIEW {name}")
    for trial_id, attempt, rows, contents in twice:
        if contents > 1:
            report.conflicts.append(f"trial {trial_id}, attempt {attempt}, is there {rows} times, with other contents")
        else:
            report.already += rows - 1
    for row in found.filter(pa.compute.invert(found["same"])).to_pylist():
        report.conflicts.append(f"trial {row['trial_id']}, attempt {row['attempt']}, has another content")
    report.already += pa.compute.sum(found["same"]).as_py() or 0
    return set(zip(found["trial_id"].to_pylist(), found["attempt"].to_pylist(), strict=True))


def _unseen(rows: pa.Table, seen: set[_Key]) -> pa.Table:
    """The rows whose keys were not seen yet; remembers them."""
    new = []
    for key in zip(rows["trial_id"].to_pylist(), rows["attempt"].to_pylist(), strict=True):
        new.append(key not in seen)
        seen.add(key)
    return rows.filter(pa.array(new, pa.bool_()))


def _pieces(other: View) -> Iterator[View]:
    """The other store in pieces of one part each."""
    nothing = TRIALS.empty_table()
    for path in other.snapshot.files["trials"]:
        yield View(_only(other, (path,)), nothing)
    if len(other.unsealed):
        yield View(_only(other, ()), other.unsealed)


def _only(other: View, trials: tuple[str, ...]) -> Any:
    return replace(other.snapshot, files={**other.snapshot.files, "trials": trials})


def _batches(part: View) -> Iterator[pa.RecordBatch]:
    files = list(part.snapshot.files["trials"])
    try:
        rows: ds.Dataset = (
            ds.dataset(files, schema=TRIALS, format=CHECKED, filesystem=part.snapshot.filesystem)
            if files
            else ds.dataset(part.unsealed)
        )
        for batch in rows.to_batches(batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=TRIALS)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"cannot read {', '.join(files)}: {error}") from error
