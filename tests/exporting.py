"""An exported sweep, and what a machine that ran it writes."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign.exchange.manifest import Manifest, read_manifest
from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.store import Store
from runners.contract import (
    Begin,
    End,
    Environment,
    Line,
    Status,
    Task,
    Trial,
    TrialRecord,
    decode,
    encode,
    encode_line,
)
from runners.system import collect
from tests.conftest import PROJECT

SWEEP = """\
version: 1
name: small
environments: [cpu]
workloads: [{name: synthetic-null, batch: [1, 2]}]
backends: [python, eager]
threads: [1]
rounds: 2
"""


@dataclass
class Export:
    """An exported sweep of two tasks with two trials each, and two skips."""

    directory: Path
    sweep: Path
    store_path: Path

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.directory)

    @property
    def store(self) -> Store:
        return Store.open(self.store_path)

    @property
    def versions(self) -> dict[str, str]:
        locked = self.manifest.environments["cpu"]
        return {**locked.versions, "python": f"{locked.python}.9", "pip": "26.1"}

    def task_directory(self, number: int) -> Path:
        return self.directory / self.manifest.tasks[number].directory

    def task(self, number: int) -> Task:
        return decode(Task, json.loads((self.task_directory(number) / "task.json").read_bytes()))

    def write(
        self, number: int, *lines: Line, again: int = 0, versions: dict[str, str] | None = None, kernel: str = ""
    ) -> Path:
        """Writes the files of one start: the environment, then these lines."""
        directory = self.task_directory(number)
        task_id = self.task(number).task_id
        if again:
            directory, task_id = directory / f"again-{again}", f"{task_id}-again-{again}"
            directory.mkdir()
        seen = collect()
        fingerprint = replace(seen, kernel=replace(seen.kernel, release=kernel or seen.kernel.release))
        (directory / "system.json").write_text(json.dumps({"fingerprint": encode(fingerprint)}))
        facts: Any = {"libc": "glibc 2.36", "python_executable": "/python", "env_OMP_NUM_THREADS": "1"}
        first = Environment(task_id, versions or self.versions, facts, "c" * 64)
        path = directory / "records.jsonl"
        path.write_bytes(b"".join(encode_line(line) for line in (first, *lines)))
        return path

    def finish(self, number: int, **options: Any) -> Path:
        trials = self.task(number).trials
        lines = [line for trial in trials for line in (begin(trial), record(trial))]
        end = End(self.task(number).task_id, len(trials))
        return self.write(number, *lines, end, **options)

    def load(self, *options: str) -> int:
        return run(["results", "import", str(self.directory), "--results", str(self.store_path), *options])

    def rows(self) -> list[dict[str, Any]]:
        return list(self.store.trials().to_pylist())


def begin(trial: Trial, attempt: int = 1) -> Begin:
    return Begin(trial.trial_id, attempt, 1_700_000_000_000_000_000 + attempt)


def record(trial: Trial, attempt: int = 1, **changes: Any) -> TrialRecord:
    start = 1_700_000_000_000_000_000 + attempt * 1_000_000_000
    fields = {"status": Status.OK, "reason": None, "started_at_ns": start, "finished_at_ns": start + 1}
    return TrialRecord(trial.trial_id, attempt, **(fields | changes))


def export_into(root: Path) -> Export:
    """A new export below an empty directory."""
    (root / "small.yaml").write_text(SWEEP)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(PROJECT)
        arguments = ["--output", str(root / "out"), "--host", "borrowed"]
        assert run(["task", "export", str(root / "small.yaml"), *arguments]) == ExitCode.OK
    return Export(root / "out", root / "small.yaml", root / "results")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_into(tmp_path_factory.mktemp("exported")).directory.parent


@pytest.fixture
def export(exported: Path, tmp_path: Path, in_project: Path) -> Export:
    shutil.copytree(exported, tmp_path, ignore=shutil.ignore_patterns("code"), dirs_exist_ok=True)
    return Export(tmp_path / "out", tmp_path / "small.yaml", tmp_path / "results")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
