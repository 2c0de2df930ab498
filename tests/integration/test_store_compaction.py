"""Compaction: fewer files, the same rows, and nobody who reads or writes notices."""

import os
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import StoreError
from orchestrator.store import Store, system_row
from orchestrator.store.schema import SORT_ORDER, TRIALS
from orchestrator.store.storage import compaction, generations, parts, writer
from orchestrator.store.storage.compaction import CompactionBusyError, compact
from tests.storing import CrashError, campaign, dying_at, names, plain_counts, row


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "results")


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that few rows reach: a part is small below 4 rows, full from 10 on, and ends at 20."""
    monkeypatch.setattr(compaction, "FULL_ROWS", 20)
    monkeypatch.setattr(compaction, "SMALL_ROWS", 4)
    monkeypatch.setattr(compaction, "TIER_PARTS", 3)


def seal_parts(store: Store, sizes: list[int], month: int = 11, first: int = 0) -> None:
    """One part of each size, without the compaction at a writer's end."""
    writer = store.writer()
    for size in sizes:
        backends = ("onnxruntime", "eager", "torchscript")
        writer.append([row(f"t{first + i:04d}", backend=backends[i % 3], month=month) for i in range(size)])
        first += size
        writer.seal()


def sizes(store: Store) -> dict[str, list[int]]:
    """Rows of the parts by month."""
    found: dict[str, list[int]] = {}
    for part in store.layout.parts():
        found.setdefault(part.parent.name, []).append(pq.read_metadata(part).num_rows)
    return {month: sorted(rows) for month, rows in found.items()}


def test_a_full_compaction_leaves_one_sorted_part_a_month(store: Store) -> None:
    seal_parts(store, [5, 7, 9])
    seal_parts(store, [2, 3], month=12, first=100)
    before = store.trials().sort_by("trial_id")
    report = compact(store.layout, full=True)
    assert (report.months, report.parts_before, report.parts_after, report.rows) == (("2025-11", "2025-12"), 5, 2, 26)
    assert report.bytes_after < report.bytes_before
    assert sizes(store) == {"month=2025-11": [21], "month=2025-12": [5]}
    assert store.trials().sort_by("trial_id").equals(before)
    assert plain_counts(store) == {26}
    part = pq.ParquetFile(store.layout.parts()[0]).read()
    assert part.equals(part.sort_by([(name, "ascending") for name in SORT_ORDER]))
    again = compact(store.layout, full=True)
    assert (again.months, again.rows, again.generation) == ((), 0, report.generation)


