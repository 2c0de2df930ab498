"""What can go wrong for a person, and the exit code that it ends with."""

from enum import IntEnum
from pathlib import Path


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
        super().__init__(place + (f"{key}: " if key else "") + problem)


class NoUsableHostError(TaxmeterError):
    """No host of the inventory can run what was asked for."""

    exit_code = ExitCode.NO_USABLE_HOST


class InfrastructureError(TaxmeterError):
    """A machine, an engine or an image is at fault, not the trial."""


class StoreError(TaxmeterError):
    """The result store cannot be read or written."""
