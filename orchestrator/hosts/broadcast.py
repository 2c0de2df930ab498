"""Sends many bytes to hosts, once for all of them: through Ray's object store, a piece at a time."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from orchestrator.errors import InfrastructureError
from orchestrator.hosts.labels import HOST_LABEL

PIECE_BYTES: Final = 8 * 2**20
PIECES_AHEAD: Final = 3
"""On their way to a host; an object store of Ray has 75 MB at the least."""

PIECE_S: Final = 120.0
"""A host that takes nothing for so long is left out: the others wait for it."""

_HELD: Final = 2
_POLL_S: Final = 0.5

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class Inbox:
    """A host's end, in a process of its own there: hands what comes to a function that runs meanwhile."""

    def __init__(self, receive: Callable[[Any, Iterator[bytes]], Any], asked: Any) -> None:
        self._pieces: queue.Queue[bytes | None] = queue.Queue(_HELD)
        self._answer: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(receive, asked), name="receive", daemon=True)
        self._thread.start()

    def put(self, piece: bytes | None) -> bool:
        """Takes a piece, null after the last one, when there is room. Returns whether any more is wanted."""
        while self._thread.is_alive():
            try:
                self._pieces.put(piece, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def answer(self) -> Any:
        """What the function returned, once it has."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answer

    def _run(self, receive: Callable[[Any, Iterator[bytes]], Any], asked: Any) -> None:
        try:
            self._answer = receive(asked, self._all())
        except BaseException as error:  # noqa: BLE001 - raised again by `answer`
            self._error = error

    def _all(self) -> Iterator[bytes]:
        while (piece := self._pieces.get()) is not None:
            yield piece


def send(
    pieces: Iterable[bytes],
    receive: Callable[[Asked, Iterator[bytes]], Answered],
    of: Mapping[str, Asked],
    finish_s: float,
) -> dict[str, Answered | InfrastructureError]:
    """Has a function on hosts read the same bytes, as this process reads them. The slowest host sets the pace.

    The process has joined a cluster in which each host has a node.

    Args:
        pieces: the bytes, as they come; whatever their lengths.
        receive: the function, of an installed module. It says what went wrong by an InfrastructureError.
        of: its first argument, by the host that it runs on.
        finish_s: that it may take after the last byte.

    Returns:
        By host the answer, or why there is none.

    Raises:
        Whatever reading the pieces raises; nothing is then left running.
    """
    import ray

    sending = _Sending(ray, receive, of)
    try:
        for piece in rechunked(pieces, PIECE_BYTES):
            sending.pass_on(piece)
            if not sending.is_wanted:
                break
        return sending.answers(finish_s)
    finally:
        sending.end()


def rechunked(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of one size, but for the last."""
    pending = bytearray()
    for piece in pieces:
        pending += piece
        while len(pending) >= size:
            yield bytes(pending[:size])
            del pending[:size]
    if pending:
        yield bytes(pending)


class _Sending:
    def __init__(self, ray: Any, receive: Callable[..., Any], of: Mapping[str, Any]) -> None:
        self._ray = ray
        inbox = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(Inbox)
        self._inboxes = {
            host: inbox.options(label_selector={HOST_LABEL: host}).remote(receive, asked) for host, asked in of.items()
        }
        self._taken: dict[str, deque[Any]] = {host: deque() for host in of}
        self._done: dict[str, Any] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether any host reads on."""
        return bool(self._taken)

    def pass_on(self, piece: bytes) -> None:
        reference = self._ray.put(piece)
        for host in list(self._taken):
            waiting = self._taken[host]
            waiting.append(self._inboxes[host].put.remote(reference))
            if len(waiting) > PIECES_AHEAD:
                self._wait(host, waiting.popleft())

    def answers(self, finish_s: float) -> dict[str, Any]:
        asked = {}
        for host in list(self._taken):
            self._inboxes[host].put.remote(None)
        for host in [host for host in self._inboxes if host not in self._done]:
            asked[host] = self._inboxes[host].answer.remote()
        deadline = time.monotonic() + finish_s
        for host, reference in asked.items():
            self._done[host] = self._answer(reference, max(0.0, deadline - time.monotonic()))
        return self._done

    def end(self) -> None:
        for inbox in self._inboxes.values():
            with suppress(self._ray.exceptions.RayError):  # its host is gone, and it with it
                self._ray.kill(inbox)

    def _wait(self, host: str, reference: Any) -> None:
        """Until a host has taken a piece. One that wants no more has its answer ready; one that fails has none."""
        answer = self._answer(reference, PIECE_S)
        if answer is True:
            return
        del self._taken[host]
        if isinstance(answer, InfrastructureError):
            self._done[host] = answer

    def _answer(self, reference: Any, timeout_s: float) -> Any:
        deadline = time.monotonic() + timeout_s
        # in short steps, so that an interrupt is heard
        while not self._ray.wait([reference], timeout=_POLL_S)[0]:
            if time.monotonic() > deadline:
                return InfrastructureError(f"it gave no answer within {timeout_s:.0f} s")
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InfrastructureError):
                return error.cause
            raise
        except self._ray.exceptions.RayError as error:
            return InfrastructureError(" ".join(str(error).split())[:300])
