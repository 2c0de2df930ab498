"""Documents with a mistake, and the line that says so. Lines stand in `__snapshots__`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import ConfigurationError


def replaced(text: str, old: str, new: str) -> str:
    """The text with something else at the first place of `old`, which is there."""
    assert old in text
    return text.replace(old, new, 1)


def refusal(load: Callable[[Path], object], path: Path, text: str) -> str:
    """Why a file with this text is refused: one line, without the file's path in front; its directory is `DIR`."""
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path)).replace(str(path.parent), "DIR")
