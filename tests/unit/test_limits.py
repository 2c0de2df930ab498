"""Programs of others that do not end: they are killed after a while, and that is one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli import sweep
from orchestrator.environments.packages import run_command
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.check.preflight import PreflightQuestion, preflight_here


@pytest.mark.parametrize(
    ("program", "call", "problem"),
    [
        ("uv", lambda: run_command(["uv", "pip"], 0.1), "uv did not end within 0 s"),
        ("git", sweep.git_commit, "gave no answer within 0.1 s; look at the file system"),
        ("sh", lambda: preflight_here(PreflightQuestion(None, (), 0.1)), "told nothing about itself within 0.1 s"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else None,
)
def test_a_program_that_does_not_end_is_killed(
    program: str, call: Callable[[], object], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / program).write_text("#!/bin/bash\nexec /bin/sleep 600\n")
    (tmp_path / program).chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sweep, "_GIT_S", 0.1)
    with pytest.raises(InfrastructureError, match=problem):
        call()