def test_parts_are_merged_row_group_by_row_group(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_ROWS", 5)
    seal_parts(store, [7, 1, 9])
    groups = list(parts.merged_groups(store.layout.parts(), tmp_path / "aside"))
    assert [len(group) for group in groups] == [5, 5, 5, 2]
    merged = pa.concat_tables(groups)
    order = [(name, "ascending") for name in (*SORT_ORDER, "trial_id")]
    assert merged.select(SORT_ORDER).equals(merged.sort_by(order).select(SORT_ORDER))
    assert merged.sort_by(order).equals(store.trials().sort_by(order))


@pytest.mark.usefixtures("low")
def test_parts_are_merged_tier_by_tier_and_full_ones_are_left_alone(store: Store) -> None:
    seal_parts(store, [1, 1, 3, 4, 5, 10, 12])
    compact(store.layout, full=False)
    assert sizes(store) == {"month=2025-11": [4, 5, 5, 10, 12]}
    compact(store.layout, full=False)
    assert sizes(store) == {"month=2025-11": [10, 12, 14]}
    assert compact(store.layout, full=True).rows == 0
    assert plain_counts(store) == {36}


@pytest.mark.usefixtures("low")
def test_no_part_is_larger_than_half_a_part_too_much(store: Store) -> None:
    seal_parts(store, [9] * 11)
    compact(store.layout, full=True)
    assert sizes(store) == {"month=2025-11": [18, 27, 27, 27]}
    assert len(set(names(store))) == 99


@pytest.mark.usefixtures("low")
def test_too_many_parts_are_merged_whatever_their_tier(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MANY_PARTS", 5)
    for month in (7, 8, 9):
        seal_parts(store, [1, 5], month=month, first=10 * month)
    compact(store.layout, full=False)
    assert [rows for _, rows in sorted(sizes(store).items())] == [[6], [6], [6]]


def test_there_are_never_many_files_however_often_is_sealed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.storage.writer.DUE_PARTS", 12)
    most = 0
    with store.writer(seal_after_rows=2) as writer:
        for number in range(150):
            writer.append([row(f"t{number:04d}")])
            most = max(most, len(store.layout.parts()))
    assert most <= 12 + compaction.TIER_PARTS
    assert len(writer.compactions) > 4
    assert len(store.layout.parts()) < compaction.TIER_PARTS
    assert plain_counts(store) == {150}
    assert writer.compaction_problems == []


def test_writers_that_are_killed_leave_no_heap_of_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.storage.writer.DUE_PARTS", 12)
    monkeypatch.setattr(writer, "MANY_PARTS", 10)
    most = 0
    for number in range(20):
        killed = store.writer(seal_after_rows=1)
        for i in range(4):
            killed.append([row(f"t{number}-{i}")])
        killed._segment.close()
        most = max(most, len(store.layout.parts()))
    assert 12 < most <= 10 + 12 + 1
    assert len(store.trials()) == 80


@pytest.mark.parametrize("column", ["trial_id", *SORT_ORDER])
def test_a_flipped_bit_is_found_and_not_copied(store: Store, column: str) -> None:
    seal_parts(store, [40, 40])
    _, part = store.layout.parts()
    data = bytearray(part.read_bytes())
    chunk = pq.read_metadata(part).row_group(0).column(TRIALS.get_field_index(column))
    data[chunk.data_page_offset + chunk.total_compressed_size - 8] ^= 1
    part.write_bytes(data)
    with pytest.raises(StoreError, match=rf"{part.name} is damaged: .*results verify"):
        compact(store.layout, full=True)
    assert len(store.layout.parts()) == 2
    assert list(store.layout.temporary.iterdir()) == []


def test_a_part_with_other_columns_is_told_and_left_alone(store: Store) -> None:
    seal_parts(store, [4, 4])
    _, part = store.layout.parts()
    sink = pa.BufferOutputStream()
    pq.write_table(pq.ParquetFile(part).read().drop_columns(["seed"]), sink)
    strange = part.with_name(parts.file_name(sink.getvalue()))
    strange.write_bytes(sink.getvalue())
    part.unlink()
    with pytest.raises(StoreError, match=f"cannot read .*{strange.name}"):
        compact(store.layout, full=True)
    assert len(store.layout.parts()) == 2


def test_what_is_sealed_or_put_while_parts_are_merged_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seal_parts(store, [2, 2])
    write_trials = compaction.write_trials

    def busy(*arguments: object) -> None:
        write_trials(*arguments)
        with store.writer() as writer:
            writer.append([row("late"), row("t0000")])
            writer.put("systems", [system_row("s1", "h1", {}, {})])
        with pytest.raises(CompactionBusyError, match="another compaction is under way"):
            compact(store.layout, full=True)

    monkeypatch.setattr(compaction, "write_trials", busy)
    assert compact(store.layout, full=True).parts_after == 2
    assert names(store) == ["late", "t0000", "t0001", "t0002", "t0003"]
    assert store.systems()["system_id"].to_pylist() == ["s1"]


def test_a_crash_at_any_step_of_a_compaction_is_repaired(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [(os, "fsync"), (os, "link"), (generations, "move"), (Path, "symlink_to"), (Path, "unlink")]
    for step in count():
        seal_parts(store, [1, 1], first=2 * step)
        expected = [f"t{number:04d}" for number in range(2 * step + 2)]
        try:
            with dying_at(monkeypatch, step, steps):
                compact(store.layout, full=True)
        except CrashError:
            assert names(store) == expected
            assert plain_counts(store) == {len(expected)}
            compact(store.layout, full=True)
            assert list(store.layout.temporary.iterdir()) == []
        else:
            break
    assert step > 10
    assert names(store) == expected
    assert len(store.layout.parts()) == 1


def test_rows_of_small_tables_stay_unique_after_their_files_were_merged(store: Store) -> None:
    many = [f"s{number}" for number in range(20)]
    with store.writer() as writer:
        assert all(writer.put("systems", [system_row(name, "h1", {"cpu_cores": 2}, {"schema": 1})]) for name in many)
    assert len(list((store.layout.current / "systems").iterdir())) == 1
    with store.writer() as writer:
        assert not any(writer.put("systems", [system_row(name, "h1", {"cpu_cores": 4}, {})]) for name in many)
        assert writer.put("systems", [system_row("s", "h1", {}, {})])
    assert sorted(store.systems()["system_id"].to_pylist()) == sorted(["s", *many])
    assert store.systems()["cpu_cores"].to_pylist().count(2) == 20


@pytest.mark.parametrize("merged", [False, True])
def test_a_campaign_is_finished_once_and_nothing_else_changes(store: Store, merged: bool) -> None:
    finished_at = datetime(2025, 11, 21, tzinfo=UTC)
    with store.writer() as writer:
        for name in ("c", "c2"):
            writer.put_campaign(campaign(name))
    if merged:
        compact(store.layout, full=True)
    with store.writer() as writer:
        writer.finish_campaign("c", finished_at=finished_at, rows=3)
        generation = generations.current_number(store.layout)
        writer.finish_campaign("c", finished_at=finished_at, rows=3)
        assert generations.current_number(store.layout) == generation
        writer.finish_campaign("c", rows=4)
        assert not writer.put_campaign(campaign("c"))
        for name, columns, message in (
            ("c3", {"rows": 1}, "has no row with campaign_id c3"),
            ("c", {"rowz": 1}, "unknown column rowz"),
            ("c", {"rows": "many"}, "rows: "),
        ):
            with pytest.raises(StoreError, match=message):
                writer.finish_campaign(name, **columns)
    rows = {row["campaign_id"]: {**row, "origin_store": None} for row in store.campaigns().to_pylist()}
    assert rows == {"c": {**campaign("c"), "finished_at": finished_at, "rows": 4}, "c2": campaign("c2")}
