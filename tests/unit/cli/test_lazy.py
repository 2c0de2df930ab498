"""What commands import, no more than they need; and how `make` calls them."""

import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from orchestrator.cli import results, taxmeter
from orchestrator.cli.options import LazyGroup
from orchestrator.cli.sweep import run_command
from tests.conftest import PROJECT

SCRIPT = """
import sys
from contextlib import redirect_stdout
before = set(sys.modules)
from orchestrator.cli import run
with redirect_stdout(sys.stderr):
    run(sys.argv[1:])
new = set(sys.modules) - before
theirs = {name.partition(".")[0] for name in new} - set(sys.stdlib_module_names) - {"orchestrator"}
print(*sorted([*theirs, *(name for name in new if name.startswith("orchestrator"))]))
"""
LEAST = {
    "click",
    *(f"orchestrator{name}" for name in ("", ".boundary", ".cli", ".cli.options", ".cli.terminal", ".errors")),
}


def imported(*arguments: str) -> set[str]:
    """The libraries, and the modules of ours, that a command imports."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["results", "--help"]])
def test_what_only_tells_what_there_is_imports_nothing_of_it(arguments: list[str]) -> None:
    assert imported(*arguments) == LEAST


def test_listing_campaigns_imports_what_reads_and_nothing_that_plans_or_runs(tmp_path: Path) -> None:
    read = imported("results", "ls", "--results", str(tmp_path))
    others = {"duckdb", "pydantic", "ruamel", "docker", "ray", "requests"}
    assert read >= {"pyarrow", "rich"}
    assert not read & {*others, "orchestrator.config", "orchestrator.planning"}


def test_a_query_ends_without_a_word_of_what_duckdb_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orchestrator", "results", "sql", "--results", str(tmp_path), "SELECT 1 AS one"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ("one" in done.stdout, done.stderr) == (True, "")


@pytest.mark.parametrize("group", [taxmeter, results])
def test_each_command_is_where_its_group_has_it(group: LazyGroup) -> None:
    context = click.Context(group)
    told = group.get_help(context)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert f"\n  {name} " in told
    assert group.get_command(context, "swep") is None


def test_make_passes_more_time_on() -> None:
    command = ["make", "-n", "cluster-sweep", "MORE=10m", "RESUME=1"]
    shown = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in shown.splitlines() if "taxmeter sweep run" in line]
    asked = run_command.make_context("run", shlex.split(line.partition(" sweep run ")[2])).params
    assert (asked["more"], asked["resume"]) == (600, "always")
