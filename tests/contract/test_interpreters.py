"""The runner needs nothing but an interpreter: every Python from 3.8 on that this machine has runs a task."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.execution import stage
from runners.contract import Environment, Guards, Status, TrialRecord, decode_line

pytestmark = pytest.mark.slow

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


def interpreter(version: str) -> str | None:
    """A Python of this version that starts: on the path, or kept by pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [*root.glob(f"versions/{version}.*/bin/python{version}"), shutil.which(f"python{version}")]
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(candidate)
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bare_interpreter_runs_a_task(version, make_trial, make_task, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    names = ("synthetic-null", "synthetic-wrong", "synthetic-crash", "synthetic-garbage")
    directory = tmp_path / "task"
    model = make_trial("bert-base", backend="eager", sequence_length=8)
    task = make_task(*(make_trial(name) for name in names), model)
    stage(replace(task, guards=Guards()), directory)
    command = [python, "-m", "runners", str(directory)]
    done = subprocess.run(command, cwd=directory / "code", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [decode_line(line) for line in (directory / "records.jsonl").read_bytes().splitlines()]
    [environment] = [line for line in lines if isinstance(line, Environment)]
    assert environment.versions["python"].startswith(version)
    records = {line.trial_id: line for line in lines if isinstance(line, TrialRecord)}
    *synthetic, model_record = records.values()
    assert {"load", "clocks"} <= {one.guard for one in synthetic[0].guards}
    expected = [Status.OK, Status.WRONG_OUTPUT, Status.CRASHED, Status.CRASHED]
    assert [record.status for record in synthetic] == expected
    if "torch" not in environment.versions:
        reason = "the environment lacks the module torch"
        assert (model_record.status, model_record.reason) == (Status.UNSUPPORTED, reason)
