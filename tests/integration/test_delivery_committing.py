"""The thread that writes the store: each row once, many with one wait for the disk, and what it does when there is none."""

import errno
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.delivery import Answer, Committer, Outcome, ParcelError, RowKey, Rows, encode_rows, parcels
from orchestrator.delivery.parcels import decode_parcel
from orchestrator.errors import StoreError
from orchestrator.store import TRIALS, Store
from tests.storing import names, row


def parcel(name: str, **more: Any) -> bytes:
    return encode_rows(Rows(trials=[row(name, **more)]))


class Bench:
    """A store with a committer, and everything that it told."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.store = Store.open(directory / "results")
        self.told: list[str] = []
        self.writer = self.store.writer()
        self.committer = Committer(self.store, self.writer, self.told.append, **options)
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def submit(self, *parcels: bytes) -> None:
        for one in parcels:
            self.committer.submit(one, self.answers.put)

    def answered(self, number: int) -> list[Outcome]:
        return [self.answers.get(timeout=20).outcome for _ in range(number)]

    def hold(self, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
        """Makes the writer wait in its first write until the event is set."""
        entered, go = threading.Event(), threading.Event()
        append = self.writer.append_batches

        def waiting(batches: Any) -> None:
            entered.set()
            assert go.wait(20)
            append(batches)

        monkeypatch.setattr(self.writer, "append_batches", waiting)
        self.submit(parcel("first"))
        assert entered.wait(20)
        return go


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    one = Bench(tmp_path)
    yield one
    one.committer.close()


def test_a_row_is_stored_once_however_often_it_comes(bench: Bench) -> None:
    bench.submit(parcel("a"), parcel("b"), parcel("a"))
    assert sorted(one.name for one in bench.answered(3)) == ["DUPLICATE", "STORED", "STORED"]
    assert bench.committer.deliver(parcel("b")).outcome is Outcome.DUPLICATE
    assert names(bench.store) == ["a", "b"]
    assert bench.told == []


def test_what_an_earlier_run_stored_is_known(bench: Bench, tmp_path: Path) -> None:
    bench.committer.commit(Rows(trials=[row("a"), row("b")]))
    bench.committer.close()
    bench.writer.close()
    later = Bench(tmp_path)
    assert not later.committer.is_stored(RowKey("c", "a", 1))
    assert later.committer.deliver(parcel("a")) == Answer(Outcome.DUPLICATE)
    assert later.committer.is_stored(RowKey("c", "b", 1))
    assert not later.committer.is_stored(RowKey("c", "a", 2))
    assert later.told == []
    later.committer.close()
    assert names(later.store) == ["a", "b"]


@pytest.mark.parametrize("sealed", [False, True])
def test_of_two_records_that_differ_the_first_stays_and_it_is_told(bench: Bench, tmp_path: Path, sealed: bool) -> None:
    bench.committer.deliver(parcel("a", reason="first"))
    if sealed:
        bench.committer.close()
        bench.writer.close()
        bench = Bench(tmp_path)
    answer = bench.committer.deliver(parcel("a", reason="second"))
    assert answer.outcome is Outcome.DUPLICATE
    bench.committer.close()
    assert bench.told == ["two records of a/1 say different things; the first stays in the store"]
    assert bench.store.trials(["reason"])["reason"].to_pylist() == ["first"]


def test_the_same_row_in_another_parcel_is_no_conflict(bench: Bench) -> None:
    bench.committer.deliver(parcel("a"))
    answer = bench.committer.commit(Rows(trials=[row("b"), row("a")]))
    assert answer == Answer(Outcome.STORED)
    assert bench.committer.commit(Rows(trials=[row("a"), row("b")])) == Answer(Outcome.DUPLICATE)
    assert names(bench.store) == ["a", "b"]
    assert bench.told == []


def test_two_attempts_are_two_rows(bench: Bench) -> None:
    bench.committer.commit(Rows(trials=[row("a", attempt=1), row("a", attempt=2)]))
    assert names(bench.store) == ["a", "a"]


def test_what_waits_for_the_disk_shares_the_next_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    synchronised = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (synchronised.append(descriptor), real(descriptor))[1])
    go = bench.hold(monkeypatch)
    bench.submit(*(parcel(f"t{number:02d}") for number in range(50)))
    go.set()
    assert bench.answered(51) == [Outcome.STORED] * 51
    assert len(synchronised) == 2
    assert len(names(bench.store)) == 51


def test_nothing_is_answered_before_it_is_on_the_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    go = bench.hold(monkeypatch)
    with pytest.raises(queue.Empty):
        bench.answers.get(timeout=0.2)
    assert not bench.committer.is_stored(RowKey("c", "first", 1))
    go.set()
    assert bench.answered(1) == [Outcome.STORED]
    assert bench.committer.is_stored(RowKey("c", "first", 1))


def test_a_trial_is_stored_after_what_it_refers_to(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda content: (order.append(name), real(content))[1]

    for name in ("put_system", "put_environment", "append_batches"):
        monkeypatch.setattr(bench.writer, name, noting(name, getattr(bench.writer, name)))
    system = {"system_id": "s", "hw_id": "h", "fingerprint": "{}"}
    environment = {"environment_id": "e", "environment": "cpu", "versions": "{}", "facts": "{}"}
    for name in ("a", "b"):
        bench.committer.commit(Rows(trials=[row(name)], systems=[system], environments=[environment]))
    assert order == ["put_system", "put_environment", "append_batches", "append_batches"]
    assert bench.store.systems()["system_id"].to_pylist() == ["s"]
    assert bench.store.environments()["environment_id"].to_pylist() == ["e"]


def test_nonsense_is_refused_and_the_rest_is_stored(bench: Bench) -> None:
    bench.submit(parcel("a"), b"nonsense", parcel("b"))
    assert sorted(one.name for one in bench.answered(3)) == ["REFUSED", "STORED", "STORED"]
    with pytest.raises(ParcelError, match="batch"):
        bench.committer.commit(Rows(trials=[row("c", batch="many")]))
    assert names(bench.store) == ["a", "b"]


def test_of_parcels_that_come_together_only_the_bad_ones_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lax = pa.schema([field.with_nullable(True) for field in TRIALS])
    with monkeypatch.context() as patch:
        patch.setattr(parcels, "batch_of", lambda rows, schema: pa.RecordBatch.from_pylist(rows, lax))
        incomplete = parcel("incomplete", seed=None)
    no_text = parcel("no text", reason="MARK").replace(b"MARK", b"MAR\xc3")
    values = decode_parcel(parcel("outside")).packed.column(0).values
    offsets = bytes(values.buffers()[1].slice(0, 4 * (len(values) + 1)))
    outside = parcel("outside").replace(offsets, offsets[:-4] + (10**6).to_bytes(4, "little"))
    go = bench.hold(monkeypatch)
    bench.submit(parcel("a"), incomplete, parcel("b"), no_text, parcel("c"), outside, parcel("d"))
    refused = [bench.answers.get(timeout=20) for _ in range(3)]
    go.set()
    assert bench.answered(5) == [Outcome.STORED] * 5
    assert [one.outcome for one in refused] == [Outcome.REFUSED] * 3
    assert "seed is null" in refused[0].reason
    assert all("rows cannot be read" in one.reason for one in refused[1:])
    assert names(bench.store) == ["a", "b", "c", "d", "first"]


def test_when_it_is_closed_what_waits_is_stored_and_nothing_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    go = bench.hold(monkeypatch)
    bench.submit(parcel("a"))
    closing = threading.Thread(target=bench.committer.close)
    closing.start()
    while not bench.committer._closed:
        time.sleep(0.01)
    bench.submit(parcel("late"))
    go.set()
    closing.join(20)
    assert sorted(one.name for one in bench.answered(3)) == ["LATER", "STORED", "STORED"]
    assert names(bench.store) == ["a", "first"]
    with pytest.raises(StoreError, match="the campaign has ended"):
        bench.committer.commit(Rows(trials=[row("late")]))


def broken(error: BaseException) -> Callable[[Any], None]:
    def append(batches: Any) -> None:
        raise error

    return append


def disk_error(number: int) -> StoreError:
    error = StoreError("cannot write the journal")
    error.__cause__ = OSError(number, os.strerror(number))
    return error


def test_a_broken_disk_is_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.writer, "append_batches", broken(disk_error(errno.EIO)))
    bench.submit(parcel("a"))
    assert bench.answers.get(timeout=20) == Answer(Outcome.LATER, "cannot write the journal")
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot write the journal"):
            bench.committer.commit(Rows(trials=[row("b")]))
    assert str(bench.committer.failure) == "cannot write the journal"


def test_a_defect_leaves_nobody_waiting(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: seen.append(arguments.exc_type))
    monkeypatch.setattr(bench.writer, "append_batches", broken(TypeError("a defect")))
    bench.submit(parcel("a"))
    assert bench.answered(1) == [Outcome.LATER]
    with pytest.raises(StoreError, match="the writer of the store ended: TypeError: a defect"):
        bench.committer.commit(Rows(trials=[row("b")]))
    bench.committer.close()
    assert seen == [TypeError]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB; only root can have one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(directory: Path) -> Path:
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while os.statvfs(directory).f_bavail:
            file.write(bytes(4096))
    return ballast


def long_row(name: str) -> dict[str, object]:
    return row(name, log_tail="x" * 20_000)


def test_a_full_disk_is_waited_for(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.delivery.committing.RETRY_S", 0.1)
    bench = Bench(mounted)
    bench.committer.commit(Rows(trials=[long_row("a")]))
    ballast = fill(mounted)
    bench.submit(encode_rows(Rows(trials=[long_row("b")])))
    assert bench.answered(1) == [Outcome.LATER]
    waiting = threading.Thread(target=bench.committer.commit, args=(Rows(trials=[long_row("c")]),))
    waiting.start()
    waiting.join(1.0)
    assert waiting.is_alive()
    assert names(bench.store) == ["a"]
    time.sleep(0.2)
    bench.submit(encode_rows(Rows(trials=[long_row("a")])))  # needs no room, and so proves none
    assert len(bench.answered(1)) == len(bench.told) == 1
    ballast.unlink()
    waiting.join(20)
    assert bench.committer.deliver(encode_rows(Rows(trials=[long_row("b")]))).outcome is Outcome.STORED
    bench.committer.close()
    bench.writer.close()
    assert names(bench.store) == ["a", "b", "c"]
    assert [text.split(":")[0] for text in bench.told] == [
        f"the disk of {bench.store.layout.root} is full",
        "there is room for results again",
    ]
    assert "Ctrl-C ends it and --resume goes on" in bench.told[0]


def test_nobody_waits_for_room_for_ever(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.delivery.committing.RETRY_S", 0.1)
    bench = Bench(mounted, room_wait_s=0.5)
    bench.committer.commit(Rows(trials=[long_row("a")]))
    ballast = fill(mounted)
    with pytest.raises(StoreError, match=r"was full for \d+ s; make room and run the same command again"):
        bench.committer.commit(Rows(trials=[long_row("b")]))
    bench.committer.close()
    ballast.unlink()
    bench.writer.close()
    assert names(bench.store) == ["a"]
