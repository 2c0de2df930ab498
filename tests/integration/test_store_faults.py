"""Disks that are full, read-only or refuse: one clear line, and nothing that was acknowledged is lost."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.store import Store, Writer
from orchestrator.store.storage.compaction import compact
from orchestrator.store.storage.generations import current_number
from tests.storing import campaign, fill, names, plain_counts, row


def append_forever(writer: Writer, acknowledged: list[str]) -> None:
    for number in range(5000):
        writer.append([row(f"t{number:04d}", log_tail="x" * 4000)])
        acknowledged.append(f"t{number:04d}")


def test_a_full_disk_is_one_clear_line_and_loses_nothing(small_disk: Path) -> None:
    store = Store.open(small_disk / "results")
    writer = store.writer(seal_after_rows=10**6)
    ballast = small_disk / "ballast"
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


def test_a_read_only_store_can_be_read_and_says_why_it_cannot_be_written(small_disk: Path) -> None:
    store = Store.open(small_disk / "results")
    with store.writer() as writer:
        writer.append([row("a")])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert names(store) == ["a"]
    with pytest.raises(StoreError, match="Read-only file system"):
        store.writer()


def test_a_seal_without_room_keeps_the_journal_and_is_done_when_there_is_room(small_disk: Path) -> None:
    store = Store.open(small_disk / "results")
    writer = store.writer()
    writer.append([row("a"), row("b", month=12)])
    # Room for the part of one month, not for the other.
    ballast = fill(small_disk, leave=36_000)
    with pytest.raises(StoreError, match=r"cannot seal .*: No space left on device") as caught:
        writer.seal()
    assert "\n" not in str(caught.value)
    assert names(store) == ["a", "b"]
    ballast.unlink()
    writer.append([row("c")])
    writer.close()
    assert [report.rows for report in writer.reports] == [1, 2]
    assert names(store) == ["a", "b", "c"]
    assert plain_counts(store) == {3}


def test_a_compaction_without_room_changes_nothing(small_disk: Path) -> None:
    store = Store.open(small_disk / "results")
    writer = store.writer()
    for number in range(12):
        writer.append([row(f"t{number:02d}")])
        writer.seal()
    ballast = fill(small_disk)
    with pytest.raises(StoreError, match=r"cannot compact .*No space left on device") as caught:
        compact(store.layout, full=True)
    assert "\n" not in str(caught.value)
    # The end of a writer compacts too; that it cannot is no reason to fail.
    writer.close()
    [problem] = writer.compaction_problems
    assert "No space left on device" in problem
    assert (len(store.layout.parts()), current_number(store.layout)) == (12, 1)
    assert plain_counts(store) == {12}
    ballast.unlink()
    assert compact(store.layout, full=True).parts_after == 1
    assert plain_counts(store) == {12}


def test_the_end_of_a_campaign_can_be_written_when_there_is_room(small_disk: Path) -> None:
    store = Store.open(small_disk / "results")
    with store.writer() as writer:
        writer.put_campaign(campaign("c"))
        ballast = fill(small_disk)
        with pytest.raises(StoreError, match=r"cannot write c to .*campaigns: No space left on device"):
            writer.finish_campaign("c", rows=1)
        assert store.campaigns()["rows"].to_pylist() == [None]
        ballast.unlink()
        writer.finish_campaign("c", rows=1)
    assert store.campaigns()["rows"].to_pylist() == [1]
