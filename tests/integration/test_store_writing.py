"""The store as writers, our reader and plain readers see it, at every moment."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import StoreError
from orchestrator.store import TRIALS, Attempt, Store, environment_row, system_row
from orchestrator.store.storage import generations, journal, seal
from orchestrator.store.storage import writer as writing
from orchestrator.store.storage.compaction import compact
from orchestrator.store.storage.layout import store_id
from orchestrator.store.storage.seal import recover
from runners.contract import Status
from tests.storing import CrashError, campaign, dying_at, names, plain_counts, row


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "results")


def test_a_missing_store_is_empty(store: Store) -> None:
    assert store.trials().schema == TRIALS
    assert len(store.trials()) == len(store.campaigns()) == len(store.systems()) == len(store.environments()) == 0
    assert store.attempts("c") == {}


def test_plain_readers_agree_before_during_and_after_a_seal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    during = []
    with store.writer() as writer:
        writer.append([row("a"), row("b", month=12)])
        assert plain_counts(store) == {0}
        assert names(store) == ["a", "b"]
        publish = generations.publish

        def watched(*arguments: Any) -> None:
            during.append((plain_counts(store), names(store)))
            publish(*arguments)
            during.append((plain_counts(store), names(store)))

        with monkeypatch.context() as patch:
            patch.setattr(seal, "publish", watched)
            writer.seal()
        assert during == [({n}, ["a", "b"]) for n in (0, 1, 1, 2)]
        writer.append([row("c")])
        assert plain_counts(store) == {2}
        assert names(store) == ["a", "b", "c"]
    assert plain_counts(store) == {3}
    assert store.layout.segments() == []
    assert list(store.layout.temporary.iterdir()) == []


def test_a_row_comes_back_as_it_was_with_units_and_sorted(store: Store) -> None:
    with store.writer() as writer:
        writer.append([row("b", backend="torchscript", reason=None), row("a", cpu_cores=2)])
    table = store.trials()
    assert table.schema.equals(TRIALS, check_metadata=True)
    first = table.to_pylist()[0]
    assert {key: value for key, value in first.items() if value is not None} == row("a", cpu_cores=2)
    part = pq.ParquetFile(store.layout.parts()[0])
    assert part.read(["backend"])["backend"].to_pylist() == ["eager", "torchscript"]
    samples = part.metadata.row_group(0).column(part.schema_arrow.names.index("samples_sync_s"))
    assert (samples.compression, "BYTE_STREAM_SPLIT" in samples.encodings) == ("ZSTD", True)
    assert part.schema_arrow.field("latency_sync_median_s").metadata == {b"unit": b"s", b"better": b"lower"}


def test_the_journal_is_sealed_by_itself_when_it_is_heavy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SEAL_BYTES", 100_000)
    with store.writer() as writer:
        for name in "abc":
            writer.append([row(name, samples_sync_s=[0.5] * 12_500)])
        assert plain_counts(store) == {2}


def test_the_same_attempt_counts_once_and_the_last_of_each_trial_is_known_campaign_by_campaign(store: Store) -> None:
    with store.writer() as writer:
        writer.append([row("a", 1, "infrastructure_error"), row("a", 1), row("b"), row("c", 1, "skipped")])
        assert len(store.trials()) == 3
        writer.seal()
        writer.append([row("a", 1), row("a", 2), row("b"), row("e", campaign_id="other")])
        assert len(store.trials()) == 5
        assert store.trials(["trial_id"], campaign_id="other")["trial_id"].to_pylist() == ["e"]
        expected = {"a": Attempt(2, Status.OK), "b": Attempt(1, Status.OK), "c": Attempt(1, Status.SKIPPED)}
        assert store.attempts("c") == expected
        writer.append([row("f", 1, "infrastructure_error")])
    assert plain_counts(store) == {6}
    assert [report.duplicates for report in writer.reports] == [1, 2]
    assert store.attempts("c") == {**expected, "f": Attempt(1, Status.INFRASTRUCTURE_ERROR)}
    assert store.attempts("other") == {"e": Attempt(1, Status.OK)}
    assert store.trials(["status"], campaign_id="other").to_pylist() == [{"status": "ok"}]


def test_two_writers_at_once_lose_nothing_and_repeat_nothing(store: Store) -> None:
    with store.writer(seal_after_rows=3) as one, store.writer(seal_after_rows=2) as two:
        for number in range(8):
            one.append([row(f"one{number}"), row(f"both{number}")])
            two.append([row(f"two{number}"), row(f"both{number}")])
            assert len(names(store)) == 3 * (number + 1)
    assert plain_counts(store) == {24}
    assert len(set(names(store))) == 24


def test_a_writer_goes_on_after_a_write_that_failed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    with store.writer() as writer:
        writer.append([row("a")])
        with monkeypatch.context() as patch:
            patch.setattr("os.fdatasync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.append([row("b")])
        writer.append([row("c")])
        assert names(store) == ["a", "c"]
    assert plain_counts(store) == {2}
    assert [report.damage for report in writer.reports] == [None, None]


SEALING = [(os, "fsync"), (generations, "move"), (generations, "write_file"), (seal, "remove")]


@pytest.mark.parametrize("step", range(9))
def test_a_crash_at_any_step_of_a_seal_is_repaired(store: Store, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    writer = store.writer()
    writer.append([row("a"), row("b", month=12)])
    with dying_at(monkeypatch, step, SEALING), pytest.raises(CrashError):
        writer.seal()
    assert names(store) == ["a", "b"]
    # What is sealed again may have been compacted meanwhile.
    compact(store.layout, full=True)
    with store.writer() as after:
        after.append([row("a"), row("c")])
    assert names(store) == ["a", "b", "c"]
    assert plain_counts(store) == {3}
    assert list(store.layout.temporary.iterdir()) == []
    assert not store.layout.quarantine.exists()


def zero_filled(data: bytes) -> bytes:
    """With nothing but zeros from the name of the last trial on."""
    place = data.index(b"trial-c")
    return data[:place] + bytes(len(data) - place)


@pytest.mark.parametrize(
    ("damage", "rows", "message"),
    [
        (lambda data: data[:-100], 2, "nothing readable after batch 2"),
        (zero_filled, 2, "batch 3 is altered"),
        (lambda data: data + bytes(4096), 3, "bytes after the last batch"),
    ],
    ids=["cut", "zero-filled", "zeros behind"],
)
def test_a_damaged_journal_is_put_aside_whole_and_reported(
    store: Store, damage: Callable[[bytes], bytes], rows: int, message: str
) -> None:
    writer = store.writer()
    for name in "abc":
        writer.append([row(f"trial-{name}")])
    segment = store.layout.segments()[0]
    damaged = damage(segment.read_bytes())
    segment.write_bytes(damaged)
    writer._segment.close()
    (report,) = recover(store.layout)
    assert (report.rows, report.segment) == (rows, segment.name)
    assert message in str(report.damage)
    assert report.quarantined is not None
    assert report.quarantined.read_bytes() == damaged
    assert names(store) == ["trial-a", "trial-b", "trial-c"][:rows]
    assert plain_counts(store) == {rows}
    assert recover(store.layout) == ()


def test_the_small_tables_are_written_once(store: Store) -> None:
    opened = campaign("c")
    environment = environment_row("e1", "cpu", {"torch": "2.13.0"}, {}, image_digest=None, lock_sha256="f0")
    with store.writer() as writer:
        system = system_row("s1", "h1", {"cpu_cores": 2}, {"cpu": {"cores": 2}})
        assert writer.put("systems", [system])
        assert not writer.put("systems", [{**system, "cpu_cores": 3}])
        assert writer.put("environments", [environment])
        assert writer.put_campaign(opened)
        with pytest.raises(StoreError, match=r"system_id is '../s1'; expected letters"):
            writer.put("systems", [{**system, "system_id": "../s1"}])
    assert store.systems()["cpu_cores"].to_pylist() == [2]
    assert store.environments()["versions"].to_pylist() == ['{"torch":"2.13.0"}']
    assert store.campaigns().to_pylist() == [{**opened, "origin_store": store_id(store.layout)}]


def test_of_campaigns_in_one_file_only_what_is_said_of_their_end_changes(store: Store) -> None:
    finished_at = datetime(2025, 11, 21, tzinfo=UTC)
    with store.writer() as writer:
        for name in ("a", "b", "c"):
            writer.put_campaign(campaign(name, plan=f'{{"of":"{name}"}}'))
    compact(store.layout, full=True)
    before = store.campaigns().sort_by("campaign_id").to_pylist()
    with store.writer() as writer:
        writer.finish_campaigns({"c": {"finished_at": finished_at}, "a": {"rows": 3}})
    assert len(store.layout.snapshot().files["campaigns"]) == 1
    after = store.campaigns().sort_by("campaign_id").to_pylist()
    assert after == [before[0] | {"rows": 3}, before[1], before[2] | {"finished_at": finished_at}]


def test_the_newest_campaign_of_a_plan_is_found(store: Store) -> None:
    with store.writer() as writer:
        for name, day, digest in (("old", 1, "p"), ("new", 3, "p"), ("middle", 2, "p"), ("other", 4, "q")):
            writer.put_campaign(campaign(name, started_at=datetime(2025, 11, day, tzinfo=UTC), plan_digest=digest))
    assert [store.newest_campaign(digest) for digest in ("p", "q", "r")] == ["new", "other", None]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latency_s": 1.0}, "unknown column latency_s"),
        ({"status": None}, "status is null"),
        ({"batch": "four"}, "batch: "),
        ({"batch": 2**40}, "batch: "),
    ],
)
def test_a_row_that_does_not_fit_is_refused_whole(store: Store, change: dict[str, object], message: str) -> None:
    with store.writer() as writer:
        with pytest.raises(StoreError, match=message) as caught:
            writer.append([row("a"), row("b", **change)])
        assert "\n" not in str(caught.value)
        assert names(store) == []


def test_batches_are_one_acknowledgement_and_in_the_current_schema(store: Store) -> None:
    batches = [pa.RecordBatch.from_pylist([row(name) for name in part], TRIALS) for part in ("ab", "", "c")]
    synchronised = []
    with store.writer() as writer:
        writer.append([row("x")])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal.os, "fdatasync", synchronised.append)
            writer.append_batches(batches)
        writer.append_batches([])
        writer.append_batches([batches[1]])
        assert len(synchronised) == 1
        with pytest.raises(StoreError, match="not in the current schema"):
            writer.append_batches([batches[0], batches[0].drop_columns(["gpu_name"])])
        assert names(store) == ["a", "b", "c", "x"]
    assert plain_counts(store) == {4}


def test_a_filter_never_shows_what_a_sealed_row_hides(store: Store) -> None:
    with store.writer() as writer:
        writer.append([row("a"), row("b", batch=8)])
        writer.seal()
        # Sent again after it was sealed, and not as it was.
        writer.append([row("a", batch=8), row("c", batch=8)])
        eight = store.trials(["trial_id"], filter=pc.field("batch") == 8)["trial_id"].to_pylist()
        assert sorted(eight) == ["b", "c"]
        both = store.trials(["batch"], campaign_id="c", filter=pc.field("trial_id").isin(["a", "c"]))
        assert sorted(both["batch"].to_pylist()) == [1, 8]


def test_the_more_were_sealed_the_more_rows_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SEAL_ROWS", 4)
    monkeypatch.setattr(writing, "MOST_SEAL_ROWS", 8)
    with store.writer() as writer:
        for number in range(101):
            writer.append([row(f"t{number:03d}")])
    assert [report.rows for report in writer.reports] == [4, 4, 4, 4, 4, 5, 6, 7, *[8] * 7, 7]
    assert plain_counts(store) == {101}


def test_a_row_that_was_sealed_long_ago_is_not_sealed_again(store: Store) -> None:
    with store.writer() as writer:
        writer.append([row("a"), row("b"), row("d", campaign_id="other")])
    compact(store.layout, full=True)
    with store.writer() as one, store.writer() as two:
        for writer in (one, two):
            writer.append([row("a"), row("c"), row("d", campaign_id="other")])
        one.seal()
        two.seal()
    assert [report.duplicates for report in (*one.reports, *two.reports)] == [2, 3]
    assert names(store) == ["a", "b", "c", "d"]
    assert plain_counts(store) == {4}


def test_a_directory_that_cannot_be_made_is_one_clear_line() -> None:
    with pytest.raises(StoreError, match="cannot create the result store /proc/taxmeter: "):
        Store.open(Path("/proc/taxmeter")).writer()
