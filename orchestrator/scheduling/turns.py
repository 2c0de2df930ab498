"""Takes turns on a host: clusters know nothing of each other, and a benchmark beside another one measures both."""

import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.errors import InfrastructureError

_LOCK_MODE = 0o644


@dataclass(frozen=True)
class Turn:
    """What a task needs for itself on its host, whichever cluster the others are of."""

    place: Path
    """A file on the host, the same for all; it stays behind, because removing it would let two in."""
    part: str | None = None
    """The part of the host, such as a GPU, beside which others may run on other parts; null for all of the host."""


class HeldTurn:
    """A turn that is waited for, and then held as long as the block lasts; the kernel ends it with the process.

    Those who wait get it in the order in which they came, so that two clusters alternate. A call of the kernel waits
    for it, in a thread: an interrupt of Ray reaches Python code only, and polling would lose against whoever has just
    held it.
    """

    def __init__(self, turn: Turn) -> None:
        """Begins to wait.

        Raises:
            InfrastructureError: the file cannot be made.
        """
        # Only one waits for the place itself, so that those who want a part do not come in one after the other while
        # somebody waits for the whole.
        paths = [turn.place.with_name(f"{turn.place.name}-queue"), turn.place]
        if turn.part is not None:
            paths.append(turn.place.with_name(f"{turn.place.name}-{turn.part}"))
        self._opened: list[int] = []
        try:
            turn.place.parent.mkdir(parents=True, exist_ok=True)
            for path in paths:
                self._opened.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _LOCK_MODE))
        except OSError as error:
            self._close()
            raise InfrastructureError(f"{turn.place} cannot be locked: {error.strerror or error}") from error
        self._mutex = threading.Lock()
        self._is_left = False
        self._held = threading.Event()
        threading.Thread(target=self._wait, name="turn", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._mutex:
            self._is_left = True
            if self._held.is_set():
                self._close()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is held; returns after the timeout at the latest."""
        return self._held.wait(timeout_s)

    def _wait(self) -> None:
        queue, whole, *part = self._opened
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(whole, fcntl.LOCK_SH if part else fcntl.LOCK_EX)
        fcntl.flock(queue, fcntl.LOCK_UN)
        for descriptor in part:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with self._mutex:
            self._held.set()
            if self._is_left:
                self._close()  # it came too late, and is the next one's

    def _close(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)
        self._opened.clear()
