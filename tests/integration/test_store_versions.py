"""Stores that older versions wrote: read, sealed, converted and compacted by this one, with every value kept."""

import os
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from orchestrator.store import CAMPAIGNS, ENVIRONMENTS, SYSTEMS, TRIALS, Store
from orchestrator.store.schema import SCHEMA_VERSION
from orchestrator.store.storage import journal
from orchestrator.store.storage.compaction import compact
from tests.storing import names, row

GOLDEN = Path(__file__).parents[1] / "data" / "store"
VERSIONS = sorted(path.name for path in GOLDEN.glob("v*"))
SMALL = {"systems": SYSTEMS, "environments": ENVIRONMENTS, "campaigns": CAMPAIGNS}


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a golden store."""
    # Links stay links: a store of format 2 has one.
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / "results", symlinks=True))


def as_written(store: Path, table: str) -> pa.Table:
    """What stands in the files, read without any code of the store; of `trials` the journal too."""
    root = Path(os.path.realpath(store / "current")) if (store / "current").exists() else store
    tables = [pq.ParquetFile(file).read() for file in sorted((root / table).rglob("*.parquet"))]
    if table == "trials":
        tables += [pa.ipc.open_stream(file.read_bytes()).read_all() for file in (store / "journal").glob("*.arrows")]
    return pa.concat_tables(tables)


def rows_of(table: pa.Table) -> dict[tuple[object, object], dict[str, Any]]:
    return {(row["trial_id"], row["attempt"]): row for row in table.to_pylist()}


def require_kept(written: pa.Table, now: pa.Table) -> None:
    """Asserts that each row is there once, with all of its values, and null where its version had no column."""
    assert now.schema.equals(TRIALS, check_metadata=True)
    assert len(now) == len(written) == 5
    expected, found = rows_of(written), rows_of(now)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert {name: found[key][name] for name in values} == values
    later = set(TRIALS.names) - set(written.schema.names)
    assert {found[key][name] for key in found for name in later} <= {None}


def test_the_golden_store_has_a_value_in_each_column_of_its_version(old: Path) -> None:
    written = as_written(old, "trials")
    assert [name for name in written.schema.names if written[name].null_count] == []
    columns = {line.split(" | ")[0] for line in (old / "schema.txt").read_text().splitlines()}
    assert {f"trials.{name}" for name in written.schema.names} <= columns
    assert len(list((old / "journal").glob("*.arrows"))) == 1


def test_trials_are_read_with_every_value(old: Path) -> None:
    require_kept(as_written(old, "trials"), Store.open(old).trials())


def test_the_small_tables_are_read_with_every_value_and_the_nested_columns(old: Path) -> None:
    store = Store.open(old)
    for name, schema in SMALL.items():
        [written], now = as_written(old, name).to_pylist(), getattr(store, name)()
        assert now.schema.equals(schema, check_metadata=True)
        [row] = now.to_pylist()
        assert {column: row[column] for column in written} == written
    [system] = store.systems().to_pylist()
    assert system["details"]["cpu"]["caches"][0]["ways"] == 8
    assert system["details"]["kernel"]["mitigations"] == [("meltdown", "Not affected"), ("retbleed", "Vulnerable")]
    [environment] = store.environments().to_pylist()
    assert dict(environment["packages"]) == {"python": "3.11.2", "torch": "2.13.0+cpu"}


def test_a_writer_seals_the_journal_and_plain_readers_see_every_row(old: Path) -> None:
    written = as_written(old, "trials")
    with Store.open(old).writer() as writer:
        assert [report.damage for report in writer.reports] == [None]
        assert [report.rows for report in writer.reports] == [2]
    assert list((old / "journal").iterdir()) == []
    require_kept(written, Store.open(old).trials())
    root = os.path.realpath(old / "current")
    months = sorted(path.name for path in Path(root, "trials").iterdir())
    assert months == ["month=2026-11", "month=2026-12"]
    plain = duckdb.sql(f"FROM read_parquet('{root}/trials/**/*.parquet', union_by_name = true)").to_arrow_table()
    names = written.schema.names
    assert rows_of(plain.select(names).cast(written.schema)) == rows_of(written)


def test_compaction_makes_files_of_the_current_schema_with_every_value(old: Path) -> None:
    written = {name: as_written(old, name) for name in ("trials", *SMALL)}
    store = Store.open(old)
    with store.writer() as writer:
        for number in range(2):
            row = written["trials"].slice(0, 1).to_pylist()[0] | {"trial_id": f"new{number}"}
            writer.append([row])
            writer.seal()
    compact(store.layout, full=True)
    dataset = ds.dataset(os.path.realpath(old / "current" / "trials"))
    for fragment in dataset.get_fragments():
        assert fragment.physical_schema.equals(TRIALS, check_metadata=True)
    added = ~ds.field("trial_id").isin(["new0", "new1"])
    require_kept(written["trials"], store.trials().filter(added))
    assert len(store.trials()) == 7
    for name in SMALL:
        [before], [after] = written[name].to_pylist(), getattr(store, name)().to_pylist()
        assert {column: after[column] for column in before} == before


def test_a_part_and_a_journal_of_a_newer_taxmeter_are_left_as_they_are(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    with store.writer() as writer:
        writer.append([row("a")])
    part = store.layout.parts()[0]
    newer = part.with_name(part.name.replace(f"-s{SCHEMA_VERSION}-", f"-s{SCHEMA_VERSION + 1}-"))
    table = pq.ParquetFile(part).read()
    pq.write_table(table.append_column("of_tomorrow", pa.array([1.5])), newer)
    part.unlink()
    wider = TRIALS.append(pa.field("of_tomorrow", pa.float64()))
    batch = pa.RecordBatch.from_pylist([{**row("b"), "of_tomorrow": 2.5}], wider)
    seed = journal._schema_checksum(wider)
    segment = store.layout.journal / "20990101T000000Z-0.arrows"
    with segment.open("wb") as file, pa.ipc.new_stream(file, wider) as stream:
        crc = str(journal._checksum(batch, seed))
        stream.write_batch(batch, custom_metadata={"seq": "0", "crc32": crc})
    assert names(store) == ["a", "b"]
    with store.writer():
        pass
    compact(store.layout, full=True)
    assert [part.name for part in store.layout.parts()] == [newer.name]
    assert pq.ParquetFile(store.layout.parts()[0]).read()["of_tomorrow"].to_pylist() == [1.5]
    assert store.layout.segments() == [segment]
    assert names(store) == ["a", "b"]
