"""What people read of a part of a report."""

import io

from rich.console import Console


def printed(part: object, width: int = 200) -> str:
    """A part as a pipe of so many columns gets it."""
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(part)
    return captured.get()
