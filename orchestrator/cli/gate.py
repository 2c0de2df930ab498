"""`taxmeter gate`: for continuous integration; fails on a slow-down that is beyond doubt, and on nothing else."""

from pathlib import Path

import click

from orchestrator.analysis.comparing import gate
from orchestrator.analysis.comparing.gating import MAX_SLOWDOWN
from orchestrator.cli.compare import Percent, policy_of, selecting
from orchestrator.cli.options import place_option, require_store
from orchestrator.cli.results.tables import wide_console
from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.report.gating import gate_junit, gate_markdown, render_gate


@click.command("gate")
@click.option("--baseline", multiple=True, required=True, metavar="SELECTION", help="Such as campaign=previous.")
@click.option(
    "--candidate",
    multiple=True,
    default=("campaign=newest",),
    metavar="SELECTION",
    show_default="campaign=newest",
    help="What must not be slower.",
)
@click.option(
    "--max-slowdown",
    type=Percent(),
    default=MAX_SLOWDOWN,
    metavar="PERCENT",
    show_default="5%",
    help="What is allowed. Twice the noise floor takes its place where that is more.",
)
@selecting
@click.option("--require-all", is_flag=True, help="Fail, too, if the candidate lacks what the baseline has.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="A file for the cells as JUnit's XML.")
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False),
    help='A file that a page is added to, such as "$GITHUB_STEP_SUMMARY".',
)
@place_option
def gate_command(
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    max_slowdown: float,
    where: tuple[str, ...],
    match: tuple[str, ...] | None,
    metric_name: str | None,
    pool: tuple[str, ...],
    latest: bool,
    without_flagged: bool,
    interval: str,
    require_all: bool,
    junit: Path | None,
    markdown: Path | None,
    place: str | Path,
) -> ExitCode:
    """Says whether anything became slower by more than is allowed, beyond doubt.

    Exit code 0: nothing did, or it is not proven. 1: something did. 2: there is nothing to compare, or the options are
    wrong.
    """
    policy = policy_of(metric_name, pool, latest=latest, without_flagged=without_flagged, interval=interval)
    found = gate(require_store(place), baseline, candidate, max_slowdown, match, where, policy, require_all=require_all)
    console = wide_console()
    console.print(render_gate(found))
    if junit is not None:
        _write(junit, gate_junit(found), mode="w")
    if markdown is not None:
        _write(markdown, gate_markdown(found), mode="a")
    return ExitCode.OK if found.passed else ExitCode.TRIALS_FAILED


def _write(path: Path, text: str, mode: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"cannot be written: {error.strerror}; name another file", file=path) from None
