"""`taxmeter paper`: the paper's figures and tables again, from what is in the store."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from orchestrator.analysis.claiming import Decision, claim_columns, configurations, decide, load_claims
from orchestrator.analysis.comparing.reading import Moment
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.paper import PUBLISHED, load_published, read_trials
from orchestrator.cli.compare import Names, where_option
from orchestrator.cli.options import inventory_option, limit_option, place_option, require_store
from orchestrator.cli.paper_measuring import DEVICES, measure
from orchestrator.cli.sweep import resume_option
from orchestrator.errors import ConfigurationError, ExitCode, did_you_mean
from orchestrator.report.figures.catalogue import chosen
from orchestrator.store import Results

_CLAIMS: Final = Path("claims/paper")
_SWEEPS: Final = Path("sweeps/paper")
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
    type=click.Choice(DEVICES),
    default=DEVICES[0],
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
        if code not in (ExitCode.OK, ExitCode.TRIALS_FAILED):
            return code
    published = load_published(PUBLISHED)
    results = require_store(place)
    trials = read_trials(results, where)
    decisions = _decided(results, where)
    try:
        from orchestrator.report.figures.index import Written
        from orchestrator.report.figures.writing import write_paper
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


def _decided(results: Results, where: Sequence[str]) -> list[Decision]:
    """The paper's claims, from the trials that are drawn; none where the project has none."""
    if not _CLAIMS.is_dir():
        return []
    moment = Moment.of(results)
    rows = moment.rows(claim_columns(), moment.condition(parse_conditions(where, "--where")))
    every = configurations(rows)
    return [decide(claim, every) for claim in load_claims([_CLAIMS]).values()]
