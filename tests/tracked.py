"""The files of the project itself, without what a user has put beside them."""

import subprocess
from pathlib import Path
from typing import Final

from tests.conftest import PROJECT

_MADE: Final = (".venv", ".taxmeter", "results", "build", "dist")
"""Directories that commands of the project fill; where there is no git, all others count."""


def tracked(pattern: str) -> list[Path]:
    """Files that git knows, or outside of a checkout those that match; sorted.

    Args:
        pattern: as of `git ls-files`: `*` matches slashes, too.
    """
    if (PROJECT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", pattern], cwd=PROJECT, capture_output=True, text=True, check=True)
        return sorted(PROJECT / line for line in listed.stdout.splitlines())
    directory, _, name = pattern.rpartition("/")
    found = (PROJECT / directory).rglob(name)
    return sorted(path for path in found if path.relative_to(PROJECT).parts[0] not in _MADE)
