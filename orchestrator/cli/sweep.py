"""`taxmeter sweep`: plan, run, and what is done with a campaign that runs or was interrupted."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from orchestrator.campaign import (
    Choose,
    Observer,
    ProjectFiles,
    ResumePolicy,
    RunRequest,
    choose_campaign,
    drive,
    look,
    run_sweep,
)
from orchestrator.cli.campaigns import (
    ending_cleanly,
    exit_code,
    git_commit,
    known_environments,
    print_pins,
    print_plan,
    print_results,
    telling,
)
from orchestrator.cli.options import inventory_option, limit_option, results_option
from orchestrator.cli.progress import ProgressLine
from orchestrator.cli.results import wide_console
from orchestrator.cli.sweep_control import drain_command, status_command, stop_command
from orchestrator.config import active_hosts, load_inventory, load_sweep, select_hosts
from orchestrator.hosts import open_hosts
from orchestrator.store import Store

_CLEAR_LINE = "\r\x1b[2K"

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
    request = _request(sweep_file, inventory, limit, Path("results"))
    with open_hosts(request.hosts, request.inventory, request.files) as hosts:
        preview = look(request, hosts)
    planned = preview.plan(request.sweep)
    print_pins(request.sweep, preview.hosts.values())
    print_plan(planned)


@sweep.command("run")
@sweep_argument
@inventory_option
@limit_option
@results_option
@resume_option
def run_command(sweep_file: Path, inventory: Path, limit: str | None, results_directory: Path, resume: str) -> int:
    """Runs a sweep on the inventory and shows its table."""
    request = _request(sweep_file, inventory, limit, results_directory)
    policy = ResumePolicy(resume)
    return run_and_show(
        request,
        lambda hosts, store, absent: choose_campaign(request.sweep, hosts, store, policy, absent=absent),
    )


@sweep.command("drive", hidden=True)
@click.argument("order_file", type=click.Path(path_type=Path))
def drive_command(order_file: Path) -> None:
    """Drives a campaign that `sweep run` has prepared; it is called in the container of the cluster's head."""
    with ending_cleanly(), watched() as observe:
        drive(order_file, observe)


def run_and_show(request: RunRequest, choose: Choose) -> int:
    """Runs a sweep, shows its table, and names the hosts that took no part."""
    with ending_cleanly(), open_hosts(request.hosts, request.inventory, request.files) as hosts:
        outcome = run_sweep(request, hosts, telling(choose), say, watched)
    code = outcome.exit_code
    if code == 0:
        store = Store.open(request.results)
        print_results(store, request.results, outcome.campaign_id)
        code = exit_code(store.attempts(outcome.campaign_id).values())
    for name, reason in outcome.left_out.items():
        click.echo(f"not measured: {name}: {reason}")
    return code


def say(text: str) -> None:
    """Prints a line, in a line of its own though a driver may draw one on this terminal."""
    click.echo(f"{_CLEAR_LINE if sys.stdout.isatty() else ''}{text}")


@contextmanager
def watched() -> Iterator[Observer]:
    """The live line of a campaign, as long as the block lasts."""
    with ProgressLine(wide_console()) as progress:
        yield progress.observe


def _request(sweep_file: Path, inventory: Path, limit: str | None, results: Path) -> RunRequest:
    wanted, known = load_sweep(sweep_file), load_inventory(inventory)
    hosts = active_hosts(select_hosts(known, limit), click.echo)
    files = ProjectFiles(Path.cwd())
    known_environments(wanted, files)
    return RunRequest(wanted, known, hosts, files, results, git_commit())


for command in (status_command, stop_command, drain_command):
    sweep.add_command(command)
