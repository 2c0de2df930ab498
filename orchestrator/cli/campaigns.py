"""`taxmeter results show | log | coverage`: what one campaign came to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator.analysis.summary import columns, summarise
from orchestrator.cli.stores import open_results, place_option
from orchestrator.cli.tables import wide_console, write_text
from orchestrator.errors import ConfigurationError, some_of
from orchestrator.report.coverage import coverage_columns, coverage_page
from orchestrator.report.terminal import render
from orchestrator.store import Results, Selection
from orchestrator.store.query.selection import begins, equals
from runners.contract import Status

_AMBIGUOUS_SHOWN = 3
_ID_SHOWN = 12
_LOGGED = ("trial_id", "attempt", "workload", "backend", "batch", "host", "status", "reason", "log_tail")


@click.command()
@click.argument("campaign_id", required=False)
@click.option("--intervals", is_flag=True, help="With all intervals.")
@place_option
def show(campaign_id: str | None, place: str | Path, intervals: bool) -> None:
    """Shows the table of one campaign, by default of the newest. The beginning of its id is enough."""
    opened = open_results(place)
    print_summary(opened, known_campaign(opened, campaign_id, place)["campaign_id"], intervals)


@click.command("log")
@click.argument("trial", required=False)
@place_option
def show_log(trial: str | None, place: str | Path) -> None:
    """Shows how a trial ended, why, and the end of its log. The beginning of its id is enough.

    Without TRIAL: of the newest campaign one trial for each reason for which trials did not end ok.
    """
    opened = open_results(place)
    if trial is None:
        campaign = known_campaign(opened, None, place)["campaign_id"]
        rows = _trials_of(opened, campaign, _LOGGED).arrow().to_pylist()
        ended = {
            (row["status"], row["reason"]): row for row in rows if row["status"] not in (Status.OK, Status.SKIPPED)
        }
        if not ended:
            click.echo(f"{campaign}: every trial that ran ended ok")
        rows = list(ended.values())
    else:
        rows = opened.trials(begins("trial_id", trial), _LOGGED).arrow().to_pylist()
        names = sorted({row["trial_id"] for row in rows})
        if not names:
            raise ConfigurationError(f"{place}: no trial {trial}; `taxmeter results log` shows those that failed")
        if len(names) > 1:
            shown = ", ".join(some_of([name[:_ID_SHOWN] for name in names], _AMBIGUOUS_SHOWN))
            raise ConfigurationError(f"{place}: {trial} is the beginning of {len(names)} trials ({shown})")
    for row in sorted(rows, key=lambda row: (row["trial_id"], row["attempt"])):
        what = f"{row['workload']} {row['backend']} batch {row['batch']}"
        click.echo(f"{row['trial_id']} attempt {row['attempt']}: {what} on {row['host']}, {row['status']}")
        for line in (row["reason"] or "no reason").splitlines():
            click.echo(f"  {line.expandtabs()}")
        for line in (row["log_tail"] or "no log").splitlines():
            click.echo(f"  | {line.expandtabs()}")


@click.command()
@click.argument("campaign_ids", nargs=-1)
@place_option
@click.option("--output", type=click.Path(path_type=Path), help="A file for the page; printed without it.")
def coverage(campaign_ids: tuple[str, ...], place: str | Path, output: Path | None) -> None:
    """Says what ran and what did not in one campaign or several, by default the newest, as a page of Markdown."""
    opened = open_results(place)
    campaigns = [known_campaign(opened, campaign_id, place) for campaign_id in campaign_ids or (None,)]
    trials = [_trials_of(opened, campaign["campaign_id"], coverage_columns()).arrow() for campaign in campaigns]
    page = coverage_page(campaigns, trials, opened.environments().arrow())
    if output is None:
        click.echo(page, nl=False)
    else:
        write_text(output, page)


def known_campaign(opened: Results, campaign_id: str | None, place: str | Path) -> dict[str, Any]:
    """The row of a campaign, by its id or a beginning that no other shares; by default of the newest."""
    rows = opened.campaigns().arrow().sort_by([("started_at", "descending")]).to_pylist()
    if not rows:
        raise ConfigurationError(f"{place}: no campaign yet; run `make cluster-sweep`")
    if campaign_id is None:
        return dict(rows[0])
    chosen = [row for row in rows if row["campaign_id"] == campaign_id]
    chosen = chosen or [row for row in rows if row["campaign_id"].startswith(campaign_id)]
    if not chosen:
        raise ConfigurationError(f"{place}: no campaign {campaign_id}; `taxmeter results ls` lists them")
    if len(chosen) > 1:
        names = ", ".join(some_of([row["campaign_id"] for row in chosen], _AMBIGUOUS_SHOWN))
        raise ConfigurationError(f"{place}: {campaign_id} may be {names}; write more of the id")
    return dict(chosen[0])


def print_summary(opened: Results, campaign_id: str, intervals: bool = False) -> None:
    """Prints the table of a campaign."""
    wide_console().print(render(summarise(_trials_of(opened, campaign_id, columns()).arrow()), intervals))


def _trials_of(opened: Results, campaign_id: str, names: Sequence[str]) -> Selection:
    return opened.trials(equals("campaign_id", campaign_id), names)
