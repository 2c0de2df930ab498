"""`taxmeter paper`: the paper's figures and tables again, from what is in the store, which it can measure first."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from orchestrator.analysis.claims import decide_all, load_claims
from orchestrator.analysis.paper import PUBLISHED, load_published, read_trials
from orchestrator.campaign import listed
from orchestrator.cli.compare import Names, where_option
from orchestrator.cli.options import inventory_option, limit_option
from orchestrator.cli.stores import place_option, require_store
from orchestrator.cli.sweep import resume_option
from orchestrator.config import active_hosts, load_inventory, select_hosts
from orchestrator.errors import ConfigurationError, ExitCode, NoUsableHostError, did_you_mean
from orchestrator.files import ProjectFiles
from orchestrator.hosts import open_hosts
from orchestrator.planning import choose_gpus, used_of
from orchestrator.report.figures.catalogue import chosen

_CLAIMS: Final = Path("claims/paper")
_SWEEPS: Final = Path("sweeps/paper")
_DEVICES: Final = ("auto", "cuda", "cpu")
_FINISHED: Final = (ExitCode.OK, ExitCode.TRIALS_FAILED)
_FORMATS: Final = ("png", "svg", "pdf")


@click.command("paper")
@click.option("--figures", type=Names(), default=(), metavar="NAME,…", help="Such as 1,4,table-1; all without it.")
@where_option
@place_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("paper"),
    show_default=True,
    help="The directory for figures, tables and their index.",
)
@click.option(
    "--formats", type=Names(), default=_FORMATS, metavar="NAME,…", show_default=",".join(_FORMATS), help="Of the files."
)
@click.option("--measure", "is_measuring", is_flag=True, help="First run the sweeps of the paper that this lab can.")
@click.option("--quick", is_flag=True, help="With --measure: shortened sweeps, within 20 minutes on two cores.")
@click.option(
    "--device",
    type=click.Choice(_DEVICES),
    default=_DEVICES[0],
    show_default=True,
    help="With --measure: what computes; auto takes GPUs where there is one.",
)
@inventory_option
@limit_option
@resume_option
def paper_command(
    figures: tuple[str, ...],
    where: tuple[str, ...],
    place: str | Path,
    output: Path,
    formats: tuple[str, ...],
    is_measuring: bool,
    quick: bool,
    device: str,
    inventory: Path,
    limit: str | None,
    resume: str,
) -> int:
    """Draws the paper's figures 1 and 3 to 13 and its tables 1 to 3, as PNG, SVG and PDF, with an index.

    Each figure shows what the store has of the points that its sweep in sweeps/paper asks for, of one machine and one
    software; what is missing is drawn as missing. docs/paper/README.md tells how to read them.
    """
    specs = chosen(figures)
    _refuse_formats(formats)
    if quick and not is_measuring:
        raise ConfigurationError("shortens what is measured; add --measure", key="--quick")
    if is_measuring:
        code = measure(inventory, limit, _directory(place), _SWEEPS, quick=quick, device=device, resume=resume)
        if code not in _FINISHED:
            return code
    published = load_published(PUBLISHED)
    results = require_store(place)
    trials = read_trials(results, where)
    claims = load_claims([_CLAIMS]) if _CLAIMS.is_dir() else {}
    decisions = decide_all(results, claims, where)
    try:
        from orchestrator.report.figures.write import Written, write_paper
    except ImportError as error:
        raise ConfigurationError(
            f"{error.name} is not installed, which draws; `make paper` installs it, or `requirements/sync report`"
        ) from None

    def told(written: Written) -> None:
        sheet = written.sheet
        click.echo(f"{sheet.spec.label:9} {sheet.state.value:7}  {sheet.completeness.partition('. ')[0]}")

    path = write_paper(output, specs, trials, published, _SWEEPS, decisions, formats, told)
    click.echo(f"{path}: all of them, beside the paper's numbers")
    return ExitCode.OK


def measure(
    inventory: Path, limit: str | None, results: Path, sweeps: Path, *, quick: bool, device: str, resume: str
) -> int:
    """Runs the sweeps for the lab's device; one that is in the store is not run again, unless `resume` says so.

    Each is a `taxmeter sweep run` of its own, which ends cleanly on Ctrl-C and goes on when this is run again.

    Args:
        resume: as `taxmeter sweep run` has it; `auto` takes finished campaigns as they are, too.

    Returns:
        The exit code of the sweep that ended it, or 1 if trials failed, else 0.
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


def _refuse_formats(formats: Sequence[str]) -> None:
    for name in formats or ("",):
        if name not in _FORMATS:
            raise ConfigurationError(
                f"{name or 'nothing'} is no format; {did_you_mean(name, _FORMATS)}", key="--formats"
            )


def _directory(place: str | Path) -> Path:
    if isinstance(place, str):
        raise ConfigurationError(f"{place}: measuring writes; give a directory with --results")
    return place
