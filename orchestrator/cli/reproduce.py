"""`taxmeter reproduce`: stored trials once more, in the identical environment, then and now side by side."""

from collections.abc import Set
from importlib.metadata import version
from pathlib import Path

import click
import pyarrow as pa

from orchestrator.analysis import Place, Sides, change_columns, changes, compare_sides, reproduction_columns
from orchestrator.campaign import (
    Allowed,
    ProjectFiles,
    Reproduction,
    continuation_of,
    decide,
    drop_caches,
    find,
    make_ready,
    order_again,
    preview,
    ray_scheduler,
    reachable_hosts,
    reap_leftovers,
    refuse_another_method,
    run_campaign,
    targets,
)
from orchestrator.cli.campaigns import ending_cleanly, exit_code, git_commit, host_to_ourselves
from orchestrator.cli.options import inventory_option, results_option
from orchestrator.cli.progress import ProgressLine
from orchestrator.cli.results import open_existing, wide_console
from orchestrator.config.inventory import load_inventory, refuse_nodes
from orchestrator.errors import ExitCode
from orchestrator.report import render_reproduction
from orchestrator.store import Store


@click.command()
@click.argument("trial_or_campaign")
@click.option("--host", default=None, metavar="NAME", help="Run there; by default where it ran then.")
@inventory_option
@results_option
@click.option("--rounds", type=click.IntRange(min=1), default=None, help="By default as many as then, three at least.")
@click.option("--allow-different-image", is_flag=True, help="Run in another environment or isolation; rows say so.")
@click.option("--allow-different-method", is_flag=True, help="Run though the numbers mean something else now.")
def reproduce(
    trial_or_campaign: str,
    host: str | None,
    inventory: Path,
    results_directory: Path,
    rounds: int | None,
    allow_different_image: bool,
    allow_different_method: bool,
) -> ExitCode:
    """Runs stored trials again and compares then with now.

    TRIAL_OR_CAMPAIGN is the id of a trial, the beginning of one that no other shares, or the id of a campaign, of
    which all that ended ok is run again.

    Exit code 0 says that it ran, whatever the verdict; 1 that trials failed, 2 that it was refused, 3 that no host
    can run it.
    """
    store = open_existing(results_directory)
    wanted = find(store, trial_or_campaign, results_directory)
    method = refuse_another_method(wanted, allowed=allow_different_method)
    allowed = Allowed(allow_different_image, method)
    files = ProjectFiles(Path.cwd())
    known = load_inventory(inventory)
    found = targets(wanted, known, inventory, host, allowed)
    refuse_nodes({target.name: target.host for target in found}, known)
    reachable_hosts({target.name: target.host for target in found}, inventory)
    for target in found:
        preview(target, inventory, files, allowed)
    with host_to_ourselves(), ending_cleanly():
        ready = make_ready(found, inventory, files, click.echo, allowed)
        for name in reap_leftovers([one for _, one in ready], files):
            click.echo(f"removed container {name}, left by a run that was killed")
        reproduction = decide(wanted, ready, allowed, rounds)
        for note in reproduction.notes:
            click.echo(note)
        chosen = continuation_of(reproduction, store)
        document = inventory.read_text(encoding="utf-8")
        order = order_again(reproduction, chosen, document, version("taxmeter"), git_commit())
        drop_caches(files, keep=chosen.campaign_id)
        with ProgressLine(wide_console()) as progress:
            run_campaign(order, ray_scheduler(), store, files, progress.observe)
    print_reproduction(store, reproduction, chosen.campaign_id)
    return exit_code(store.attempts(chosen.campaign_id).values())


def print_reproduction(store: Store, reproduction: Reproduction, campaign_id: str) -> None:
    """Prints then and now side by side."""
    earlier = reproduction.wanted.campaign_id
    sides = [
        Sides(Place(earlier, one.then.host, one.then.trial_key), Place(campaign_id, one.host, one.trial_key))
        for one in reproduction.again
    ]
    columns = list(dict.fromkeys([*reproduction_columns(), *change_columns()]))
    chosen = {trial_id for one in reproduction.again for trial_id in one.then.trial_ids}
    then = _of(chosen, store.trials(columns, campaign_id=earlier))
    now = store.trials(columns, campaign_id=campaign_id)
    differing = changes(then, now, store.systems(), store.environments(), store.campaigns())
    view = render_reproduction(compare_sides(then, now, sides), differing, reproduction.notes)
    wide_console().print(view)


def _of(trial_ids: Set[str], trials: pa.Table) -> pa.Table:
    """Not by key: trials of one key may have had other limits."""
    return trials.filter(pa.array([one in trial_ids for one in trials["trial_id"].to_pylist()], pa.bool_()))
