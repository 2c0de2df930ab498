"""`taxmeter reproduce`: stored trials once more, in the identical environment, then and now side by side."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import click

from orchestrator.analysis import change_columns, changes
from orchestrator.analysis.reproduction import Sides, TrialPlace, compare_sides, reproduction_columns
from orchestrator.campaign import (
    Allowed,
    ReproduceRequest,
    Reproduction,
    find,
    refuse_another_method,
    refuse_stored_code,
    run_reproduction,
    targets,
)
from orchestrator.cli.options import inventory_option, stored_code_option
from orchestrator.cli.stores import open_existing, results_option
from orchestrator.cli.sweep import ending_cleanly, exit_code, git_commit, say, watched
from orchestrator.cli.tables import wide_console
from orchestrator.config import load_inventory
from orchestrator.files import ProjectFiles
from orchestrator.hosts import open_hosts
from orchestrator.report.reproduction import render_reproduction
from orchestrator.store import Store
from orchestrator.store.query.selection import among


@click.command()
@click.argument("trial_or_campaign")
@click.option("--host", default=None, metavar="NAME", help="Run there; by default where it ran then.")
@inventory_option
@results_option
@click.option("--rounds", type=click.IntRange(min=1), default=None, help="By default as many as then, three at least.")
@click.option("--allow-different-image", is_flag=True, help="Run in another environment or isolation; rows say so.")
@click.option("--pull", is_flag=True, help="Pull images that only rows name, without asking.")
@click.option("--allow-different-method", is_flag=True, help="Run though the numbers mean something else now.")
@stored_code_option
def reproduce(
    trial_or_campaign: str,
    host: str | None,
    inventory: Path,
    results_directory: Path,
    rounds: int | None,
    allow_different_image: bool,
    pull: bool,
    allow_different_method: bool,
    allow_stored_code: bool,
) -> int:
    """Runs stored trials again and compares then with now.

    TRIAL_OR_CAMPAIGN is the id of a trial, the beginning of one that no other shares, or the id of a campaign, of
    which all that ended ok is run again.

    Exit code 0 says that it ran, whatever the verdict; 1 that trials failed, 2 that it was refused, 3 that no host
    can run it.
    """
    store = open_existing(results_directory)
    wanted = find(store, trial_or_campaign, results_directory)
    refuse_stored_code(wanted.campaign_id, wanted.modules, allowed=allow_stored_code)
    method = refuse_another_method(wanted, allowed=allow_different_method)
    allowed = Allowed(allow_different_image, method)
    known = load_inventory(inventory)
    places = targets(wanted, known, host, allowed)
    files = ProjectFiles(Path.cwd())
    request = ReproduceRequest(
        wanted, places, allowed, rounds, known, files, results_directory, git_commit(), _may_pull(always=pull)
    )
    with ending_cleanly(), open_hosts({place.name: place.host for place in places}, known, files) as hosts:
        reproduction, outcome = run_reproduction(request, hosts, say, watched)
    if outcome.exit_code:
        return outcome.exit_code
    store = open_existing(results_directory)
    print_reproduction(store, reproduction, outcome.campaign_id)
    return exit_code(store.attempts(outcome.campaign_id).values())


def _may_pull(*, always: bool) -> Callable[[str], bool]:
    """Asks the person once about each image; without one, and without the option, nothing is pulled."""
    answers: dict[str, bool] = {}
    lock = threading.Lock()

    def asked(reference: str) -> bool:
        with lock:
            if reference not in answers:
                question = f"a row of the store names the image {reference}; pull it, and run trials in it?"
                answers[reference] = always or (sys.stdin.isatty() and click.confirm(question))
            return answers[reference]

    return asked


def print_reproduction(store: Store, reproduction: Reproduction, campaign_id: str) -> None:
    """Prints then and now side by side."""
    earlier = reproduction.wanted.campaign_id
    sides = [
        Sides(
            TrialPlace(earlier, trial.then.host, trial.then.trial_key),
            TrialPlace(campaign_id, trial.host, trial.trial_key),
        )
        for trial in reproduction.again
    ]
    columns = list(dict.fromkeys([*reproduction_columns(), *change_columns()]))
    chosen = {trial_id for trial in reproduction.again for trial_id in trial.then.trial_ids}
    # not by key: trials of one key may have had other limits
    then = store.trials(columns, campaign_id=earlier, filter=among("trial_id", chosen))
    now = store.trials(columns, campaign_id=campaign_id)
    differing = changes(then, now, store.systems(), store.environments(), store.campaigns())
    view = render_reproduction(compare_sides(then, now, sides), differing, reproduction.notes)
    wide_console().print(view)
