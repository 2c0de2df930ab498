"""Runs the sweeps of the paper that a lab can run, one after the other."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from orchestrator.campaign import ProjectFiles, listed
from orchestrator.config import active_hosts, load_inventory, select_hosts
from orchestrator.errors import ConfigurationError, ExitCode, NoUsableHostError
from orchestrator.hosts import open_hosts
from orchestrator.planning import choose_gpus, used_of

DEVICES: Final = ("auto", "cuda", "cpu")
_FINISHED: Final = (ExitCode.OK, ExitCode.TRIALS_FAILED)


def measure(
    inventory: Path, limit: str | None, results: Path, sweeps: Path, *, quick: bool, device: str, resume: str
) -> int:
    """Runs the sweeps for the lab's device; one that is in the store is not run again, unless `resume` says so.

    Each is a `taxmeter sweep run` of its own, which ends cleanly on Ctrl-C and goes on when this is run again.

    Args:
        inventory: the machines.
        limit: which of them.
        results: of the store.
        sweeps: the directory of the paper's sweeps.
        quick: whether to take the shortened ones.
        device: of `DEVICES`.
        resume: as `taxmeter sweep run` has it; `auto` takes finished campaigns as they are, too.

    Returns:
        The exit code of the sweep that ended it, or 1 if trials failed, else 0.

    Raises:
        ConfigurationError: a file is wrong, or there is no sweep.
        NoUsableHostError: no host can be used.
    """
    if device == "auto":
        device = "cuda" if _has_gpu(inventory, limit) else "cpu"
        click.echo(f"the lab is measured on its {'GPUs' if device == 'cuda' else 'processors, for it has no GPU'}")
    worst = int(ExitCode.OK)
    files = chosen_sweeps(sweeps, device, quick=quick)
    for number, path in enumerate(files, 1):
        click.echo(f"\n{path} ({number} of {len(files)})")
        command = ["sweep", "run", str(path), "--inventory", str(inventory), "--results", str(results)]
        command += ["--resume", "always" if resume == "auto" else resume]
        code = _run([*command, *(["--limit", limit] if limit is not None else [])])
        if code not in _FINISHED:
            click.echo(f"{path} ended with exit code {code}; run the same command again to go on", err=True)
            return code
        worst = max(worst, code)
    return worst


def chosen_sweeps(directory: Path, device: str, *, quick: bool) -> list[Path]:
    """The sweeps for a device.

    Args:
        directory: the paper's sweeps; those for GPUs are in it, those for processors and the shortened ones below.
        device: `cuda` or `cpu`.
        quick: whether to take the shortened ones.

    Raises:
        ConfigurationError: there is none.
    """
    short = {"cuda": "gpu", "cpu": "cpu"}[device]
    place = directory / "quick" / short if quick else directory / "cpu" if device == "cpu" else directory
    found = sorted(place.glob("*.yaml"))
    if not found:
        raise ConfigurationError("no sweeps there; run this in the root of the project", file=place)
    return found


def _has_gpu(inventory: Path, limit: str | None) -> bool:
    """Whether a host of the lab has a GPU that trials may use."""
    known = load_inventory(inventory)
    hosts = active_hosts(select_hosts(known, limit), click.echo)
    with open_hosts(hosts, known, ProjectFiles(Path.cwd())) as opened:
        facts, left_out = opened.look()
    if not facts:
        raise NoUsableHostError(f"no host can be used: {listed(left_out)}")
    return any(
        used_of(choose_gpus(hosts[name].gpus, found.topology.gpus).gpus, hosts[name].exclusive)
        for name, found in facts.items()
    )


def _run(arguments: Sequence[str]) -> int:
    done = subprocess.run([sys.executable, "-m", "orchestrator", *arguments], check=False)
    # A process that a signal ended has a negative code.
    return done.returncode if done.returncode >= 0 else ExitCode.INTERRUPTED
