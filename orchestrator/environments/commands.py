"""Programs of others that are waited for, but not for ever."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import InfrastructureError

ANSWER_S: Final = 60.0
"""For a question such as a version."""

FETCH_S: Final = 2 * 3600.0
"""For what fetches or packs gigabytes."""

BUILD_S: Final = 4 * 3600.0
"""For the build of an image, whose wheels may come over a slow line."""


def run_command(command: Sequence[str], limit_s: float, **settings: Any) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end, however it ends.

    Args:
        command: and its arguments.
        limit_s: after that it is killed.
        settings: of `subprocess.run`.

    Raises:
        InfrastructureError: it did not end in time.
        OSError: it cannot be started.
    """
    try:
        return subprocess.run(command, text=True, check=False, timeout=limit_s, **settings)
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"{Path(command[0]).name} did not end within {limit_s:.0f} s") from None
