"""`taxmeter claims`: which findings the store confirms, which it refutes, and what it lacks to decide."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from orchestrator.analysis.claims import Claim, Finding, decide_all, load_claims
from orchestrator.cli.compare import where_option
from orchestrator.cli.options import format_option
from orchestrator.cli.stores import place_option, require_store
from orchestrator.cli.tables import wide_console
from orchestrator.errors import ConfigurationError, ExitCode, did_you_mean
from orchestrator.report.claims import claims_document, claims_markdown, render_claims

_DIRECTORY: Final = Path("claims")


@click.command("claims")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@place_option
@where_option
@click.option(
    "--claims",
    "paths",
    type=click.Path(path_type=Path),
    multiple=True,
    default=(_DIRECTORY,),
    show_default=True,
    help="Files of claims, or directories of such files.",
)
@format_option("table", "json", "markdown")
@click.option(
    "--require",
    type=click.Choice(["holds", "no-failure"]),
    help="Exit with 1 unless all claims hold, or if one fails.",
)
def claims_command(
    ids: tuple[str, ...],
    place: str | Path,
    where: tuple[str, ...],
    paths: tuple[Path, ...],
    form: str,
    require: str | None,
) -> ExitCode:
    """Decides claims from what is in the store: each holds, fails, or has not enough data.

    A claim is a finding as a query with a threshold; where its source prints a value, a second verdict says whether
    that lies in the interval. Those of the paper stand in claims/paper; docs/claims.md says how to write one. With IDs,
    only these are decided, and told in full. The exit code does not depend on verdicts, unless --require says so.
    """
    claims = _chosen(load_claims(paths), ids)
    decisions = decide_all(require_store(place), claims, where)
    if form == "json":
        click.echo(json.dumps(claims_document(decisions), indent=2, ensure_ascii=False))
    elif form == "markdown":
        click.echo(claims_markdown(decisions), nl=False)
    else:
        wide_console().print(render_claims(decisions, detailed=bool(ids)))
    findings = {decision.finding for decision in decisions}
    missed = findings - {Finding.HOLDS} if require == "holds" else findings & {Finding.FAILS}
    return ExitCode.TRIALS_FAILED if require is not None and missed else ExitCode.OK


def _chosen(claims: Mapping[str, Claim], ids: tuple[str, ...]) -> dict[str, Claim]:
    for name in ids:
        if name not in claims:
            raise ConfigurationError(f"no claim {name}; {did_you_mean(name, claims)}")
    return {name: claim for name, claim in claims.items() if not ids or name in ids}
