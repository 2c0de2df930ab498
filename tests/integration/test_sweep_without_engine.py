"""A sweep on hosts over SSH that have no engine: a real sshd, real runners, the interpreter that the inventory names."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ExitCode
from orchestrator.hosts.lock import LOCKS
from orchestrator.store import Store
from runners.system import collect, system_id
from tests.sshd import Sshd, running_sshd

pytestmark = pytest.mark.cluster

SWEEP = """\
version: 1
name: far
environments: [cpu]
workloads: [{name: synthetic-sleep, batch: [1, 2]}]
backends: [python, eager]
rounds: 2
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 1, warmup_max_ms: 50, turn_ms: 500, cycles: 1, min_cycles: 1, floor_budget_ms: 0}
"""


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with running_sshd(tmp_path / "sshd") as server:
        yield server


class Lab:
    """A project whose inventory has one host, which is this machine behind sshd."""

    def __init__(self, root: Path, project: Path, sshd: Sshd, python: str) -> None:
        self.root, self.work = root / "project", root / "there"
        self.root.mkdir()
        self.work.mkdir()
        (self.root / "docker").symlink_to(project / "docker")
        self.results = self.root / "results"
        (self.root / "far.yaml").write_text(SWEEP)
        self.sshd = sshd
        self.inventory(python=python)

    def inventory(self, **settings: object) -> None:
        host = self.sshd.settings(work_directory=str(self.work), **settings)
        document = {"version": 1, "faults": {"return_s": 60}, "hosts": {"far": host}}
        (self.root / "hostinventory.yaml").write_text(json.dumps(document))

    @property
    def told(self) -> str:
        """What the last command has printed so far."""
        return " ".join((self.root / "log").read_text().split())

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self.root / "log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "orchestrator", *arguments],
                cwd=self.root,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def sweep(self) -> "subprocess.Popen[bytes]":
        return self.start("sweep", "run", "far.yaml", "--results", str(self.results))

    def run(self, *arguments: str) -> tuple[int, str]:
        with self.start(*arguments) as process:
            process.wait(timeout=240)
        return process.returncode, self.told

    def rows(self) -> list[dict[str, Any]]:
        if not self.results.exists():
            return []
        rows: list[dict[str, Any]] = Store.open(self.results).trials().to_pylist()
        return rows

    def left_there(self) -> list[Path]:
        return sorted(self.work.rglob("*"))


@pytest.fixture
def lab(tmp_path: Path, project: Path, sshd: Sshd, cpu_python: Path) -> Lab:
    return Lab(tmp_path, project, sshd, str(cpu_python))


def wait_until(condition: Callable[[], bool], lab: Lab, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 240
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            pytest.fail(lab.told)
        time.sleep(0.05)


def runners_of(lab: Lab) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if b"runners" in arguments and os.fsencode(lab.work) in arguments:
                found.append(entry.name)
    return found


def test_a_sweep_runs_in_the_interpreter_and_leaves_nothing_there(lab: Lab, cpu_python: Path) -> None:
    code, told = lab.run("hosts", "check", "--format", "json")
    assert code == ExitCode.OK, told
    assert "python 3.11" in told
    LOCKS.mkdir(mode=0o1777, parents=True, exist_ok=True)
    with (LOCKS / "host").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with lab.sweep() as process:
            try:
                wait_until(lambda: "another cluster measures there" in lab.told, lab, process)
                assert len(list(lab.work.glob("campaigns/*/*/task.json"))) == 1
                assert runners_of(lab) == []
            finally:
                fcntl.flock(held, fcntl.LOCK_UN)
            process.wait(timeout=240)
    assert process.returncode == ExitCode.OK, lab.told
    ran = [row for row in lab.rows() if row["status"] != "skipped"]
    assert [row["status"] for row in ran] == ["ok"] * 4
    assert {(row["host"], row["isolation"]) for row in ran} == {("far", "process")}
    assert {row["executor_reason"] for row in ran} == {f"the inventory names {cpu_python} there"}
    assert {row["system_id"] for row in ran} == {system_id(collect())}
    assert {row["torch_version"] for row in ran} == {"2.13.0+cpu"}
    assert all(row["lock_sha256"] for row in ran)
    assert json.loads(ran[0]["facts"])["python_executable"] == str(cpu_python)
    assert lab.left_there() == []
    assert list((lab.root / ".taxmeter").glob("campaigns/*")) == []


@pytest.mark.long
def test_stored_trials_are_reproduced_there(lab: Lab) -> None:
    code, told = lab.run("sweep", "run", "far.yaml", "--results", str(lab.results))
    assert code == ExitCode.OK, told
    [campaign] = {row["campaign_id"] for row in lab.rows()}
    code, told = lab.run("reproduce", campaign, "--host", "far", "--results", str(lab.results))
    assert code in (ExitCode.OK, ExitCode.TRIALS_FAILED), told  # times of a busy machine may differ
    again = [row for row in lab.rows() if row["reproduces"] == campaign]
    assert {row["status"] for row in again} == {"ok"}, told
    assert {(row["host"], row["isolation"]) for row in again} == {("far", "process")}
    assert lab.left_there() == []


def test_what_a_killed_command_left_there_is_stored_by_the_next(lab: Lab) -> None:
    with lab.sweep() as process:
        wait_until(lambda: bool(list(lab.work.glob("campaigns/*/*/records.jsonl"))), lab, process)
        wait_until(lambda: b'"record"' in next(lab.work.glob("campaigns/*/*/records.jsonl")).read_bytes(), lab, process)
        os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while runners_of(lab):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    [records] = lab.work.glob("campaigns/*/*/records.jsonl")
    for mirror in (lab.root / ".taxmeter").glob("campaigns/*/*/records.jsonl"):
        mirror.write_bytes(b"")  # as if nothing of it had come
    first = records.read_bytes()
    code, told = lab.run("sweep", "run", "far.yaml", "--results", str(lab.results))
    assert code == ExitCode.OK, told
    ran = [row for row in lab.rows() if row["status"] == "ok"]
    assert len({row["trial_id"] for row in ran}) == len(ran) == 4
    assert sum(row["trial_id"].encode() in first for row in ran) >= 1
    assert len({row["campaign_id"] for row in ran}) == 1
    assert lab.left_there() == []


@pytest.mark.long
def test_a_lost_connection_costs_the_running_trial_alone(lab: Lab) -> None:
    with lab.sweep() as process:
        wait_until(lambda: bool(list(lab.work.glob("campaigns/*/*/records.jsonl"))), lab, process)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    arguments = (entry / "cmdline").read_bytes()
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if arguments.startswith(b"ssh\0-F") and parent == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
        process.wait(timeout=240)
    assert process.returncode == ExitCode.OK, lab.told
    assert "what it recorded is fetched" in lab.told
    rows = lab.rows()
    assert sum(row["status"] == "ok" for row in rows) == 4
    assert sum(row["status"] == "infrastructure_error" for row in rows) <= 1
    assert lab.left_there() == []


def test_an_interpreter_that_is_not_what_the_lock_says_is_refused(lab: Lab) -> None:
    lab.inventory(python=sys.executable)
    code, told = lab.run("sweep", "run", "far.yaml", "--results", str(lab.results))
    assert code == ExitCode.NO_USABLE_HOST, told
    assert f"{sys.executable} there is not what the lock of cpu says: " in told
    assert lab.rows() == []
    lab.inventory(python="/nowhere/python")
    code, told = lab.run("hosts", "check")
    assert code == ExitCode.NO_USABLE_HOST
    assert "/nowhere/python: " in told
    assert "correct `python:`" in told
