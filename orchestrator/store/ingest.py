"""The one thread that writes the store: it takes rows from everyone and answers when they are on the disk."""

import errno
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import Say, StoreError
from orchestrator.store.facade import Attempt, Store
from orchestrator.store.rows import Rows
from orchestrator.store.schema import ROW_KEY
from orchestrator.store.storage.seal import row_keys
from orchestrator.store.storage.writer import Writer
from orchestrator.store.validation import fitting

ROOM_WAIT_S: Final = 600.0
"""How long is waited for someone to make room on a full disk."""

RETRY_S: Final = 2.0
"""Between two attempts at a full disk."""

LINGER_S: Final = 0.15
"""A group waits so long for more: a row of 64 costs a tenth of the processor time of a row that is written alone."""

GROUP_ROWS: Final = 256
GROUP_BYTES: Final = 32 * 2**20
"""One journal batch, and with it one wait for the disk, is not made of more than that."""

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class Outcome(Enum):
    """What became of rows that were handed over."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """All of them were stored before."""
    REFUSED = "refused"
    """They can never be stored."""
    LEFT = "left"
    """Nothing was stored, because the store takes nothing more."""


@dataclass(frozen=True)
class Answer:
    """What the owner of rows is told."""

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class RowKey:
    """Identity of a row of `trials`."""

    campaign_id: str
    trial_id: str
    attempt: int


@dataclass(frozen=True)
class _Item:
    """Rows that wait, and who waits for them."""

    rows: Rows
    keys: Sequence[RowKey]
    is_awaited: bool
    answer: Callable[[Answer], None]


class Ingest:
    """Owns a writer for as long as it lives; use it as a context manager.

    Whatever waits when the disk has answered becomes the next group, which costs one wait for the disk.
    """

    def __init__(self, store: Store, writer: Writer, tell: Say, *, room_wait_s: float = ROOM_WAIT_S) -> None:
        """Starts its thread, which alone uses `writer` from now on, and from which `tell` gets lines for a person."""
        self._store = store
        self._writer = writer
        self._tell = tell
        self._room_wait_s = room_wait_s
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._known: dict[str, dict[int, set[str]]] = {}
        """By campaign and attempt the trials whose rows are on the disk."""
        self._failure: StoreError | None = None
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._hurries = threading.Event()
        self._is_closed = threading.Event()
        self.campaigns: set[str] = set()
        """Those that got rows."""
        self.is_full = False
        """Whether it waits for room on the disk."""
        self.answered = threading.Event()
        """Set after each answer; whoever waits for one clears it before it looks."""
        self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def failure(self) -> StoreError | None:
        """Why nothing can be stored any more; null while it can."""
        return self._failure

    @property
    def waiting_bytes(self) -> int:
        """Of the records whose rows are not answered yet."""
        return self._waiting_bytes

    def submit(self, rows: Rows, answer: Callable[[Answer], None], *, is_awaited: bool = False) -> None:
        """Queues rows of trials to be stored together; a group in which somebody waits for some does not linger.

        `answer` is told what became of them, once, from the thread.
        """
        keys = [RowKey(str(row["campaign_id"]), str(row["trial_id"]), int(str(row["attempt"]))) for row in rows.trials]
        with self._lock:
            if not self._is_closed.is_set():
                self._waiting_bytes += rows.size
                self._queue.put(_Item(rows, keys, is_awaited, answer))
                return
        answer(self._left())

    def commit(self, rows: Rows) -> Answer:
        """Stores rows, and waits until they are on the disk, also for room on it."""
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.submit(rows, answers.put, is_awaited=True)
        answer = answers.get()
        if answer.outcome is Outcome.REFUSED:
            raise StoreError(answer.reason)
        if answer.outcome is Outcome.LEFT:
            raise self._failure or StoreError(answer.reason)
        return answer

    def hurry(self) -> None:
        """Writes what waits without waiting for more: somebody waits for the end of a task."""
        self._hurries.set()

    def is_stored(self, key: RowKey) -> bool:
        """Whether the row is on the disk. Only of campaigns of which something was committed here."""
        return key.trial_id in self._known.get(key.campaign_id, {}).get(key.attempt, ())

    def attempts(self, campaign_id: str) -> Mapping[str, Attempt]:
        """The latest stored attempt of each trial of a campaign."""
        return self._store.attempts(campaign_id)

    def close(self) -> None:
        """Stores what waits, but not for room, and gives the writer back. Nothing is taken afterwards."""
        with self._lock:
            if not self._is_closed.is_set():
                self._is_closed.set()
                self._queue.put(None)
        try:
            self._thread.join()
        except BaseException:
            # Interrupted: the writer may all the same not be given back before the thread has let go of it.
            self._thread.join()
            raise

    def _run(self) -> None:
        group: list[_Item] | None = []
        try:
            while (group := self._next_group()) is not None:
                self._take(group)
        except BaseException as error:
            # A defect; whoever waits must not wait for ever.
            self._failure = StoreError(f"the writer of the store ended: {type(error).__name__}: {error}")
            raise
        finally:
            with self._lock:
                self._is_closed.set()
            rest = list(group or ())
            while not self._queue.empty():
                rest += [item for item in [self._queue.get()] if item is not None]
            self._answer_all(rest, self._left())

    def _next_group(self) -> list[_Item] | None:
        first = self._queue.get()
        if first is None:
            return None
        group, size = [first], first.rows.size
        until_s = time.monotonic() + LINGER_S
        while len(group) < GROUP_ROWS and size < GROUP_BYTES:
            is_awaited = group[-1].is_awaited or self._hurries.is_set()
            wait_s = 0.0 if is_awaited else min(0.01, until_s - time.monotonic())
            try:
                item = self._queue.get(timeout=wait_s) if wait_s > 0 else self._queue.get_nowait()
            except queue.Empty:
                if wait_s > 0:
                    continue
                break
            if item is None:
                self._queue.put(None)
                break
            group.append(item)
            size += item.rows.size
        self._hurries.clear()
        return group

    def _take(self, group: Sequence[_Item]) -> None:
        batch, problems = fitting([row for item in group for row in item.rows.trials])
        good: list[_Item] = []
        for item, places in _places(group):
            wrong = [problems[number] for number in places if number in problems]
            if wrong:
                self._answer_all([item], Answer(Outcome.REFUSED, wrong[0]))
            else:
                good.append(item)
        if problems:
            batch, _ = fitting([row for item in good for row in item.rows.trials])
        full_since_s: float | None = None
        while self._failure is None:
            try:
                fresh = self._store_new(good, batch)
            except StoreError as error:
                full_since_s = self._no_room(error, full_since_s)
                if self._failure is None and self._is_closed.wait(RETRY_S):
                    break
            else:
                if full_since_s is not None:
                    self.is_full = False
                    self._tell("there is room for results again: the sweep goes on")
                self._answer_each(good, fresh, batch)
                return
        self._answer_all(good, self._left())

    def _store_new(self, group: Sequence[_Item], batch: pa.RecordBatch) -> list[bool]:
        """Stores the rows of a batch that are not known; says of each row whether it was new."""
        is_new: list[bool] = []
        seen: set[RowKey] = set()
        for key in (key for item in group for key in item.keys):
            is_new.append(key not in seen and not self._knows(key))
            seen.add(key)
        for item in group:
            self._writer.put("systems", item.rows.systems)
            self._writer.put("environments", item.rows.environments)
        if any(is_new):
            new = batch if all(is_new) else batch.filter(pa.array(is_new))
            self._writer.append_batches([new])
        for key in seen:
            self._known[key.campaign_id].setdefault(key.attempt, set()).add(key.trial_id)
            self.campaigns.add(key.campaign_id)
        return is_new

    def _knows(self, key: RowKey) -> bool:
        if key.campaign_id not in self._known:
            known: dict[int, set[str]] = {}
            for trial_id, attempt in row_keys(self._store.trials(ROW_KEY, campaign_id=key.campaign_id)):
                known.setdefault(attempt, set()).add(trial_id)
            self._known[key.campaign_id] = known
        return self.is_stored(key)

    def _no_room(self, error: StoreError, full_since_s: float | None) -> float:
        """Notes that nothing was stored: either the disk is full, for now, or this is the end."""
        now_s = time.monotonic()
        if not _is_for_want_of_room(error):
            self._failure = error
        elif full_since_s is None:
            self.is_full = True
            self._tell(
                f"the disk of {self._store.layout.root} is full: waiting for room, at most {self._room_wait_s:.0f} s; "
                "the sweep goes on when there is room, Ctrl-C ends it and --resume goes on"
            )
        elif now_s - full_since_s >= self._room_wait_s:
            self._failure = StoreError(
                f"the disk of {self._store.layout.root} was full for {now_s - full_since_s:.0f} s; make room and "
                "run the same command again: what is not stored yet is kept and stored first"
            )
        return now_s if full_since_s is None else full_since_s

    def _answer_each(self, group: Sequence[_Item], is_new: Sequence[bool], batch: pa.RecordBatch) -> None:
        repeated = [place for place, new in enumerate(is_new) if not new]
        differing = self._differing(batch, repeated) if repeated else set()
        for item, places in _places(group):
            names = [
                f"{key.trial_id}/{key.attempt}" for key, at in zip(item.keys, places, strict=True) if at in differing
            ]
            reason = ""
            if names:
                reason = f"two records of {', '.join(names)} say different things; the first stays in the store"
                self._tell(reason)
            is_stored = any(is_new[at] for at in places)
            self._answer_all([item], Answer(Outcome.STORED if is_stored else Outcome.DUPLICATE, reason))

    def _differing(self, batch: pa.RecordBatch, repeated: Sequence[int]) -> set[int]:
        """The places of rows that say something else than the row of their key in the store."""
        differing = set()
        rows = {place: batch.slice(place, 1).to_pylist()[0] for place in repeated}
        for campaign_id in {row["campaign_id"] for row in rows.values()}:
            places = [place for place, row in rows.items() if row["campaign_id"] == campaign_id]
            wanted = pc.field("trial_id").isin([rows[place]["trial_id"] for place in places])
            stored = self._store.trials(campaign_id=campaign_id, filter=wanted).to_pylist()
            by_key = {(row["trial_id"], row["attempt"]): row for row in stored}
            differing |= {
                place for place in places if by_key[rows[place]["trial_id"], rows[place]["attempt"]] != rows[place]
            }
        return differing

    def _left(self) -> Answer:
        return Answer(Outcome.LEFT, str(self._failure or "the campaign has ended"))

    def _answer_all(self, group: Iterable[_Item], answer: Answer) -> None:
        for item in group:
            with self._lock:
                self._waiting_bytes -= item.rows.size
            item.answer(answer)
        self.answered.set()


def _places(group: Sequence[_Item]) -> Iterator[tuple[_Item, range]]:
    """The items of a group, each with the places of its rows in the batch of all."""
    start = 0
    for item in group:
        yield item, range(start, start + len(item.keys))
        start += len(item.keys)


def _is_for_want_of_room(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        error = error.__cause__
    return False
