"""A real campaign, watched, drained, killed, stopped and gone on with from another process than its driver's."""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.store import Store

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SLEEPS = """
version: 1
name: sleeps
environments: [cpu]
workloads: [{name: synthetic-sleep, batch: [1, 2]}]
backends: [python]
rounds: 6
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, sync_budget_ms: 1200, sync_min_samples: 3,
   pipelined_budget_ms: 100, pipelined_min_samples: 1, pipelined_block_ms: 10, precision_permille: 0,
   floor_budget_ms: 0}
"""
INVENTORY = "version: 1\nhosts: {bench: {connection: local, executor: process}}\n"
TRIALS, PER_TASK = 12, 2


class Project:
    """A directory in which sweeps run, with the environments of this project."""

    def __init__(self, directory: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.capsys = capsys
        self.drivers: list[subprocess.Popen[str]] = []
        self.store = Store.open(directory / "results")
        (directory / "docker").symlink_to(project / "docker")
        (directory / ".taxmeter").mkdir()
        (directory / ".taxmeter" / "environments").symlink_to(project / ".taxmeter" / "environments")
        (directory / "hostinventory.yaml").write_text(INVENTORY)
        (directory / "sleeps.yaml").write_text(SLEEPS)

    def end(self) -> None:
        """Nothing that a failed test left runs on."""
        for driver in self.drivers:
            if driver.poll() is None:
                driver.terminate()
                driver.communicate(timeout=60)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        driver = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "sweep", *arguments],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A shell starts what runs in its background deaf to Ctrl-C, and children inherit that
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.drivers.append(driver)
        return driver

    def run(self, *arguments: str) -> tuple[int, str]:
        """A command in this process, which is another than the driver's; its exit code and what it says."""
        self.capsys.readouterr()
        code = run(["sweep", *arguments])
        said = self.capsys.readouterr()
        return code, said.out + said.err

    def rows(self) -> int:
        return self.store.trials(["trial_id"]).num_rows

    def wait_for_rows(self, at_least: int, driver: "subprocess.Popen[str]") -> None:
        wait_until(lambda: self.rows() >= at_least or driver.poll() is not None)
        assert driver.poll() is None, driver.communicate()[0]


def wait_until(happened: Callable[[], bool], within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.1)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def lab(
    cpu_python: Path,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    made = Project(tmp_path, project, capsys)
    yield made
    made.end()


def test_a_campaign_is_steered_from_another_process(lab: Project, tmp_path: Path) -> None:
    driver = lab.start("run", "sleeps.yaml")
    lab.wait_for_rows(1, driver)
    code, said = lab.run("status")
    assert code == ExitCode.OK, said
    assert "is running on this machine" in words(said)
    assert max(map(len, said.splitlines())) <= 80
    wait_until(lambda: "synthetic-sleep python batch" in words(lab.run("status")[1]))

    # drained: what runs ends, and no more begins
    code, said = lab.run("drain")
    assert code == ExitCode.OK, said
    assert "to drain all hosts" in said
    said, _ = driver.communicate(timeout=120)
    done = lab.rows()
    assert done % PER_TASK == 0, said
    assert 0 < done < TRIALS
    code, said = lab.run("status")
    assert code == ExitCode.TRIALS_FAILED
    assert f"is not finished: {TRIALS - done} of {TRIALS} trials are left" in words(said)

    # the store alone is enough from here on
    (tmp_path / "sleeps.yaml").unlink()
    (tmp_path / "hostinventory.yaml").write_text("version: 1\nhosts: {other: {connection: local}}\n")
    driver = lab.start("resume")
    lab.wait_for_rows(done + 1, driver)
    driver.kill()
    driver.communicate()
    code, said = lab.run("status")
    assert code == ExitCode.TRIALS_FAILED
    assert "died; its last sign of life came" in words(said)

    driver = lab.start("resume")
    lab.wait_for_rows(lab.rows() + 1, driver)
    code, said = lab.run("stop")
    assert code == ExitCode.OK
    assert "has ended:" in said
    said, _ = driver.communicate(timeout=60)
    assert driver.returncode == ExitCode.INTERRUPTED, said

    driver = lab.start("resume")
    said, _ = driver.communicate(timeout=120)
    assert driver.returncode == ExitCode.OK, said
    assert "of sweep sleeps, begun" in said
    rows = lab.store.trials(["trial_id", "status", "host"]).to_pylist()
    assert Counter((row["status"], row["host"]) for row in rows) == {("ok", "bench"): TRIALS}
    assert len({row["trial_id"] for row in rows}) == TRIALS
    assert lab.store.campaigns().num_rows == 1
    assert list((tmp_path / ".taxmeter" / "campaigns").glob("*")) == []
    code, said = lab.run("status")
    assert code == ExitCode.OK
    assert f"is finished: {TRIALS} trials" in words(said)
    assert lab.run("resume") == (ExitCode.OK, "nothing is left of any campaign\n")
