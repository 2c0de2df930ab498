"""The clock of the checks, where each of them hangs for as long as it may; and one that really hangs."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from runners.check import __main__ as command
from runners.check import running
from runners.check.running import CHECKS, NAMES, Context, Findings, Size
from runners.supervision.process import PRIVATE_NAMESPACE_VARIABLE


def hang(
    monkeypatch: pytest.MonkeyPatch, out: Path, quick: bool, seconds: int | None
) -> tuple[dict[str, float], float]:
    """What each check that was begun was given, and when the last one ended."""
    now = [1000.0]
    given: dict[str, float] = {}

    def run(name: str, out: str, size: Size, seconds: float) -> Findings:
        given[name] = seconds
        now[0] += seconds
        return Findings(["no answer"])

    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(running, "nothing_to_check", lambda: None)
    monkeypatch.setattr(running, "_MODULES", ())
    monkeypatch.setattr(running, "_run", run)
    assert running.run_all(NAMES, str(out), Size(quick), seconds) == running.EXIT_FAILED
    return given, now[0] - 1000


@pytest.mark.parametrize(("quick", "seconds", "ends_s"), [(False, None, 540), (True, None, 110), (False, 400, 400)])
def test_checks_that_hang_leave_the_later_ones_their_least_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool, seconds: int | None, ends_s: int
) -> None:
    given, ended_s = hang(monkeypatch, tmp_path, quick, seconds)
    assert tuple(given) == NAMES
    for name, check in CHECKS.items():
        limits = check.quick if quick else check.full
        assert limits.least <= given[name] <= limits.most, name
    assert ended_s <= ends_s - 5  # for the tar


def test_where_the_time_is_too_short_the_last_ones_are_dropped_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, ended_s = hang(monkeypatch, tmp_path, False, 190)
    assert list(given) == ["nvml", "fork", "cells", "profiler"]
    assert ended_s <= 185
    dropped = [json.loads(line) for line in (tmp_path / "check.jsonl").read_text().splitlines()][4:]
    assert [(line["check"], line["status"]) for line in dropped] == [(name, "skipped") for name in NAMES[4:]]
    assert dropped[0]["reason"] == "5 s are left, and it needs 15"


def is_dead(pid: int) -> bool:
    """Whether a process is gone, or waits to be reaped alone."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_check_that_hangs_is_killed_when_its_time_is_over_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(context: Context) -> Findings:
        (tmp_path / "descendant").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        time.sleep(600)
        return Findings()

    monkeypatch.setattr(running, "_check_of", lambda name: hangs)
    found = running._run("nvml", str(tmp_path), Size(), 2.0)
    assert found.problems == ["no answer within 2 s; check.log has what it printed"]
    pid, deadline = int((tmp_path / "descendant").read_text()), time.monotonic() + 10
    while not is_dead(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_dead(pid)


def test_a_check_that_raises_or_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(context: Context) -> Findings:
        os._exit(7)

    def raises(context: Context) -> Findings:
        os.write(1, b"what a framework prints\n")
        raise ValueError("of\ntwo lines")

    for check, problem in (
        (dies, f"it failed with status {7 << 8}; check.log has what it printed"),
        (raises, "ValueError: of two lines"),
    ):
        monkeypatch.setattr(running, "_check_of", lambda name, check=check: check)
        assert running._run("nvml", str(tmp_path), Size(), 5.0).problems == [problem]
    assert "what a framework prints\n" in (tmp_path / "check.log").read_text()


def test_in_an_image_runners_spare_the_checks_that_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str | None] = []
    monkeypatch.setattr(sys, "argv", ["check", "out", "--quick", "--seconds", "60"])
    monkeypatch.setenv(PRIVATE_NAMESPACE_VARIABLE, "1")
    monkeypatch.setattr(command, "settle", lambda on_gpu: None)
    monkeypatch.setattr(running, "run_all", lambda *_: left.append(os.environ.get(PRIVATE_NAMESPACE_VARIABLE)) or 0)
    assert command.main() == 0
    assert left == [None]
