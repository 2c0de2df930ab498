"""The one place where text goes to a terminal: whatever a row, a record or a file says there, it steers nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from orchestrator.boundary import terminal_text

_CLEAR_LINE = "\r\x1b[2K"


class Filtered:
    """A stream of text that passes on no characters which steer a terminal; all else is that of the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes what can do no harm; returns the length of what was given."""
        self.stream.write(terminal_text(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """As `write`, line by line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def filtered_streams() -> Iterator[None]:
    """While the block lasts standard output and error are filtered, whoever writes there."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (Filtered(raw_stream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def write_data(text: str) -> None:
    """Writes what a program may read: unchanged, unless a person looks at it."""
    stream = sys.stdout if sys.stdout.isatty() else raw_stream(sys.stdout)
    stream.write(text)
    stream.flush()


def clear_line() -> None:
    """Removes the line that a live display may have drawn on this terminal."""
    if sys.stdout.isatty():
        raw_stream(sys.stdout).write(_CLEAR_LINE)


def raw_stream(stream: Any) -> TextIO:
    """What a stream writes to that may be filtered."""
    raw: TextIO = stream.stream if isinstance(stream, Filtered) else stream
    return raw
