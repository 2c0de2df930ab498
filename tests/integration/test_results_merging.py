"""`taxmeter results merge`: two labs become one, and no row is there twice."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.errors import ExitCode, StoreError
from orchestrator.store import Row, Store, campaign_totals, open_store
from orchestrator.store import merge as merging
from orchestrator.store.merge import MergeReport, merge
from orchestrator.store.storage import generations
from orchestrator.store.storage.generations import publish
from orchestrator.store.storage.seal import without_duplicates
from orchestrator.store.storage.writer import Writer
from runners.contract import Status
from tests.conftest import Captured, Patch
from tests.results import CAMPAIGNS, make_store, put_dimensions, refused, taxmeter, told, trial
from tests.storing import campaign, names, plain_counts


def rows_of(directory: Path) -> list[Row]:
    table = open_store(directory).trials().arrow()
    assert len(without_duplicates(table)) == len(table)
    return sorted(table.to_pylist(), key=lambda row: (row["trial_id"], row["attempt"]))


def merged(here: Path, there: Path) -> MergeReport:
    return merge(Store.open(here), open_store(there).view())


def test_a_merge_takes_what_is_missing_and_changes_nothing_over_there(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    make_store(here, trial("a"), trial("b", attempt=1))
    make_store(there, trial("b", attempt=1), trial("b", attempt=2), trial("c", CAMPAIGNS[1], month=12, cosine=0.5))
    before = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    report = merged(here, there)
    assert (report.added, report.already, report.conflicts) == (2, 1, [])
    assert [(row["trial_id"], row["attempt"]) for row in rows_of(here)] == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]
    assert rows_of(here)[-1] == rows_of(there)[-1]
    assert plain_counts(Store.open(here)) == {4}
    assert {path: path.read_bytes() for path in there.rglob("*") if path.is_file()} == before


def test_a_merge_into_nothing_makes_a_whole_store_and_another_adds_nothing(tmp_path: Path, capsys: Captured) -> None:
    make_store(tmp_path / "there", *(trial(f"t{number}", samples_sync_s=[number / 3]) for number in range(50)))
    for expected in (
        "50 rows added, 0 were there already\nadded: 1 systems, 1 environments, 2 campaigns",
        "0 rows added, 50 were there already",
    ):
        assert expected in told(capsys, "results", "merge", tmp_path / "there", "--results", tmp_path / "new")
    assert len(rows_of(tmp_path / "new")) == 50
    assert taxmeter("results", "verify", "--results", tmp_path / "new") == ExitCode.OK
    for table in ("systems", "environments", "campaigns"):
        there, new = (getattr(open_store(tmp_path / name), table)().arrow() for name in ("there", "new"))
        expected = [row | ({"origin": "merged"} if table == "campaigns" else {}) for row in there.to_pylist()]
        assert sorted(map(str, new.to_pylist())) == sorted(map(str, expected))


def test_rows_with_another_content_are_named_and_not_taken(tmp_path: Path, capsys: Captured) -> None:
    make_store(tmp_path / "here", trial("a", samples_sync_s=[0.25]), trial("b"), trial("c", reason=None))
    make_store(tmp_path / "there", trial("a", samples_sync_s=[0.75]), trial("b"), trial("c", reason="x"), trial("d"))
    assert taxmeter("results", "merge", tmp_path / "there", "--results", tmp_path / "here") == ExitCode.TRIALS_FAILED
    captured = capsys.readouterr()
    assert "1 rows added, 1 were there already" in captured.out
    said = [f"not taken: trial {name}, attempt 1, has another content" for name in ("a", "c")]
    assert captured.err.splitlines() == said
    assert rows_of(tmp_path / "here")[0]["samples_sync_s"] == [0.25]


def test_an_unsealed_row_over_there_and_one_here_count_as_well(tmp_path: Path) -> None:
    there, here = Store.open(tmp_path / "there"), Store.open(tmp_path / "here")
    with there.writer() as theirs, here.writer() as ours:
        put_dimensions(theirs)
        theirs.append([trial("a"), trial("b")])
        ours.append([trial("b")])
        report = merged(tmp_path / "here", tmp_path / "there")
        assert (report.added, report.already) == (1, 1)
        assert names(there) == ["a", "b"]
    assert names(here) == ["a", "b"]


def test_a_campaign_that_went_on_over_there_brings_its_totals(tmp_path: Path) -> None:
    make_store(tmp_path / "there", trial("a"))
    shutil.copytree(tmp_path / "there", tmp_path / "here", symlinks=True)
    with Store.open(tmp_path / "there").writer() as writer:
        writer.append([trial("b")])
        ended = datetime(2025, 11, 21, tzinfo=UTC)
        writer.finish_campaign(CAMPAIGNS[0], **campaign_totals(ended, [Status.OK, Status.OK], rows=2))
    assert merged(tmp_path / "here", tmp_path / "there").continued == 1
    assert merged(tmp_path / "here", tmp_path / "there").continued == 0
    first = open_store(tmp_path / "here").campaigns(f"campaign_id = '{CAMPAIGNS[0]}'", ["rows", "trials_ok"])
    assert first.arrow().to_pylist() == [{"rows": 2, "trials_ok": 2}]
    assert merged(tmp_path / "there", tmp_path / "here").conflicts == []


def test_a_store_is_not_merged_with_itself(tmp_path: Path, capsys: Captured) -> None:
    make_store(tmp_path / "here", trial("a"))
    (tmp_path / "link").symlink_to("here")
    said = refused(capsys, "results", "merge", tmp_path / "link", "--results", tmp_path / "here")
    assert "is the store itself" in said


def test_a_merge_that_is_killed_anywhere_is_completed_by_the_next(tmp_path: Path, monkeypatch: Patch) -> None:
    there = Store.open(tmp_path / "there")
    with there.writer() as writer:
        put_dimensions(writer)
        for part in range(3):
            writer.append([trial(f"{part}-{number}", month=9 + part) for number in range(5)])
            writer.seal()
    monkeypatch.setattr(merging, "_BATCH_ROWS", 2)
    append = Writer.append_batches
    for step in (0, 1, 4, 7, 9):
        calls = iter(range(100))

        def dying(writer: Writer, batches: object, step: int = step, calls: object = calls) -> None:
            if next(calls) == step:  # type: ignore[call-overload]
                raise StoreError("killed")
            append(writer, batches)  # type: ignore[arg-type]

        here = tmp_path / f"here-{step}"
        with monkeypatch.context() as patch:
            patch.setattr(Writer, "append_batches", dying)
            try:
                merged(here, tmp_path / "there")
            except StoreError:
                assert len(rows_of(here)) == len(names(Store.open(here)))
        report = merged(here, tmp_path / "there")
        assert report.added + report.already == 15
        assert report.conflicts == []
        assert rows_of(here) == rows_of(tmp_path / "there")


def test_a_thousand_campaigns_are_merged_with_one_write_of_each_small_table(tmp_path: Path, monkeypatch: Patch) -> None:
    there = Store.open(tmp_path / "there")
    ids = [f"many-{number:04d}" for number in range(1000)]
    with there.writer() as writer:
        put_dimensions(writer)
        assert writer.put("campaigns", [campaign(name) for name in ids]) == 1000
        writer.append([trial(f"t-{name}", name) for name in ids])
    published = []
    monkeypatch.setattr(generations, "publish", lambda *given: (published.append(given[2]), publish(*given))[1])
    report = merged(tmp_path / "here", tmp_path / "there")
    assert (report.added, report.small["campaigns"]) == (1000, 1002)
    assert published == ["systems", "environments", "campaigns"]
