"""`taxmeter results verify` finds what is damaged, says where, and what to do; and nothing is made of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import SYSTEMS, Store, campaign_totals, system_row
from orchestrator.store.schema import SCHEMAS
from runners.contract import Status
from tests.conftest import Captured
from tests.results import CAMPAIGNS, SYSTEM, make_store, taxmeter, told, trial
from tests.storing import names, rewrite


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "results", trial("a"), trial("b", month=12))


def report_of(store: Store, capsys: Captured, expected: ExitCode) -> str:
    before = {path: path.read_bytes() for path in store.layout.root.rglob("*") if path.is_file()}
    report = told(capsys, "results", "verify", "--results", store.layout.root, code=expected)
    assert {path: path.read_bytes() for path in store.layout.root.rglob("*") if path.is_file()} == before
    return report


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_sound_store(store: Store, capsys: Captured) -> None:
    with store.writer() as writer:
        odd = [-0.0, 0.0, None]
        writer.append([trial(f"c{number}", latency_sync_median_s=one) for number, one in enumerate(odd)])
        report = report_of(store, capsys, ExitCode.OK)
        assert "5 trials, 1 systems, 1 environments, 2 campaigns; 3 of the trials are not sealed yet" in report
        assert "note: 1 journals are being written right now" in report
        assert report.splitlines()[-1].startswith("sound: ")
    report_of(store, capsys, ExitCode.OK)


@pytest.mark.parametrize("table", SCHEMAS)
def test_each_changed_bit_and_each_cut_is_found(store: Store, capsys: Captured, table: str) -> None:
    path = sorted((store.layout.current / table).rglob("*.parquet"))[0]
    whole = path.read_bytes()
    changes: list[Callable[[], object]] = [lambda place=place: flip(path, place) for place in (0, 30, -9, -1)]  # type: ignore[misc]
    changes += [lambda length=length: path.write_bytes(whole[:length]) for length in (0, 3, 400)]  # type: ignore[misc]
    for change in changes:
        change()
        report = report_of(store, capsys, ExitCode.TRIALS_FAILED)
        assert f"damaged: {path}: its content is not that of its name; restore it from a copy" in report
        path.write_bytes(whole)
    report_of(store, capsys, ExitCode.OK)


def doubled(store: Store) -> None:
    part = store.layout.parts()[0]
    copy = part.with_name("copy.parquet")
    rewrite(Path(shutil.copy(part, copy)), pq.ParquetFile(part).read())


def in_another_month(store: Store) -> None:
    part = store.layout.parts()[0]
    other = part.parent.with_name("month=2025-01")
    other.mkdir()
    part.rename(other / part.name)


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Store], object]:
    def damage(store: Store) -> None:
        part = store.layout.parts()[0]
        rewrite(part, change(pq.ParquetFile(part).read()))

    return damage


def another_fingerprint(store: Store) -> None:
    [path] = (store.layout.current / "systems").iterdir()
    row = pq.ParquetFile(path).read().to_pylist()[0]
    document = json.loads(row["fingerprint"])
    document["kernel"]["release"] = "6.6.6"
    kept = system_row(SYSTEM, row["hw_id"], {}, document)
    rewrite(path, SYSTEMS.empty_table().from_pylist([kept], SYSTEMS))


def references(store: Store) -> None:
    with store.writer() as writer:
        writer.append([trial("lost", "campaign-of-nobody", system_id="5" * 32), trial("null", environment_id=None)])


def lost_rows(store: Store) -> None:
    with store.writer() as writer:
        writer.finish_campaign(CAMPAIGNS[0], finished_at=trial("a")["started_at"], rows=3)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (doubled, ["1 rows are there more than once: a attempt 1"]),
        (in_another_month, ["1 rows started in another month than 2025-01"]),
        (
            rewritten(lambda table: table.replace_schema_metadata({"schema_version": "99"})),
            ["has schema 99, and this taxmeter knows"],
        ),
        (rewritten(lambda table: table.replace_schema_metadata(None)), ["says no schema version"]),
        (rewritten(lambda table: table.drop_columns(["status"])), ["lacks the column status"]),
        (another_fingerprint, [f"system {SYSTEM}: its fingerprint has the system_id "]),
        (
            references,
            [
                "1 rows refer to campaign_id campaign-of-nobody, which `campaigns` does not have",
                f"1 rows refer to system_id {'5' * 32}, which `systems` does not have",
                "note: 1 rows have no environment_id",
            ],
        ),
        (lost_rows, [f"damaged: campaign {CAMPAIGNS[0]}: has 2 rows, and had 3 when it ended"]),
        (
            lambda store: (store.layout.parts()[0].parent / "notes.txt").write_text("x"),
            ["notes.txt: does not belong there"],
        ),
    ],
)
def test_what_does_not_fit_together_is_found(
    store: Store, capsys: Captured, damage: Callable[[Store], object], expected: list[str]
) -> None:
    damage(store)
    report = report_of(store, capsys, ExitCode.TRIALS_FAILED)
    assert [line for line in expected if line not in report] == []
    assert "hw_id 5" not in report


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


def test_of_what_is_damaged_nothing_is_made(store: Store, tmp_path: Path, capsys: Captured) -> None:
    with store.writer() as writer:
        writer.append([trial("c", month=12)])
    part = store.layout.parts()[-1]
    # In the footer, where no checksum of Parquet is
    flip(part, part.read_bytes().rindex(b"parquet-cpp-arrow"))
    here = make_store(tmp_path / "here", trial("mine"))
    out, place = tmp_path / "out", tmp_path / "pushed"
    before = set(tmp_path.iterdir())
    for command in (
        ["merge", store.layout.root, "--results", here.layout.root],
        *(["export", "--output", f"{out}{suffix}", "--results", store.layout.root] for suffix in ("", ".csv")),
        ["push", place.as_uri(), "--results", store.layout.root],
        ["compact", "--results", store.layout.root],
    ):
        assert taxmeter("results", *command) == ExitCode.TRIALS_FAILED
        [said] = capsys.readouterr().err.splitlines()
        assert f"{part} is damaged" in said
    assert list(store.layout.temporary.iterdir()) == []
    assert names(here) == ["mine"]
    assert set(tmp_path.iterdir()) - {place} == before
    assert not (place / "latest.json").exists()
    assert not list(place.rglob(part.name))
    assert names(store) == ["a", "b", "c"]


@pytest.mark.parametrize("more", [[], ["--anonymise"]])
def test_an_export_of_some_rows_is_no_damage(store: Store, tmp_path: Path, capsys: Captured, more: list[str]) -> None:
    with store.writer() as writer:
        totals = campaign_totals(trial("a")["started_at"], [Status.OK] * 2, rows=2)  # type: ignore[arg-type]
        writer.finish_campaign(CAMPAIGNS[0], **totals)
    output = tmp_path / "some"
    arguments = ("results", "export", "--results", store.layout.root, "--output", output)
    assert taxmeter(*arguments, "--where", "trial_id = 'a'", *more) == ExitCode.OK
    said = told(capsys, "results", "verify", "--results", output)
    assert "note: an export of some trials only: 1 campaigns had more rows" in said
    (output / "EXPORT.json").unlink()
    assert taxmeter("results", "verify", "--results", output) == ExitCode.TRIALS_FAILED


def test_rows_that_are_there_twice_are_merged_and_counted_once(store: Store, tmp_path: Path, capsys: Captured) -> None:
    doubled(store)
    said = told(capsys, "results", "merge", store.layout.root, "--results", tmp_path / "here")
    assert "2 rows added, 1 were there already" in said
    assert names(Store.open(tmp_path / "here")) == ["a", "b"]


def test_compacting_merges_small_parts_and_then_has_nothing_to_do(store: Store, capsys: Captured) -> None:
    for name in ("c", "d"):
        with store.writer() as writer:
            writer.append([trial(name)])
    compact = ("results", "compact", "--results", store.layout.root)
    assert "2025-11: 3 rows were merged; 4 parts became 2, " in told(capsys, *compact)
    assert "nothing to merge: 2 parts, " in told(capsys, *compact)
    assert names(store) == ["a", "b", "c", "d"]
    report_of(store, capsys, ExitCode.OK)
