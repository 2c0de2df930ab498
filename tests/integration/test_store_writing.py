"""The store as writers, our reader and plain readers see it, at every moment."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import StoreError
from orchestrator.store import (
    TRIALS,
    Attempt,
    Store,
    Writer,
    campaign_row,
    environment_row,
    files,
    journal,
    sealing,
    system_row,
    writing,
)
from runners.contract import Status


def row(name: str, attempt: int = 1, status: str = "ok", month: int = 11, **more: object) -> dict[str, object]:
    return {
        "trial_id": name, "attempt": attempt, "status": status, "started_at": datetime(2026, month, 20, tzinfo=UTC),
        "trial_key": "k", "campaign_id": "c", "round": 1, "order": 1, "replicate": 0, "workload": "bert_base",
        "batch": 1, "backend": "eager", "backend_options": "{}", "dtype": "float32", "device": "cpu", "threads": 2,
        "seed": 0, "protocol": "{}", "method_version": 1, "contract_version": 1, "environment": "cpu",
        "samples_sync_s": [0.25, 0.5], **more,
    }  # fmt: skip


def plain_counts(store: Store) -> set[int]:
    """What readers without any code of ours count; a set of one number if they agree."""
    path = store.layout.trials
    if not store.layout.parts():
        return {ds.dataset(str(path), partitioning="hive").count_rows()}
    query = f"SELECT count(*) FROM read_parquet('{path}/**/*.parquet', hive_partitioning=true)"
    return {
        ds.dataset(str(path), partitioning="hive").to_table().num_rows,
        duckdb.sql(query).fetchall()[0][0],
        len(pd.read_parquet(path)),
        pl.scan_parquet(str(path), hive_partitioning=True).collect().height,
    }


def names(store: Store) -> list[str]:
    return sorted(store.trials(["trial_id"])["trial_id"].to_pylist())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "results")


def test_a_missing_store_is_empty(store: Store) -> None:
    assert store.trials().schema == TRIALS
    assert len(store.trials()) == len(store.campaigns()) == len(store.systems()) == len(store.environments()) == 0
    assert store.finished("c") == set()


def test_plain_readers_agree_before_during_and_after_a_seal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    during = []
    with store.writer() as writer:
        writer.append([row("a"), row("b", month=12)])
        assert plain_counts(store) == {0}
        assert names(store) == ["a", "b"]
        publish = files.publish

        def watched(layout: files.Layout, data: memoryview, target: Path) -> None:
            during.append((plain_counts(store), names(store)))
            publish(layout, data, target)
            during.append((plain_counts(store), names(store)))

        with monkeypatch.context() as patch:
            patch.setattr(sealing, "publish", watched)
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


def test_the_journal_is_sealed_by_itself_when_it_is_long(store: Store) -> None:
    with store.writer(seal_after_rows=2) as writer:
        for name in "abcde":
            writer.append([row(name)])
        assert plain_counts(store) == {4}
        assert names(store) == list("abcde")


def test_the_journal_is_sealed_by_itself_when_it_is_heavy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SEAL_BYTES", 100_000)
    with store.writer() as writer:
        for name in "abc":
            writer.append([row(name, samples_sync_s=[0.5] * 12_500)])
        assert plain_counts(store) == {2}


def test_the_same_attempt_counts_once_and_another_attempt_counts(store: Store) -> None:
    with store.writer() as writer:
        writer.append([row("a", 1, "infrastructure_error"), row("a", 1), row("b")])
        assert len(store.trials()) == 2
        writer.seal()
        writer.append([row("a", 1), row("a", 2), row("b")])
        assert len(store.trials()) == 3
    assert plain_counts(store) == {3}
    assert [report.duplicates for report in writer.reports] == [1, 2]
    assert store.attempts("c") == {"a": Attempt(2, Status.OK), "b": Attempt(1, Status.OK)}
    assert store.attempts("other") == {}


def test_finished_leaves_out_infrastructure_errors_and_other_campaigns(store: Store) -> None:
    with store.writer() as writer:
        writer.append([row("a"), row("b", 1, "infrastructure_error"), row("c", 1, "skipped"), row("d", 1, "oom")])
        writer.append([row("b", 2), row("e", campaign_id="other")])
        assert store.finished("c") == {"a", "b", "c", "d"}
        assert store.trials(["trial_id"], campaign_id="other")["trial_id"].to_pylist() == ["e"]
        writer.append([row("f", 1, "infrastructure_error")])
    assert store.finished("c") == {"a", "b", "c", "d"}
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


class CrashError(BaseException):
    """Stands for the death of the process."""


@pytest.mark.parametrize("step", range(10))
def test_a_crash_at_any_step_of_a_seal_is_repaired(store: Store, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    steps = iter(range(100))

    def dying(real: object) -> object:
        def call(*arguments: object) -> object:
            if next(steps) == step:
                raise CrashError
            return real(*arguments)

        return call

    writer = store.writer()
    writer.append([row("a"), row("b", month=12)])
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", dying(os.fsync))
        patch.setattr(files, "move", dying(files.move))
        patch.setattr(journal, "remove", dying(journal.remove))
        with pytest.raises(CrashError):
            writer.seal()
    assert names(store) == ["a", "b"]
    with store.writer() as after:
        after.append([row("a"), row("c")])
    assert names(store) == ["a", "b", "c"]
    assert plain_counts(store) == {3}
    assert list(store.layout.temporary.iterdir()) == []
    assert not store.layout.quarantine.exists()


def test_a_damaged_journal_is_put_aside_whole_and_reported(store: Store) -> None:
    writer = store.writer()
    for name in "abc":
        writer.append([row(name)])
    segment = store.layout.segments()[0]
    damaged = segment.read_bytes()[:-100]
    segment.write_bytes(damaged)
    writer._segment.close()
    (report,) = store.recover()
    assert (report.rows, report.segment) == (2, segment.name)
    assert "nothing readable after batch 2" in str(report.damage)
    assert report.quarantined is not None
    assert report.quarantined.read_bytes() == damaged
    assert names(store) == ["a", "b"]
    assert plain_counts(store) == {2}
    assert store.recover() == ()


def test_the_small_tables_are_written_once(store: Store) -> None:
    campaign = campaign_row(
        "c", datetime(2026, 11, 20, tzinfo=UTC), "quickstart",
        sweep_document="axes: {}", inventory_document="hosts: {}", plan_digest="p", planned_trials=3,
        taxmeter_version="0.1.0", git_commit=None,
    )  # fmt: skip
    environment = environment_row("e1", "cpu", {"torch": "2.13.0"}, {}, image_digest=None, lock_sha256="f0")
    with store.writer() as writer:
        system = system_row("s1", "h1", {"cpu_cores": 2}, {"cpu": {"cores": 2}})
        assert writer.put_system(system)
        assert not writer.put_system({**system, "cpu_cores": 3})
        assert writer.put_environment(environment)
        assert writer.put_campaign(campaign)
        with pytest.raises(StoreError, match="cannot be the name of a file"):
            writer.put_system({**system, "system_id": "../s1"})
    assert store.systems()["cpu_cores"].to_pylist() == [2]
    assert store.environments()["versions"].to_pylist() == ['{"torch":"2.13.0"}']
    assert store.campaigns().to_pylist() == [campaign]


def test_the_newest_campaign_of_a_plan_is_found(store: Store) -> None:
    with store.writer() as writer:
        for name, day, digest in (("old", 1, "p"), ("new", 3, "p"), ("middle", 2, "p"), ("other", 4, "q")):
            campaign = campaign_row(
                name, datetime(2026, 11, day, tzinfo=UTC), "quickstart", sweep_document="", inventory_document="",
                plan_digest=digest, planned_trials=1, taxmeter_version="0.1.0", git_commit="abc",
            )  # fmt: skip
            writer.put_campaign(campaign)
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


def test_an_unknown_column_cannot_be_read(store: Store) -> None:
    with pytest.raises(StoreError, match="no column latency_s"):
        store.trials(["latency_s"])


def test_an_older_part_without_a_column_reads_as_null(store: Store) -> None:
    with store.writer() as writer:
        writer.append([row("a")])
    part = store.layout.parts()[0]
    pq.write_table(pq.ParquetFile(part).read().drop_columns(["gpu_name"]), part)
    with store.writer() as writer:
        writer.append([row("b", gpu_name="H100")])
    assert sorted(store.trials(["gpu_name"])["gpu_name"].to_pylist(), key=str) == ["H100", None]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; only root can have one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def append_forever(writer: Writer, acknowledged: list[str]) -> None:
    for number in range(1000):
        writer.append([row(f"t{number:04d}", log_tail="x" * 4000)])
        acknowledged.append(f"t{number:04d}")


def test_a_full_disk_is_one_clear_line_and_loses_nothing(mounted: Path) -> None:
    store = Store.open(mounted / "results")
    writer = store.writer(seal_after_rows=10**6)
    ballast = mounted / "ballast"
    ballast.write_bytes(bytes(512 * 1024))
    acknowledged: list[str] = []
    with pytest.raises(StoreError, match=r"cannot write .*: No space left on device") as caught:
        append_forever(writer, acknowledged)
    assert "\n" not in str(caught.value)
    assert names(store) == acknowledged
    with pytest.raises(StoreError, match="No space left on device"):
        writer.close()
    assert names(store) == acknowledged
    ballast.unlink()
    with store.writer() as after:
        after.append([row("u")])
    assert names(store) == [*acknowledged, "u"]
    assert plain_counts(store) == {len(acknowledged) + 1}
    assert [report.damage for report in after.reports] == [None, None]


LIMITED = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_store_writing import row
from orchestrator.errors import StoreError
from orchestrator.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = Store.open(Path(sys.argv[1])).writer()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
count = 0
try:
    while True:
        writer.append([row(f"t{count:04d}")])
        count += 1
except StoreError as error:
    print(count, error)
"""


def test_a_write_that_the_system_refuses_takes_no_acknowledged_row_with_it(store: Store) -> None:
    command = [sys.executable, "-c", LIMITED, str(store.layout.root), str(Path(__file__).parent)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    count, message = done.stdout.split(maxsplit=1)
    assert "File too large" in message
    assert int(count) > 3
    (report,) = store.recover()
    assert (report.rows, report.damage) == (int(count), None)


def test_a_read_only_store_can_be_read_and_says_why_it_cannot_be_written(mounted: Path) -> None:
    store = Store.open(mounted / "results")
    with store.writer() as writer:
        writer.append([row("a")])
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    assert names(store) == ["a"]
    with pytest.raises(StoreError, match="Read-only file system"):
        store.writer()


def test_a_directory_that_cannot_be_made_is_one_clear_line() -> None:
    with pytest.raises(StoreError, match="cannot create the result store /proc/taxmeter: "):
        Store.open(Path("/proc/taxmeter")).writer()


def test_a_file_is_no_store(tmp_path: Path) -> None:
    tmp_path.joinpath("results").write_text("")
    with pytest.raises(StoreError, match="is no directory"):
        Store.open(tmp_path / "results")
