"""`taxmeter sweep resume`: goes on with a campaign from what the store knows of it, and from nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from orchestrator.campaign import ControlFiles, ProjectFiles, RunRequest, is_reproduction
from orchestrator.campaign.resuming.pinned import Pinned, go_on, pinned, refuse_other_locks
from orchestrator.cli.campaigns import exit_code, git_commit, known_environments
from orchestrator.cli.options import limit_option, open_existing, open_results, results_option
from orchestrator.cli.results import known_campaign
from orchestrator.cli.sweep import run_and_show
from orchestrator.config import Host, Inventory, Source, active_hosts, load_inventory, load_sweep, select_hosts
from orchestrator.environments import Catalogue
from orchestrator.errors import ExitCode, NoUsableHostError
from orchestrator.store.query.listing import campaign_list


@click.command("resume")
@click.argument("campaign_id", metavar="[CAMPAIGN]", required=False)
@click.option(
    "--inventory",
    type=click.Path(path_type=Path),
    default=None,
    help="The machines; by default as the inventory described them that the campaign is stored with.",
)
@limit_option
@results_option
def resume_command(
    campaign_id: str | None, inventory: Path | None, limit: str | None, results_directory: Path
) -> int | None:
    """Goes on with a campaign, by default with the newest that is not finished.

    Sweep, inventory and plan are those of the store: their files may have changed or be gone. What is not as it was
    then, such as an image or a lock, is refused.
    """
    files = ProjectFiles(Path.cwd())
    control = ControlFiles(files.control)
    running = control.state()
    if control.is_alive():
        name = "a campaign" if running is None else running.campaign_id
        raise NoUsableHostError(f"{name} of this project runs; `taxmeter sweep status` shows it")
    store = open_existing(results_directory)
    row = _row(campaign_id, results_directory)
    if row is None:
        click.echo("nothing is left of any campaign")
        return ExitCode.OK
    campaign = pinned(row, store)
    waiting = campaign.plan.waiting(store.attempts(campaign.campaign_id))
    click.echo(_begun(campaign, waiting))
    if not waiting:
        return exit_code(store.attempts(campaign.campaign_id).values())
    again = load_sweep(Source(Path(f"sweep of {campaign.campaign_id}"), row["sweep_document"]))
    stored = Source(Path(f"inventory of {campaign.campaign_id}"), row["inventory_document"])
    at = load_inventory(stored if inventory is None else inventory)
    hosts = _hosts(at, limit, campaign, waiting)
    known_environments(again, files)
    refuse_other_locks(campaign, Catalogue.load(files.catalogue))
    request = RunRequest(again, at, hosts, files, results_directory, git_commit())
    return run_and_show(request, lambda at_hand, results, _absent: go_on(campaign, again, at_hand, results))


def _row(campaign_id: str | None, results: Path) -> Mapping[str, Any] | None:
    """The row of a campaign; null if none is named and none is unfinished."""
    opened = open_results(results)
    if campaign_id is not None:
        return known_campaign(opened, campaign_id, results)
    rows = {row["campaign_id"]: row for row in opened.campaigns().arrow().to_pylist()}
    for listed in campaign_list(opened.view()).to_pylist():
        row: Mapping[str, Any] = rows[listed["campaign_id"]]
        if listed["left_to_do"] and not is_reproduction(row):
            return row
    return None


def _hosts(inventory: Inventory, limit: str | None, campaign: Pinned, waiting: Mapping[str, int]) -> dict[str, Host]:
    """Those with something left to do. A host that the campaign does not know may get a part in it."""
    chosen = active_hosts(select_hosts(inventory, limit), click.echo)
    done = [name for name in chosen if name in campaign.plan.places and name not in waiting]
    left = {name: host for name, host in chosen.items() if name not in done}
    if not left:
        places = ", ".join(f"{place} ({count})" for place, count in waiting.items())
        raise inventory.error(f"nothing is left to do on {', '.join(done)}; trials are left on {places}")
    return left


def _begun(campaign: Pinned, waiting: Mapping[str, int]) -> str:
    began = f"{campaign.row['started_at']:%Y-%m-%d %H:%M} UTC"
    places = ", ".join(f"{place} {count}" for place, count in waiting.items())
    what = f"of {campaign.row['planned_trials']} trials {sum(waiting.values())} are left ({places})"
    if not waiting:
        what = f"all {campaign.row['planned_trials']} trials are in the store"
    return f"campaign {campaign.campaign_id} of sweep {campaign.row['sweep']}, begun {began}: {what}"
