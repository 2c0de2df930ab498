"""`taxmeter results verify` finds what is damaged, says where, and what to do; `compact` merges files."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import SYSTEMS, Store, system_row
from tests.results import CAMPAIGNS, SYSTEM, make_store, taxmeter, trial
from tests.storing import names

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "results", trial("a"), trial("b", month=12))


def report_of(store: Store, capsys: Captured, expected: ExitCode) -> str:
    before = {path: path.read_bytes() for path in store.layout.root.rglob("*") if path.is_file()}
    code = taxmeter("results", "verify", "--results", store.layout.root)
    assert {path: path.read_bytes() for path in store.layout.root.rglob("*") if path.is_file()} == before
    report = capsys.readouterr().out
    assert code == expected, report
    return report


def test_a_sound_store(store: Store, capsys: Captured) -> None:
    with store.writer() as writer:
        writer.append([trial("c")])
        report = report_of(store, capsys, ExitCode.OK)
        assert "3 trials, 1 systems, 1 environments, 2 campaigns; 1 of the trials are not sealed yet" in report
        assert "note: 1 journals are being written right now" in report
        assert report.splitlines()[-1].startswith("sound: ")


def test_every_flipped_bit_of_a_page_is_found(store: Store, capsys: Captured) -> None:
    part = store.layout.parts()[0]
    whole = part.read_bytes()
    column = pq.read_metadata(part).row_group(0).column(0)
    first = column.dictionary_page_offset or column.data_page_offset
    middle = first + column.total_compressed_size - 1
    part.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    report = report_of(store, capsys, ExitCode.TRIALS_FAILED)
    assert f"damaged: {part}: cannot be read" in report
    assert "restore it from a copy" in report
    assert "1 trials" in report


@pytest.mark.parametrize("length", [0, 3, 400])
def test_a_cut_file_is_found_in_each_table(store: Store, capsys: Captured, length: int) -> None:
    for table in ("trials", "systems", "environments", "campaigns"):
        path = sorted((store.layout.current / table).rglob("*.parquet"))[0]
        whole = path.read_bytes()
        path.write_bytes(whole[:length])
        assert f"damaged: {path}: cannot be read" in report_of(store, capsys, ExitCode.TRIALS_FAILED)
        path.write_bytes(whole)
    report_of(store, capsys, ExitCode.OK)


def test_a_row_that_is_there_twice_is_found(store: Store, capsys: Captured) -> None:
    part = store.layout.parts()[0]
    shutil.copy(part, part.with_name("part-copy.parquet"))
    report = report_of(store, capsys, ExitCode.TRIALS_FAILED)
    assert "1 rows are there more than once: a attempt 1" in report


def test_rows_that_refer_to_nothing_are_found(store: Store, capsys: Captured) -> None:
    with store.writer() as writer:
        writer.append([trial("lost", "campaign-of-nobody", system_id="5" * 32), trial("null", environment_id=None)])
    report = report_of(store, capsys, ExitCode.TRIALS_FAILED)
    assert "1 rows refer to campaign_id campaign-of-nobody, which `campaigns` does not have" in report
    assert f"1 rows refer to system_id {'5' * 32}, which `systems` does not have" in report
    assert "note: 1 rows have no environment_id" in report


def test_a_fingerprint_that_is_not_that_of_its_id_is_found(store: Store, capsys: Captured) -> None:
    path = store.layout.current / "systems" / f"{SYSTEM}.parquet"
    row = pq.ParquetFile(path).read().to_pylist()[0]
    document = json.loads(row["fingerprint"])
    document["kernel"]["release"] = "6.6.6"
    kept = system_row(SYSTEM, row["hw_id"], {}, document)
    pq.write_table(SYSTEMS.empty_table().from_pylist([kept], SYSTEMS), path)
    report = report_of(store, capsys, ExitCode.TRIALS_FAILED)
    assert f"system {SYSTEM}: its fingerprint has the system_id " in report
    assert "hw_id" not in report


def test_files_that_do_not_belong_there_are_found(store: Store, capsys: Captured) -> None:
    month = store.layout.parts()[0].parent
    for name in ("part-1.parquet.tmp", "notes.txt"):
        (month / name).write_text("x")
        report = report_of(store, capsys, ExitCode.TRIALS_FAILED)
        assert f"damaged: {month / name}: does not belong there" in report
        (month / name).unlink()
    pq.write_table(
        pq.ParquetFile(store.layout.parts()[0]).read().replace_schema_metadata(None), month / "part-2.parquet"
    )
    assert "says no schema version" in report_of(store, capsys, ExitCode.TRIALS_FAILED)


def test_another_schema_and_a_wrong_month_are_found(store: Store, capsys: Captured) -> None:
    part = store.layout.parts()[0]
    rows = pq.ParquetFile(part).read()
    pq.write_table(rows.replace_schema_metadata({"schema_version": "99"}), part)
    assert "has schema 99, and this taxmeter knows" in report_of(store, capsys, ExitCode.TRIALS_FAILED)
    pq.write_table(rows, part)
    other = part.parent.with_name("month=2025-01")
    other.mkdir()
    part.rename(other / part.name)
    assert "1 rows started in another month than 2025-01" in report_of(store, capsys, ExitCode.TRIALS_FAILED)


def test_a_damaged_journal_is_found_and_a_quarantine_listed(store: Store, capsys: Captured) -> None:
    writer = store.writer()
    writer.append([trial("c")])
    writer.append([trial("d")])
    segment = store.layout.segments()[0]
    content = segment.read_bytes()
    copy = segment.with_name(f"20250101T000000Z-{'0' * 32}.arrows")
    writer.close()
    copy.write_bytes(content[:-10])
    report = report_of(store, capsys, ExitCode.TRIALS_FAILED)
    assert f"damaged: {copy}: nothing readable after batch" in report
    assert "1 rows are whole" in report
    with store.writer():
        pass
    report = report_of(store, capsys, ExitCode.OK)
    assert f"note: {store.layout.quarantine / copy.name}: put aside earlier" in report


def test_a_campaign_that_lost_rows_is_found(store: Store, capsys: Captured) -> None:
    with store.writer() as writer:
        ended = trial("a")["started_at"]
        writer.finish_campaign(CAMPAIGNS[0], finished_at=ended, rows=3)
    report = report_of(store, capsys, ExitCode.TRIALS_FAILED)
    assert f"damaged: campaign {CAMPAIGNS[0]}: has 2 rows, and had 3 when it ended" in report


def test_compacting_merges_small_parts_and_then_has_nothing_to_do(store: Store, capsys: Captured) -> None:
    for name in ("c", "d"):
        with store.writer() as writer:
            writer.append([trial(name)])
    assert taxmeter("results", "compact", "--results", store.layout.root) == ExitCode.OK
    assert "2025-11: 3 rows were merged; 4 parts became 2, " in capsys.readouterr().out
    assert taxmeter("results", "compact", "--results", store.layout.root) == ExitCode.OK
    assert "nothing to merge: 2 parts, " in capsys.readouterr().out
    assert names(store) == ["a", "b", "c", "d"]
    report_of(store, capsys, ExitCode.OK)
