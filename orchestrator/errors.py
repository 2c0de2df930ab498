"""What is said to a person: a line about what is done, or what went wrong, and the exit code that it ends with."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final

Say = Callable[[str], None]
"""Tells a person what is done or chosen, a line each."""

_LONG_ENOUGH: Final = 3
"""Shorter words are in too many names."""
_MOST_CHARACTERS: Final = 200
"""Of the names at the end of an error; more of them nobody reads."""


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    TRIALS_FAILED = 1
    USAGE = 2
    NO_USABLE_HOST = 3
    INTERRUPTED = 130


class TaxmeterError(Exception):
    """An error with a message for the user; anything else that is raised is a defect."""

    exit_code = ExitCode.TRIALS_FAILED


class ConfigurationError(TaxmeterError):
    """The user's input is at fault. The message is one line: where, what, and how to mend it."""

    exit_code = ExitCode.USAGE

    def __init__(
        self, problem: str, *, file: Path | None = None, line: int | None = None, key: str | None = None
    ) -> None:
        place = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        super().__init__(place + (f"{one_line(key, 200)}: " if key else "") + problem)


class NoUsableHostError(TaxmeterError):
    """No host of the inventory can run what was asked for."""

    exit_code = ExitCode.NO_USABLE_HOST


class InfrastructureError(TaxmeterError):
    """A machine, an engine or an image is at fault, not the trial."""


class StoreError(TaxmeterError):
    """The result store cannot be read or written."""


class ForeignDataError(TaxmeterError):
    """Bytes of somebody else are not what they have to be. The message is one line: what, and what is wrong with it."""

    exit_code = ExitCode.USAGE

    def __init__(self, problem: str) -> None:
        super().__init__(one_line(problem))


def one_line(text: str, most: int = 1000) -> str:
    """A text as one line of so many characters at most: what somebody else wrote may stand in it."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def did_you_mean(word: str, known: Iterable[str], besides: str = "") -> str:
    """The end of an error about an unknown name: the known one that is nearest, and as many of them as are read.

    Args:
        word: what was written.
        known: what could have been.
        besides: said behind them.
    """
    names = sorted(known)
    near = _nearest(word, names, 1)
    start = (f"did you mean {near[0]}? " if near else "") + "known: "
    return start + some_names(names, _MOST_CHARACTERS - len(start) - len(besides)) + besides


def some_names(names: Iterable[str], most: int = _MOST_CHARACTERS) -> str:
    """Names with commas between them, in about so many characters at most: the rest is counted."""
    listed = list(names)
    for shown in range(len(listed), 0, -1):
        rest = len(listed) - shown
        text = ", ".join(listed[:shown]) + (f" and {rest} more" if rest else "")
        if len(text) <= most or shown == 1:
            return text
    return ""


def some_of(texts: Sequence[str], most: int) -> list[str]:
    """The first so many of some texts, and how many more there are."""
    rest = len(texts) - most
    return [*texts[:most], *([f"and {rest} more"] if rest > 0 else [])]


def near_names(word: str, known: Iterable[str]) -> str:
    """The end of an error about one of many names: those that look like `word`; empty if none does."""
    near = _nearest(word, sorted(known), 5)
    return f"; did you mean {', '.join(near)}?" if near else ""


def _nearest(word: str, names: list[str], most: int) -> list[str]:
    inside = [name for name in names if len(word) >= _LONG_ENOUGH and word.lower() in name.lower()]
    return list(dict.fromkeys([*difflib.get_close_matches(word, names, n=most), *inside]))[:most]
