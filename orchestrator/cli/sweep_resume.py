"""`taxmeter sweep resume`: goes on with a campaign from what the store knows of it, and from nothing else."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from orchestrator.campaign import ProjectFiles
from orchestrator.campaign.control import ControlFiles
from orchestrator.campaign.reproducing.repeating import is_reproduction
from orchestrator.campaign.resuming.pinned import Pinned, go_on, pinned, refuse_other_locks
from orchestrator.cli.campaigns import exit_code, known_environments, telling
from orchestrator.cli.local_sweep import run_sweep
from orchestrator.cli.options import limit_option, open_existing, open_results, results_option
from orchestrator.cli.ordering import Wanted
from orchestrator.cli.results.showing import known_campaign
from orchestrator.config.inventory import Host, active_hosts, load_inventory, select_hosts
from orchestrator.config.sweep import load_sweep
from orchestrator.environments import Catalogue
from orchestrator.errors import ConfigurationError, ExitCode, NoUsableHostError
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
    directory = files.state / "resume" / campaign.campaign_id
    sweep_file, stored_inventory = _documents(row, directory)
    sweep = load_sweep(sweep_file)
    at = inventory or stored_inventory
    hosts = _hosts(at, limit, campaign, waiting)
    known_environments(sweep, sweep_file, files)
    refuse_other_locks(campaign, Catalogue.load(files.catalogue))
    code = run_sweep(
        Wanted(sweep, sweep_file, hosts, at, files),
        results_directory,
        telling(lambda at_hand, results, _absent: go_on(campaign, sweep, at_hand, results)),
    )
    if not code:
        shutil.rmtree(directory)  # else it stays, for errors that name its files
    return code


def _row(campaign_id: str | None, results: Path) -> Mapping[str, Any] | None:
    """The row of a campaign; null if none is named and none is unfinished."""
    opened = open_results(results)
    if campaign_id is not None:
        return known_campaign(opened, campaign_id, results)
    rows = {row["campaign_id"]: row for row in opened.campaigns().arrow().to_pylist()}
    for one in campaign_list(opened.view()).to_pylist():
        row: Mapping[str, Any] = rows[one["campaign_id"]]
        if one["left_to_do"] and not is_reproduction(row):
            return row
    return None


def _documents(row: Mapping[str, Any], directory: Path) -> tuple[Path, Path]:
    """The texts of then as files, which errors can name."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep, inventory = directory / "sweep.yaml", directory / "inventory.yaml"
    sweep.write_text(row["sweep_document"], encoding="utf-8")
    inventory.write_text(row["inventory_document"], encoding="utf-8")
    return sweep, inventory


def _hosts(inventory: Path, limit: str | None, campaign: Pinned, waiting: Mapping[str, int]) -> dict[str, Host]:
    """Those with something left to do. A host that the campaign does not know may get a part in it."""
    chosen = active_hosts(select_hosts(load_inventory(inventory), limit), click.echo)
    done = [name for name in chosen if name in campaign.plan.places and name not in waiting]
    left = {name: host for name, host in chosen.items() if name not in done}
    if not left:
        places = ", ".join(f"{place} ({count})" for place, count in waiting.items())
        raise ConfigurationError(
            f"nothing is left to do on {', '.join(done)}; trials are left on {places}", file=inventory
        )
    return left


def _begun(campaign: Pinned, waiting: Mapping[str, int]) -> str:
    began = f"{campaign.row['started_at']:%Y-%m-%d %H:%M} UTC"
    places = ", ".join(f"{place} {count}" for place, count in waiting.items())
    what = f"of {campaign.row['planned_trials']} trials {sum(waiting.values())} are left ({places})"
    if not waiting:
        what = f"all {campaign.row['planned_trials']} trials are in the store"
    return f"campaign {campaign.campaign_id} of sweep {campaign.row['sweep']}, begun {began}: {what}"
