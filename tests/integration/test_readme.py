"""The commands of README about a sweep of one's own; `test_sweep_end_to_end.py` has those that ask the store."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from orchestrator.campaign.exchange.manifest import read_manifest
from orchestrator.cli import run
from orchestrator.errors import ExitCode


def commands(project: Path, heading: str) -> list[list[str]]:
    """The first block of commands below a heading."""
    section = (project / "README.md").read_text().partition(f"## {heading}\n")[2]
    [block] = re.findall(r"^```sh\n(.*?)^```", section.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def made(command: list[str]) -> list[str]:
    """The arguments of the `taxmeter` that make would call."""
    done = subprocess.run([command[0], "-n", *command[1:]], capture_output=True, text=True, check=True)
    [line] = [line for line in done.stdout.splitlines() if line.startswith(".venv/bin/taxmeter")]
    return shlex.split(line)[1:]


@pytest.fixture
def without_an_engine(in_project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    return in_project


def test_a_sweep_of_ones_own_is_planned_and_exported(
    without_an_engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, box = str(tmp_path / "mine.yaml"), tmp_path / "gpu-box"
    copy, plan, sweep = (
        [word.replace("sweeps/mine.yaml", mine) for word in command]
        for command in commands(without_an_engine, "Your own question")
    )
    subprocess.run(copy, check=True)
    assert run(made(plan)) == ExitCode.OK
    assert "at least 57 trials" in capsys.readouterr().out
    assert made(sweep)[:3] == ["sweep", "run", mine]
    lab, _, export = commands(without_an_engine, "Many machines")
    assert made(lab)[:5] == ["sweep", "run", "sweeps/quickstart.yaml", "--inventory", "lab.yaml"]
    export[export.index("sweeps/mine.yaml")] = mine
    export[export.index("--output") + 1] = str(box)
    assert run(export[1:]) == ExitCode.OK
    assert read_manifest(box).planned_trials >= 57
