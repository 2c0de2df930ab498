"""`taxmeter sweep`: plan and run."""

from importlib.metadata import version
from pathlib import Path

import click

from orchestrator.campaign import (
    CampaignOrder,
    ProjectFiles,
    ResumePolicy,
    choose_campaign,
    drop_caches,
    is_remote,
    pins_without_building,
    prepare_hosts,
    ray_scheduler,
    reap_leftovers,
    run_campaign,
)
from orchestrator.cli.campaigns import (
    ending_cleanly,
    exit_code,
    git_commit,
    host_to_ourselves,
    known_environments,
    print_pins,
    print_plan,
    print_results,
    refuse_empty,
)
from orchestrator.cli.options import inventory_option, limit_option, results_option
from orchestrator.cli.progress import ProgressLine
from orchestrator.cli.remote_sweep import Wanted, drive, plan_remotely, run_remotely
from orchestrator.cli.results import wide_console
from orchestrator.inventory import active_hosts, load_inventory, select_hosts
from orchestrator.planning import needed_environments, plan
from orchestrator.store import Store
from orchestrator.sweep import load_sweep

sweep_argument = click.argument(
    "sweep_file", metavar="[SWEEP]", type=click.Path(path_type=Path), default=Path("sweeps/quickstart.yaml")
)
resume_option = click.option(
    "--resume",
    type=click.Choice([policy.value for policy in ResumePolicy]),
    default=ResumePolicy.AUTO.value,
    show_default=True,
    help="auto continues an unfinished campaign of the same plan; always takes the newest, finished or not.",
)


@click.group()
def sweep() -> None:
    """Sweeps: parameter spaces to measure."""


@sweep.command("plan")
@sweep_argument
@inventory_option
@limit_option
def plan_command(sweep_file: Path, inventory: Path, limit: str | None) -> None:
    """Prints what a sweep would do. Nothing is built and nothing runs."""
    wanted = load_sweep(sweep_file)
    hosts = active_hosts(select_hosts(load_inventory(inventory), limit), click.echo)
    known_environments(wanted, sweep_file, ProjectFiles(Path.cwd()))
    if is_remote(hosts):
        plan_remotely(Wanted(wanted, sweep_file, hosts, inventory, ProjectFiles(Path.cwd())))
        return
    planning_hosts = pins_without_building(hosts, inventory, wanted.environments, ProjectFiles(Path.cwd()))
    planned = plan(wanted, planning_hosts, campaign_id="preview")
    refuse_empty(planned)
    print_pins(wanted, planning_hosts)
    print_plan(planned)


@sweep.command("run")
@sweep_argument
@inventory_option
@limit_option
@results_option
@resume_option
def run_command(sweep_file: Path, inventory: Path, limit: str | None, results_directory: Path, resume: str) -> int:
    """Runs a sweep on the inventory and shows its table."""
    wanted = load_sweep(sweep_file)
    hosts = active_hosts(select_hosts(load_inventory(inventory), limit), click.echo)
    files = ProjectFiles(Path.cwd())
    known_environments(wanted, sweep_file, files)
    if is_remote(hosts):
        everything = Wanted(wanted, sweep_file, hosts, inventory, files)
        return run_remotely(everything, results_directory, ResumePolicy(resume))
    preview = plan(wanted, pins_without_building(hosts, inventory, wanted.environments, files), campaign_id="preview")
    refuse_empty(preview)
    with host_to_ourselves(), ending_cleanly():
        needed = needed_environments(preview)
        ready = prepare_hosts(hosts, inventory, wanted.environments, files, click.echo, needed)
        for name in reap_leftovers(ready, files):
            click.echo(f"removed container {name}, left by a run that was killed")
        store = Store.open(results_directory)
        continuation = choose_campaign(wanted, [host.planning for host in ready], store, ResumePolicy(resume))
        order = CampaignOrder(
            continuation,
            ready,
            wanted.name,
            sweep_file.read_text(encoding="utf-8"),
            inventory.read_text(encoding="utf-8"),
            version("taxmeter"),
            git_commit(),
        )
        drop_caches(files, keep=continuation.campaign_id)
        with ProgressLine(wide_console()) as progress:
            run_campaign(order, ray_scheduler(), store, files, progress.observe)
    print_results(store, results_directory, continuation.campaign_id)
    return exit_code(store.attempts(continuation.campaign_id).values())


sweep.add_command(drive)
