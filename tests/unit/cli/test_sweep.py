"""The way from `make` to the options of a sweep."""

import shlex
import subprocess

from orchestrator.cli.sweep import run_command
from tests.conftest import PROJECT


def test_make_passes_more_time_on() -> None:
    command = ["make", "-n", "cluster-sweep", "MORE=10m", "RESUME=1"]
    shown = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in shown.splitlines() if "taxmeter sweep run" in line]
    arguments = shlex.split(line.partition(" sweep run ")[2])
    asked = run_command.make_context("run", arguments).params
    assert (asked["more"], asked["resume"]) == (600, "always")
