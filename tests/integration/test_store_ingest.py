"""The thread that writes the store: each row once, many with one wait for the disk, and what it does when there is none."""

import errno
import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.store import Store
from orchestrator.store.ingest import Answer, Ingest, Outcome, RowKey
from orchestrator.store.rows import Rows
from tests.recording import wait_for
from tests.storing import fill, names, row


def rows(*trials: str, **more: Any) -> Rows:
    return Rows(trials=[row(name, **more) for name in trials], size=1000)


class Bench:
    """A store with its ingest, and everything that it told."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.store = Store.open(directory / "results")
        self.told: list[str] = []
        self.writer = self.store.writer()
        self.ingest = Ingest(self.store, self.writer, self.told.append, **options)
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def submit(self, *several: Rows) -> None:
        for some in several:
            self.ingest.submit(some, self.answers.put)

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
        self.submit(rows("first"))
        assert entered.wait(20)
        return go


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.ingest.close()


def test_a_row_is_stored_once_however_often_it_comes(bench: Bench) -> None:
    bench.submit(rows("a"), rows("b"), rows("a"))
    assert sorted(outcome.name for outcome in bench.answered(3)) == ["DUPLICATE", "STORED", "STORED"]
    assert bench.ingest.commit(rows("b")) == Answer(Outcome.DUPLICATE)
    assert bench.ingest.commit(rows("c", "a")) == Answer(Outcome.STORED)
    assert bench.ingest.commit(rows("a", "b")) == Answer(Outcome.DUPLICATE)
    bench.ingest.commit(Rows(trials=[row("a", attempt=2)]))
    assert names(bench.store) == ["a", "a", "b", "c"]
    assert bench.told == []
    assert bench.ingest.waiting_bytes == 0


def test_what_an_earlier_run_stored_is_known(bench: Bench, tmp_path: Path) -> None:
    bench.ingest.commit(rows("a", "b"))
    bench.ingest.close()
    bench.writer.close()
    later = Bench(tmp_path)
    assert not later.ingest.is_stored(RowKey("c", "a", 1))
    assert later.ingest.commit(rows("a")) == Answer(Outcome.DUPLICATE)
    assert later.ingest.is_stored(RowKey("c", "b", 1))
    assert not later.ingest.is_stored(RowKey("c", "a", 2))
    later.ingest.close()
    assert names(later.store) == ["a", "b"]


@pytest.mark.parametrize("sealed", [False, True])
def test_of_two_records_that_differ_the_first_stays_and_it_is_told(bench: Bench, tmp_path: Path, sealed: bool) -> None:
    bench.ingest.commit(rows("a", reason="first"))
    if sealed:
        bench.ingest.close()
        bench.writer.close()
        bench = Bench(tmp_path)
    answer = bench.ingest.commit(rows("a", reason="second"))
    bench.ingest.close()
    text = "two records of a/1 say different things; the first stays in the store"
    assert (answer, bench.told) == (Answer(Outcome.DUPLICATE, text), [text])
    assert bench.store.trials(["reason"])["reason"].to_pylist() == ["first"]


def test_what_waits_for_the_disk_is_not_answered_before_and_shares_the_next_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronised = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (synchronised.append(descriptor), real(descriptor))[1])
    go = bench.hold(monkeypatch)
    bench.submit(*(rows(f"t{number:02d}") for number in range(50)))
    assert bench.ingest.waiting_bytes == 51_000
    with pytest.raises(queue.Empty):
        bench.answers.get(timeout=0.2)
    assert not bench.ingest.is_stored(RowKey("c", "first", 1))
    go.set()
    assert bench.answered(51) == [Outcome.STORED] * 51
    assert bench.ingest.is_stored(RowKey("c", "first", 1))
    assert len(synchronised) == 2
    assert len(names(bench.store)) == 51


def test_a_trial_is_stored_after_what_it_refers_to(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (order.append(given[0] if len(given) > 1 else "trials"), real(*given))[1]

    for name in ("put", "append_batches"):
        monkeypatch.setattr(bench.writer, name, noting(getattr(bench.writer, name)))
    system = {"system_id": "s", "hw_id": "h", "fingerprint": "{}"}
    environment = {"environment_id": "e", "environment": "cpu", "versions": "{}", "facts": "{}"}
    for name in ("a", "b"):
        bench.ingest.commit(Rows([row(name)], [system], [environment]))
    assert order == ["systems", "environments", "trials"] * 2
    assert bench.store.systems()["system_id"].to_pylist() == ["s"]
    assert bench.store.environments()["environment_id"].to_pylist() == ["e"]


def test_of_rows_that_come_together_only_the_bad_ones_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = bench.hold(monkeypatch)
    bench.submit(rows("a"), rows("many", batch="many"), rows("b"), rows("incomplete", seed=None), rows("c"))
    go.set()
    answers = [bench.answers.get(timeout=20) for _ in range(6)]
    refused = sorted(answer.reason for answer in answers if answer.outcome is Outcome.REFUSED)
    assert [outcome.outcome for outcome in answers].count(Outcome.STORED) == 4
    assert len(refused) == 2
    assert "batch" in refused[0]
    assert "seed is null" in refused[1]
    with pytest.raises(StoreError, match="batch"):
        bench.ingest.commit(rows("d", batch="many"))
    assert names(bench.store) == ["a", "b", "c", "first"]


def test_when_it_is_closed_what_waits_is_stored_and_nothing_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    go = bench.hold(monkeypatch)
    bench.submit(rows("a"))
    closing = threading.Thread(target=bench.ingest.close)
    closing.start()
    wait_for(bench.ingest._is_closed.is_set)
    bench.submit(rows("late"))
    go.set()
    closing.join(20)
    assert sorted(outcome.name for outcome in bench.answered(3)) == ["LEFT", "STORED", "STORED"]
    assert names(bench.store) == ["a", "first"]
    with pytest.raises(StoreError, match="the campaign has ended"):
        bench.ingest.commit(rows("late"))


def broken(error: BaseException) -> Callable[[Any], None]:
    def append(batches: Any) -> None:
        raise error

    return append


def test_a_broken_disk_is_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    error = StoreError("cannot write the journal")
    error.__cause__ = OSError(errno.EIO, os.strerror(errno.EIO))
    monkeypatch.setattr(bench.writer, "append_batches", broken(error))
    bench.submit(rows("a"))
    assert bench.answers.get(timeout=20) == Answer(Outcome.LEFT, "cannot write the journal")
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot write the journal"):
            bench.ingest.commit(rows("b"))
    assert str(bench.ingest.failure) == "cannot write the journal"


def test_a_defect_leaves_nobody_waiting(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: seen.append(arguments.exc_type))
    monkeypatch.setattr(bench.writer, "append_batches", broken(TypeError("a defect")))
    bench.submit(rows("a"))
    assert bench.answered(1) == [Outcome.LEFT]
    with pytest.raises(StoreError, match="the writer of the store ended: TypeError: a defect"):
        bench.ingest.commit(rows("b"))
    bench.ingest.close()
    assert seen == [TypeError]


LONG = "x" * 20_000


def test_a_full_disk_is_waited_for(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.ingest.RETRY_S", 0.1)
    bench = Bench(small_disk)
    bench.ingest.commit(rows("a", log_tail=LONG))
    ballast = fill(small_disk)
    bench.submit(rows("b", log_tail=LONG))
    wait_for(lambda: bench.ingest.is_full)
    bench.submit(rows("c", log_tail=LONG))
    assert bench.ingest.waiting_bytes == 2000
    assert names(bench.store) == ["a"]
    ballast.unlink()
    assert bench.answered(2) == [Outcome.STORED] * 2
    assert not bench.ingest.is_full
    bench.ingest.close()
    bench.writer.close()
    assert names(bench.store) == ["a", "b", "c"]
    assert [text.split(":")[0] for text in bench.told] == [
        f"the disk of {bench.store.layout.root} is full",
        "there is room for results again",
    ]
    assert "Ctrl-C ends it and --resume goes on" in bench.told[0]


@pytest.mark.parametrize("is_closed", [False, True])
def test_nobody_waits_for_room_for_ever(small_disk: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool) -> None:
    monkeypatch.setattr("orchestrator.store.ingest.RETRY_S", 0.1)
    bench = Bench(small_disk, room_wait_s=600 if is_closed else 0.5)
    bench.ingest.commit(rows("a", log_tail=LONG))
    ballast = fill(small_disk)
    bench.submit(rows("b", log_tail=LONG))
    wait_for(lambda: bench.ingest.is_full)
    if is_closed:
        bench.ingest.close()
    assert bench.answered(1) == [Outcome.LEFT]
    if not is_closed:
        with pytest.raises(StoreError, match=r"was full for \d+ s; make room and run the same command again"):
            bench.ingest.commit(rows("c", log_tail=LONG))
        bench.ingest.close()
    ballast.unlink()
    bench.writer.close()
    assert names(bench.store) == ["a"]
