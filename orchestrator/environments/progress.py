"""Progress of long transfers, in few lines."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

INTERVAL_S = 5.0
"""Between two lines: enough to see that something moves."""

_MEGABYTE = 1_000_000


class LayerProgress:
    """Sums up what an engine tells about the single layers of a push or pull."""

    def __init__(self, what: str, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.what = what
        self._say = say
        self._clock = clock
        self._last = clock()
        self._sizes: dict[str, tuple[int, int]] = {}

    def event(self, event: Mapping[str, Any]) -> None:
        """Takes in one event, and says how far it is every few seconds."""
        detail = event.get("progressDetail") or {}
        # Unpacking counts again from nothing: only the transfer itself is told.
        if detail.get("total") and event.get("status") in ("Pushing", "Downloading"):
            self._sizes[str(event.get("id"))] = (int(detail.get("current") or 0), int(detail["total"]))
        elif self._sizes.get(str(event.get("id"))) and event.get("status") in ("Pushed", "Download complete"):
            total = self._sizes[str(event["id"])][1]
            self._sizes[str(event["id"])] = (total, total)
        if self._sizes and self._clock() - self._last >= INTERVAL_S:
            self._last = self._clock()
            done = sum(min(current, total) for current, total in self._sizes.values())
            of = sum(total for _, total in self._sizes.values())
            self._say(f"{self.what}: {done // _MEGABYTE} of {of // _MEGABYTE} MB")


def counted(
    chunks: Iterable[bytes],
    what: str,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """The same chunks; every few seconds it is said how much has passed."""
    last, passed = clock(), 0
    for chunk in chunks:
        passed += len(chunk)
        if clock() - last >= INTERVAL_S:
            last = clock()
            say(f"{what}: {passed // _MEGABYTE} MB")
        yield chunk
