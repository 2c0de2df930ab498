"""What a check of a store finds."""

from dataclasses import dataclass, field
from typing import Final

RESTORE: Final = "restore it from a copy of the store, or move it out and `taxmeter results merge` such a copy"


@dataclass(frozen=True)
class Problem:
    """Something that is damaged."""

    place: str
    what: str
    remedy: str


@dataclass
class Verification:
    """What was found."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no damage."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows that could be read, by table."""
    files: int = 0
    unsealed: int = 0
    """Rows of `trials` that are in the journal alone."""

    def damage(self, place: object, what: str, remedy: str) -> None:
        """Notes a problem."""
        self.problems.append(Problem(str(place), what, remedy))


def line_of(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
