"""The clock of the checks, where each of them hangs for as long as it may; and one that really hangs."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from runners.check import __main__ as command
from runners.check import running
from runners.check.running import CHECKS, NAMES, Findings, Size
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
    given, ended_s = hang(monkeypatch, tmp_path, False, 200)
    assert list(given) == ["nvml", "fork", "cells", "profiler"]
    assert ended_s <= 195
    dropped = [json.loads(line) for line in (tmp_path / "check.jsonl").read_text().splitlines()][4:]
    assert [(line["check"], line["status"]) for line in dropped] == [(name, "skipped") for name in NAMES[4:]]
    assert dropped[0]["reason"] == "5 s are left, and it needs 15"


def test_a_check_that_hangs_is_killed_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    monkeypatch.setattr(running.sys, "executable", str(python))
    for script, problem in (
        ("sleep 600 &\nsleep 600", "no answer within 1 s"),
        ("exit 7", "it ended without an answer (exit code 7)"),
    ):
        python.write_text("#!/bin/sh\n" + script)
        python.chmod(0o755)
        found = running._run("nvml", str(tmp_path), Size(), 1.0)
        assert found.problems == [problem + "; check.log has what it printed"]


def test_in_an_image_runners_spare_the_checks_that_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str | None] = []
    monkeypatch.setattr(sys, "argv", ["check", "out", "--quick", "--seconds", "60"])
    monkeypatch.setenv(PRIVATE_NAMESPACE_VARIABLE, "1")
    monkeypatch.setattr(command, "settle", lambda on_gpu: None)
    monkeypatch.setattr(running, "run_all", lambda *_: left.append(os.environ.get(PRIVATE_NAMESPACE_VARIABLE)) or 0)
    assert command.main() == 0
    assert left == [None]
