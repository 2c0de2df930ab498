"""The one thread that writes the store: it takes parcels from everyone and answers when they are on the disk."""

import errno
import queue
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.delivery.parcels import (
    Answer,
    Outcome,
    Parcel,
    ParcelError,
    RowKey,
    Rows,
    decode_parcel,
    encode_rows,
)
from orchestrator.errors import StoreError
from orchestrator.store import Store, Writer

Tell = Callable[[str], None]
"""Takes a line for a person, from any thread."""

ROOM_WAIT_S: Final = 600.0
"""How long a campaign waits for someone to make room on a full disk."""

RETRY_S: Final = 2.0
"""After so long a parcel is sent again that was answered `later`, and a full disk is tried again."""

GROUP_PARCELS: Final = 256
GROUP_BYTES: Final = 32 * 2**20
"""One journal batch, and with it one wait for the disk, is not made of more than that."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class _Item:
    """A parcel that can be stored, and who waits for it."""

    parcel: Parcel
    keys: Sequence[RowKey]
    size: int
    checksum: int
    answer: Callable[[Answer], None]


@dataclass
class _Known:
    """What is stored of one campaign."""

    rows: dict[tuple[str, int], int | None] = field(default_factory=dict)
    """By trial and attempt the checksum of the parcel that it came in; null for what was stored earlier."""


class Committer:
    """Owns a writer for as long as it lives; use it as a context manager.

    Whatever waits when the disk has answered becomes the next group: it costs one wait for the disk, however many
    hosts are waiting.
    """

    def __init__(self, store: Store, writer: Writer, tell: Tell, *, room_wait_s: float = ROOM_WAIT_S) -> None:
        self._store = store
        self._writer = writer
        self._tell = tell
        self._room_wait_s = room_wait_s
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._known: dict[str, _Known] = {}
        self._dimensions: set[str] = set()
        self._full_since: float | None = None
        self._tried_at = 0.0
        self._failure: StoreError | None = None
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def failure(self) -> StoreError | None:
        """Why nothing can be stored any more; null while it can."""
        return self._failure

    def submit(self, parcel: bytes, answer: Callable[[Answer], None]) -> None:
        """Reads a parcel and queues it. `answer` is called once, from whichever thread.

        Reading is half of the work, and done here so that one thread reads while the other waits for the disk.
        """
        try:
            read = decode_parcel(parcel)
        except ParcelError as error:
            answer(Answer(Outcome.REFUSED, str(error)))
            return
        item = _Item(read, read.keys(), len(parcel), zlib.crc32(parcel), answer)
        with self._closing:
            if not self._closed:
                self._queue.put(item)
                return
        answer(Answer(Outcome.LATER, "the campaign has ended"))

    def commit(self, rows: Rows) -> Answer:
        """Stores rows of the driver itself; waits until they are on the disk, also for room on it.

        Raises:
            ParcelError: a row does not fit the schema.
            StoreError: nothing can be stored any more.
        """
        answer = self.deliver(encode_rows(rows))
        if answer.outcome is Outcome.REFUSED:
            raise ParcelError(answer.reason)
        return answer

    def deliver(self, parcel: bytes) -> Answer:
        """As `commit`, for a parcel that exists already; one that is refused is not raised but answered.

        Raises:
            StoreError: nothing can be stored any more.
        """
        while True:
            answer = self.try_to_deliver(parcel)
            if answer.outcome is not Outcome.LATER:
                return answer
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise StoreError("the campaign has ended; nothing is stored any more")
            time.sleep(min(RETRY_S, self._room_wait_s))

    def try_to_deliver(self, parcel: bytes) -> Answer:
        """As `deliver`, but says so where the parcel cannot be stored now."""
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.submit(parcel, answers.put)
        return answers.get()

    def is_stored(self, key: RowKey) -> bool:
        """Whether the row is on the disk. Only of campaigns of which something was committed here."""
        known = self._known.get(key.campaign_id)
        return known is not None and (key.trial_id, key.attempt) in known.rows

    def close(self) -> None:
        """Answers everything that waits and gives the writer back. Nothing is taken afterwards."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
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
                self._commit(group)
        except BaseException as error:
            # A defect; whoever waits must not wait for ever.
            self._failure = StoreError(f"the writer of the store ended: {type(error).__name__}: {error}")
            raise
        finally:
            self._answer_the_rest(group or ())

    def _next_group(self) -> list[_Item] | None:
        first = self._queue.get()
        if first is None:
            return None
        group, size = [first], first.size
        while len(group) < GROUP_PARCELS and size < GROUP_BYTES:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            group.append(item)
            size += item.size
        return group

    def _commit(self, group: Sequence[_Item]) -> None:
        if self._failure is not None:
            _answer_all(group, Answer(Outcome.LATER, str(self._failure)))
            return
        if self._full_since is not None and time.monotonic() < self._tried_at + RETRY_S:
            _answer_all(group, Answer(Outcome.LATER, "the disk of the store is full"))
            return
        try:
            fresh, repeated = self._told_apart(group)
            has_written = self._store_all(fresh)
        except StoreError as error:
            _answer_all(group, Answer(Outcome.LATER, self._why_not(error)))
            return
        if has_written and self._full_since is not None:
            self._full_since = None
            self._tell("there is room for results again: the sweep goes on")
        _answer_all([one for one, _ in fresh], Answer(Outcome.STORED))
        for one in repeated:
            self._refuse_nothing_but_say(one)

    def _told_apart(self, group: Sequence[_Item]) -> tuple[list[tuple[_Item, pa.RecordBatch]], list[_Item]]:
        """Those with something new, each with its new rows; and those of which every row is known."""
        fresh: list[tuple[_Item, pa.RecordBatch]] = []
        repeated: list[_Item] = []
        seen: set[RowKey] = set()
        for one in group:
            is_new = []
            for key in one.keys:
                is_new.append(key not in seen and not self._knows(key))
                seen.add(key)
            if all(is_new):
                fresh.append((one, one.parcel.packed))
            elif any(is_new):
                fresh.append((one, one.parcel.packed.filter(pa.array(is_new))))
            else:
                repeated.append(one)
        return fresh, repeated

    def _knows(self, key: RowKey) -> bool:
        known = self._known.get(key.campaign_id)
        if known is None:
            stored = self._writer.known_keys(key.campaign_id)
            known = self._known[key.campaign_id] = _Known(dict.fromkeys(stored))
        return (key.trial_id, key.attempt) in known.rows

    def _store_all(self, fresh: Sequence[tuple[_Item, pa.RecordBatch]]) -> bool:
        """Whether that took room in the journal."""
        self._tried_at = time.monotonic()
        for one, _ in fresh:
            self._put_dimensions(one.parcel)
        batches = [batch for _, batch in fresh if batch.num_rows]
        if batches:
            self._writer.append_batches(batches)
        for one, _ in fresh:
            for key in one.keys:
                self._known[key.campaign_id].rows.setdefault((key.trial_id, key.attempt), one.checksum)
        return bool(batches)

    def _put_dimensions(self, parcel: Parcel) -> None:
        for batch, put in (
            (parcel.systems, self._writer.put_system),
            (parcel.environments, self._writer.put_environment),
        ):
            for row in batch.to_pylist() if batch.num_rows else ():
                identity = str(next(iter(row.values())))
                if identity not in self._dimensions:
                    put(row)
                    self._dimensions.add(identity)

    def _why_not(self, error: StoreError) -> str:
        """Notes that nothing was stored: either the disk is full, for now, or this is the end."""
        now = time.monotonic()
        if not _is_for_want_of_room(error):
            self._failure = error
        elif self._full_since is None:
            self._full_since = now
            self._tell(
                f"the disk of {self._store.layout.root} is full: waiting for room, at most {self._room_wait_s:.0f} s; "
                "the sweep goes on when there is room, Ctrl-C ends it and --resume goes on"
            )
        elif now - self._full_since >= self._room_wait_s:
            self._failure = StoreError(
                f"the disk of {self._store.layout.root} was full for {now - self._full_since:.0f} s; make room and "
                "run the same command again: what is not stored yet is kept and stored first"
            )
        return str(self._failure or error)

    def _refuse_nothing_but_say(self, one: _Item) -> None:
        """Answers a parcel that was stored before. If it says something else now, the first stays, and it is told."""
        differing = [key for number, key in enumerate(one.keys) if not self._is_same(one, number, key)]
        reason = ""
        if differing:
            names = ", ".join(f"{key.trial_id}/{key.attempt}" for key in differing)
            reason = f"two records of {names} say different things; the first stays in the store"
            self._tell(reason)
        one.answer(Answer(Outcome.DUPLICATE, reason))

    def _is_same(self, one: _Item, number: int, key: RowKey) -> bool:
        if self._known[key.campaign_id].rows[key.trial_id, key.attempt] == one.checksum:
            return True
        condition = (pc.field("trial_id") == key.trial_id) & (pc.field("attempt") == key.attempt)
        stored = self._store.trials(campaign_id=key.campaign_id, filter=condition)
        return bool(stored.equals(pa.Table.from_batches([one.parcel.trials.slice(number, 1)])))

    def _answer_the_rest(self, unanswered: Sequence[_Item]) -> None:
        with self._closing:
            self._closed = True
        rest = list(unanswered)
        while not self._queue.empty():
            rest += [item for item in [self._queue.get()] if item is not None]
        _answer_all(rest, Answer(Outcome.LATER, str(self._failure or "the campaign has ended")))


def _answer_all(group: Sequence[_Item], answer: Answer) -> None:
    for item in group:
        item.answer(answer)


def _is_for_want_of_room(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return True
        error = error.__cause__
    return False
