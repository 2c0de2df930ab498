"""Beats: a task's host says every second that the task goes on. A driver that hears none judges the host to be lost."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from orchestrator.delivery.link import Destination, Link
from orchestrator.delivery.wire import RefusedError, WireError

BEAT_S: Final = 1.0
"""Between two beats; also between two attempts to reach the driver."""

BREAK_S: Final = 3.0
"""A driver that did not look for so long was stopped itself, or its machine was."""

_HASTE_S = 3.0
"""After a gap in the network a new connection is there sooner than an old one has woken up."""


@dataclass(frozen=True)
class LastBeat:
    """The last sign of life of a task."""

    at_s: float
    """When it was heard, by the driver's monotonic clock."""
    is_over: bool
    """The host has come to the task's end: no further beat is to be expected."""


@dataclass(frozen=True)
class Heard:
    """What a driver has heard."""

    until_s: float
    """Until when it surely listened, by its monotonic clock: what was said later, it could not hear."""
    since_s: float
    """Since when it has listened without a break: a driver that was stopped itself cannot tell who was silent."""
    beats: Mapping[str, LastBeat]
    """By task id; a task that never beat is missing."""


class Listening:
    """The beats of the tasks that somebody cares for; can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._beats: dict[str, LastBeat] = {}
        self._since_s = self._until_s = time.monotonic()

    def begin(self, task_id: str) -> None:
        """Notes beats of a task from now on."""
        with self._lock:
            self._wanted.add(task_id)

    def end(self, task_id: str) -> None:
        """Forgets a task."""
        with self._lock:
            self._wanted.discard(task_id)
            self._beats.pop(task_id, None)

    def hear(self, task_id: str, *, is_last: bool) -> None:
        """Takes a beat."""
        with self._lock:
            if task_id in self._wanted:
                self._beats[task_id] = LastBeat(time.monotonic(), is_last)

    def tick(self) -> None:
        """Whoever hears calls it again and again: all that had come by now is heard."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._until_s > BREAK_S:
                self._since_s = now_s
            self._until_s = now_s

    def heard(self) -> Heard:
        """All of it."""
        with self._lock:
            return Heard(self._until_s, self._since_s, dict(self._beats))


class Heart:
    """Beats for a task from a thread and over a connection of its own; use it as a context manager on the host.

    A driver that cannot be reached is no fault of the task, which goes on: what it measures waits in the spool.
    """

    def __init__(self, destination: Destination, host: str, task_id: str) -> None:
        self._destination = destination
        self._host = host
        self._task_id = task_id
        self._ended = threading.Event()
        self._link: Link | None = None
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not waited for: a driver that is gone must not hold up the end of a task.
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            if not self._beat(is_last=False):
                return
            self._ended.wait(BEAT_S)
        if self._link is not None:
            self._beat(is_last=True)
            self._close()

    def _beat(self, *, is_last: bool) -> bool:
        """Whether a further attempt makes sense."""
        try:
            if self._link is None:
                self._link = Link(self._destination, self._host, greeting_s=_HASTE_S, silence_s=_HASTE_S)
            self._link.beat(self._task_id, is_last=is_last)
        except RefusedError:
            # The rows of this task are refused too, and their client says why.
            self._close()
            return False
        except (OSError, WireError):
            self._close()
        return True

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
