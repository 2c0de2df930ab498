"""A host's end of the delivery: keeps each parcel until the driver has answered for it."""

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from orchestrator.delivery.committing import RETRY_S
from orchestrator.delivery.link import Destination, Link
from orchestrator.delivery.parcels import Answer, Outcome
from orchestrator.delivery.spool import DamagedError, Spool, SpoolError
from orchestrator.delivery.wire import RefusedError, WireError
from orchestrator.errors import InfrastructureError

PATIENCE_S: Final = 3.0
"""A task waits no longer for the driver between two trials; what is not answered then is sent again later."""

UNREACHABLE_S: Final = 60.0
"""A task that is over waits so long for a driver that does not answer."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
_POLL_S = 0.25

_MAX_HELD_BYTES = 64 * 2**20
"""Of parcels that no disk took, in memory."""


class DeliveryError(InfrastructureError):
    """Rows of a task have not reached the driver."""


@dataclass
class _Waiting:
    """A parcel without an answer: in a file of the spool, or held in memory where no disk takes it."""

    path: Path | None
    data: bytes | None
    is_own: bool
    """Of the task that this client delivers for."""


class Client:
    """Delivers for one task at a time; use it as a context manager. It begins with what others left in the spool."""

    def __init__(self, destination: Destination, host: str, *, unreachable_s: float = UNREACHABLE_S) -> None:
        self._destination = destination
        self._host = host
        self._unreachable_s = unreachable_s
        self._spool = Spool(destination.spool)
        self._waiting = deque(_Waiting(path, None, is_own=False) for path in self._spool.pending())
        self._problems: list[str] = []
        self._connection: Link | None = None
        self._refusal: str | None = None
        self._unstorable: list[str] = []
        self._last_error = "no attempt was made"
        self._sequence = 0
        self._pause_s = _FIRST_PAUSE_S
        self._not_before = 0.0
        self._heard_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def offer(self, parcel: bytes) -> None:
        """Keeps a parcel and tries to deliver all that waits, for `PATIENCE_S` at most.

        Raises:
            DeliveryError: neither the disk nor the driver takes it.
        """
        try:
            path = self._spool.put(parcel)
        except SpoolError as error:
            self._hold(parcel, str(error))
        else:
            self._waiting.append(_Waiting(path, None if self._waiting else parcel, is_own=True))
        self._pump(time.monotonic() + PATIENCE_S)

    @property
    def is_done(self) -> bool:
        """Whether every parcel was answered."""
        return not self._waiting

    def flush(self) -> None:
        """Waits until every parcel is answered, as long as the driver lets itself be heard.

        Raises:
            DeliveryError: it does not, and says where the rows are; or a row of this task can never be stored.
        """
        self._heard_at = time.monotonic()
        while self._waiting and self._refusal is None:
            if time.monotonic() - self._heard_at > self._unreachable_s:
                break
            self._pump(time.monotonic() + PATIENCE_S)
        if not self._waiting:
            if self._unstorable:
                raise DeliveryError("; ".join(self._unstorable))
            return
        why = self._refusal or f"it did not answer for {self._unreachable_s:.0f} s ({self._last_error})"
        held = sum(one.path is None for one in self._waiting)
        where = (
            f"{len(self._waiting) - held} of them wait in {self._destination.spool} and are stored first by --resume"
        )
        raise DeliveryError(
            f"{len(self._waiting)} records could not be delivered to the driver at "
            f"{self._destination.address}:{self._destination.port}: {why}; {where}"
            + (f", {held} are lost because no disk took them" if held else "")
        )

    def take_problems(self) -> list[str]:
        """What a person should know, each once."""
        told, self._problems = self._problems, []
        return told

    def close(self) -> None:
        """Ends the connection; what was not answered stays in the spool."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _hold(self, parcel: bytes, why: str) -> None:
        if sum(len(one.data or b"") for one in self._waiting if one.path is None) + len(parcel) > _MAX_HELD_BYTES:
            raise DeliveryError(f"a record is lost: {why}, and the driver does not take it ({self._last_error})")
        self._problems.append(f"{why}; records are held in memory until the driver takes them")
        self._waiting.append(_Waiting(None, parcel, is_own=True))

    def _pump(self, deadline: float) -> None:
        """Delivers in order, one at a time, until nothing waits or the time is over."""
        while self._waiting and self._refusal is None:
            pause_s = self._not_before - time.monotonic()
            if pause_s > 0:
                if time.monotonic() + pause_s >= deadline:
                    time.sleep(max(0.0, min(_POLL_S, deadline - time.monotonic())))
                    if time.monotonic() >= deadline:
                        return
                    continue
                time.sleep(pause_s)
            one = self._waiting[0]
            data = self._content(one)
            if data is None:
                continue
            try:
                answer = self._exchange(data)
            except RefusedError as error:
                self._refusal = f"it refuses this host: {error}"
                self.close()
            except (OSError, WireError) as error:
                self._lost(str(error) or type(error).__name__)
            else:
                self._take(one, answer)
            if time.monotonic() >= deadline:
                return

    def _content(self, one: _Waiting) -> bytes | None:
        if one.data is not None or one.path is None:
            return one.data
        try:
            data = self._spool.read(one.path)
        except DamagedError as error:
            self._is_hopeless(one, str(error))
            data = None
        if data is None:
            self._waiting.popleft()
        return data

    def _exchange(self, data: bytes) -> Answer:
        if self._connection is None:
            self._connection = Link(self._destination, self._host)
            # A driver that greets is alive, however long it takes to store.
            self._heard_at = time.monotonic()
        self._sequence += 1
        self._connection.send(self._sequence, data)
        return self._connection.answer(self._sequence)

    def _take(self, one: _Waiting, answer: Answer) -> None:
        self._heard_at = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S
        if answer.outcome is Outcome.LATER:
            self._last_error = answer.reason
            self._not_before = time.monotonic() + RETRY_S
            return
        self._waiting.popleft()
        if answer.outcome is Outcome.REFUSED:
            where = "" if one.path is None else f"; it is kept as {self._spool.set_aside(one.path)}"
            self._is_hopeless(one, f"the driver refused a record: {answer.reason}{where}")
        elif answer.outcome is Outcome.DUPLICATE and answer.reason and one.path is not None:
            self._problems.append(f"{answer.reason}; the other is kept as {self._spool.set_aside(one.path)}")
        elif one.path is not None:
            self._spool.remove(one.path)

    def _is_hopeless(self, one: _Waiting, why: str) -> None:
        (self._unstorable if one.is_own else self._problems).append(why)

    def _lost(self, why: str) -> None:
        self.close()
        self._last_error = why
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
