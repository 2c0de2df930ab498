"""A sweep on hosts over SSH that have no engine: a real sshd, real runners, the interpreter that the inventory names."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.hosts.lock import LOCKS
from runners.system import collect, system_id
from tests.conftest import PROJECT
from tests.project import Project
from tests.recording import processes_naming, wait_for
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


class Lab(Project):
    """A project whose inventory has one host, which is this machine behind sshd."""

    def __init__(self, root: Path, sshd: Sshd, python: str) -> None:
        super().__init__(root / "project")
        self.work, self.log, self.sshd = root / "there", root / "log", sshd
        self.root.mkdir()
        self.work.mkdir()
        (self.root / "docker").symlink_to(PROJECT / "docker")
        self.command = ("sweep", "run", self.write(SWEEP))
        self.inventory(python=python)

    def inventory(self, **settings: object) -> None:
        host = self.sshd.settings(work_directory=str(self.work), **settings)
        document = {"version": 1, "faults": {"return_s": 60}, "hosts": {"far": host}}
        (self.root / "hostinventory.yaml").write_text(json.dumps(document))

    @property
    def told(self) -> str:
        """What the sweep that was started last has printed so far."""
        return " ".join(self.log.read_text().split())

    def sweep(self) -> "subprocess.Popen[bytes]":
        return self.start(self.log, *self.command)

    def run(self, *arguments: str) -> tuple[int, str]:
        done = self.taxmeter(*arguments)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def left_there(self) -> list[Path]:
        return sorted(self.work.rglob("*"))

    def records(self) -> list[Path]:
        return list(self.work.glob("campaigns/*/*/records.jsonl"))


@pytest.fixture
def lab(tmp_path: Path, sshd: Sshd, cpu_python: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, sshd, str(cpu_python))
    yield made
    made.end()


def runners_of(lab: Lab) -> list[str]:
    return [found for found in processes_naming(lab.work) if "runners" in found]


def test_a_sweep_runs_in_the_interpreter_and_leaves_nothing_there(lab: Lab, cpu_python: Path) -> None:
    code, told = lab.run("hosts", "check", "--format", "json")
    assert code == ExitCode.OK, told
    assert "python 3.11" in told
    LOCKS.mkdir(mode=0o1777, parents=True, exist_ok=True)
    with (LOCKS / "host").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with lab.sweep() as process:
            try:
                lab.wait_for(lambda: "another cluster measures there" in lab.told, process, lab.log)
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
    code, told = lab.run(*lab.command)
    assert code == ExitCode.OK, told
    [campaign] = {row["campaign_id"] for row in lab.rows()}
    code, told = lab.run("reproduce", campaign, "--host", "far")
    assert code in (ExitCode.OK, ExitCode.TRIALS_FAILED), told  # times of a busy machine may differ
    again = [row for row in lab.rows() if row["reproduces"] == campaign]
    assert {row["status"] for row in again} == {"ok"}, told
    assert {(row["host"], row["isolation"]) for row in again} == {("far", "process")}
    assert lab.left_there() == []


def test_what_a_killed_command_left_there_is_stored_by_the_next(lab: Lab) -> None:
    with lab.sweep() as process:
        lab.wait_for(lambda: bool(lab.records()), process, lab.log)
        lab.wait_for(lambda: b'"record"' in lab.records()[0].read_bytes(), process, lab.log)
        os.killpg(process.pid, signal.SIGKILL)
    wait_for(lambda: not runners_of(lab), 30)
    [records] = lab.records()
    for mirror in (lab.root / ".taxmeter").glob("campaigns/*/*/records.jsonl"):
        mirror.write_bytes(b"")  # as if nothing of it had come
    first = records.read_bytes()
    code, told = lab.run(*lab.command)
    assert code == ExitCode.OK, told
    ran = [row for row in lab.rows() if row["status"] == "ok"]
    assert len({row["trial_id"] for row in ran}) == len(ran) == 4
    assert sum(row["trial_id"].encode() in first for row in ran) >= 1
    assert len({row["campaign_id"] for row in ran}) == 1
    assert lab.left_there() == []


@pytest.mark.long
def test_a_lost_connection_costs_the_running_trial_alone(lab: Lab) -> None:
    with lab.sweep() as process:
        lab.wait_for(lambda: bool(lab.records()), process, lab.log)
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
    code, told = lab.run(*lab.command)
    assert code == ExitCode.NO_USABLE_HOST, told
    assert f"{sys.executable} there is not what the lock of cpu says: " in told
    assert lab.stored() == set()
    lab.inventory(python="/nowhere/python")
    code, told = lab.run("hosts", "check")
    assert code == ExitCode.NO_USABLE_HOST
    assert "/nowhere/python: " in told
    assert "correct `python:`" in told
