"""`taxmeter sweep`: plan, run, and what is done with a campaign that runs or was interrupted."""

from pathlib import Path

import click

from orchestrator.campaign import ProjectFiles, ResumePolicy, choose_campaign, is_remote, pins_without_building
from orchestrator.campaign.remote.joining import is_by_ray
from orchestrator.cli.campaigns import known_environments, print_pins, print_plan, refuse_empty, telling
from orchestrator.cli.local_sweep import run_sweep
from orchestrator.cli.options import inventory_option, limit_option, results_option
from orchestrator.cli.ordering import Wanted
from orchestrator.cli.ray_sweep import plan_by_ray
from orchestrator.cli.remote_sweep import drive, plan_remotely
from orchestrator.cli.sweep_control import drain_command, status_command, stop_command
from orchestrator.cli.sweep_resume import resume_command
from orchestrator.config.inventory import active_hosts, load_inventory, select_hosts
from orchestrator.config.sweep import load_sweep
from orchestrator.planning import plan

sweep_argument = click.argument(
    "sweep_file", metavar="[SWEEP]", type=click.Path(path_type=Path), default=Path("sweeps/quickstart.yaml")
)
resume_option = click.option(
    "--resume",
    type=click.Choice([policy.value for policy in ResumePolicy]),
    default=ResumePolicy.AUTO.value,
    show_default=True,
    help="auto continues an unfinished campaign that agrees with the plan; always takes the newest, finished or not.",
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
    if is_by_ray(hosts):
        plan_by_ray(Wanted(wanted, sweep_file, hosts, inventory, ProjectFiles(Path.cwd())))
        return
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
    policy = ResumePolicy(resume)
    return run_sweep(
        Wanted(wanted, sweep_file, hosts, inventory, files),
        results_directory,
        telling(lambda at_hand, store, absent: choose_campaign(wanted, at_hand, store, policy, absent=absent)),
    )


for command in (status_command, stop_command, drain_command, resume_command, drive):
    sweep.add_command(command)
