"""What runs a sweep once it is known which: on this machine here, on others by `remote_sweep` or `ray_sweep`."""

from pathlib import Path

import click

from orchestrator.campaign import (
    is_remote,
    pins_without_building,
    prepare_hosts,
    ray_scheduler,
    reap_leftovers,
    run_campaign,
)
from orchestrator.campaign.remote.joining import is_by_ray
from orchestrator.campaign.resuming.resume import Choose
from orchestrator.cli.campaigns import (
    ending_cleanly,
    exit_code,
    host_to_ourselves,
    print_results,
    refuse_empty,
)
from orchestrator.cli.ordering import Wanted, make_order
from orchestrator.cli.progress import ProgressLine
from orchestrator.cli.ray_sweep import run_by_ray
from orchestrator.cli.remote_sweep import run_remotely
from orchestrator.cli.results import wide_console
from orchestrator.planning import needed_environments, plan
from orchestrator.store import Store


def run_sweep(wanted: Wanted, results_directory: Path, choose: Choose) -> int:
    """Runs a sweep on its hosts, wherever they are, and shows its table.

    Args:
        wanted: the sweep and its hosts.
        results_directory: of the store.
        choose: says which campaign runs.

    Raises:
        ConfigurationError: something in a file is wrong.
        NoUsableHostError: no host can be used.
        InfrastructureError: this machine or an engine is at fault.
    """
    if is_by_ray(wanted.hosts):
        return run_by_ray(wanted, results_directory, choose)
    if is_remote(wanted.hosts):
        return run_remotely(wanted, results_directory, choose)
    return _run_here(wanted, results_directory, choose)


def _run_here(wanted: Wanted, results_directory: Path, choose: Choose) -> int:
    sweep, files, hosts, inventory = wanted.sweep, wanted.files, wanted.hosts, wanted.inventory
    preview = plan(sweep, pins_without_building(hosts, inventory, sweep.environments, files), campaign_id="preview")
    refuse_empty(preview)
    with host_to_ourselves(), ending_cleanly():
        needed = needed_environments(preview)
        ready = prepare_hosts(hosts, inventory, sweep.environments, files, click.echo, needed)
        for name in reap_leftovers(ready, files):
            click.echo(f"removed container {name}, left by a run that was killed")
        store = Store.open(results_directory)
        order = make_order(wanted, ready, store, choose, {})
        with ProgressLine(wide_console()) as progress:
            run_campaign(order, ray_scheduler(), store, files, progress.observe)
    print_results(store, results_directory, order.continuation.campaign_id)
    return exit_code(store.attempts(order.continuation.campaign_id).values())
