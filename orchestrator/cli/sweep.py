"""`taxmeter sweep`: plan, run, and what is done with a campaign that runs or was interrupted."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from orchestrator.campaign import (
    Choose,
    ControlFiles,
    Observer,
    ResumeDecision,
    ResumePolicy,
    RunRequest,
    choose_campaign,
    drive,
    is_reproduction,
    look,
    refuse_stored_code,
    run_sweep,
)
from orchestrator.campaign.pinned import Pinned, go_on, pinned, refuse_other_locks
from orchestrator.cli.campaigns import known_campaign, print_summary
from orchestrator.cli.options import duration_text, inventory_option, limit_option, stored_code_option
from orchestrator.cli.progress import ProgressLine
from orchestrator.cli.stores import DEFAULT_RESULTS, open_existing, open_results, results_option
from orchestrator.cli.sweep_control import drain_command, status_command, stop_command
from orchestrator.cli.tables import wide_console
from orchestrator.cli.terminal import clear_line
from orchestrator.config import (
    Host,
    Inventory,
    Source,
    Sweep,
    active_hosts,
    load_inventory,
    load_sweep,
    seconds_of,
    select_hosts,
)
from orchestrator.environments import Catalogue
from orchestrator.errors import (
    ConfigurationError,
    ExitCode,
    InfrastructureError,
    NoUsableHostError,
    did_you_mean,
    some_names,
)
from orchestrator.files import ProjectFiles
from orchestrator.hosts import open_hosts
from orchestrator.planning import ANY_SUITABLE, Plan, PlanningHost, environments_on
from orchestrator.store import Attempt, Origin, Store
from orchestrator.store.query.view import campaign_list
from orchestrator.store.storage.layout import store_id
from runners.contract import Status

_GIT_S = 60
"""A large tree on a slow disk takes some seconds."""

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


cold_option = click.option(
    "--cold",
    "is_cold",
    is_flag=True,
    help="Makes references and artifacts anew that hosts have kept of other campaigns, so that making is measured.",
)


def _seconds_or_none(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else seconds_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def sweep() -> None:
    """Sweeps: parameter spaces to measure."""


for command in (status_command, stop_command, drain_command):
    sweep.add_command(command)


@sweep.command("plan")
@sweep_argument
@inventory_option
@limit_option
def plan_command(sweep_file: Path, inventory: Path, limit: str | None) -> None:
    """Prints what a sweep would do. Nothing is built and nothing runs."""
    request = _request(sweep_file, inventory, limit, DEFAULT_RESULTS)
    with open_hosts(request.hosts, request.inventory, request.files) as hosts:
        preview = look(request, hosts)
    planned = preview.plan(request.sweep)
    _print_pins(request.sweep, preview.hosts.values())
    print_plan(planned)


@sweep.command("run")
@sweep_argument
@inventory_option
@limit_option
@results_option
@resume_option
@click.option(
    "--more",
    metavar="TIME",
    callback=_seconds_or_none,
    help="Goes on with the newest campaign, finished or not, for so long on each host: 90s, 10m, 1h.",
)
@cold_option
def run_command(
    sweep_file: Path,
    inventory: Path,
    limit: str | None,
    results_directory: Path,
    resume: str,
    more: float | None,
    is_cold: bool,
) -> int:
    """Runs a sweep on the inventory and shows its table."""
    request = replace(_request(sweep_file, inventory, limit, results_directory), is_cold=is_cold)
    policy = ResumePolicy(resume)
    if more is not None and policy is ResumePolicy.NEVER:
        raise click.UsageError("--more goes on with a campaign, and --resume never starts anew; leave one out")

    def choose(hosts: Sequence[PlanningHost], store: Store, absent: Collection[str]) -> ResumeDecision:
        return choose_campaign(request.sweep, hosts, store, policy, absent=absent, more_s=more, tell=say)

    return run_and_show(request, choose)


@sweep.command("drive", hidden=True)
@click.argument("order_file", type=click.Path(path_type=Path))
def drive_command(order_file: Path) -> None:
    """Drives a campaign that `sweep run` has prepared; it is called in the container of the cluster's head."""
    with ending_cleanly(), watched() as observe:
        drive(order_file, observe)


@sweep.command("resume")
@click.argument("campaign_id", metavar="[CAMPAIGN]", required=False)
@click.option(
    "--inventory",
    type=click.Path(path_type=Path),
    default=None,
    help="The machines; by default those of the inventory that the campaign is stored with, if it was measured here.",
)
@limit_option
@results_option
@cold_option
@stored_code_option
def resume_command(
    campaign_id: str | None,
    inventory: Path | None,
    limit: str | None,
    results_directory: Path,
    is_cold: bool,
    allow_stored_code: bool,
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
    refuse_stored_code(campaign.campaign_id, campaign.plan.modules, allowed=allow_stored_code)
    if inventory is None:
        _refuse_hosts_of_others(row, store, files)
    document = Source(Path(f"sweep of {campaign.campaign_id}"), row["sweep_document"])
    again = load_sweep(document, campaign.plan.modules)
    stored = Source(Path(f"inventory of {campaign.campaign_id}"), row["inventory_document"])
    at = load_inventory(stored if inventory is None else inventory)
    hosts = _hosts(at, limit, campaign, waiting)
    known_environments(again, files)
    refuse_other_locks(campaign, Catalogue.load(files.catalogue))
    request = RunRequest(again, at, hosts, files, results_directory, git_commit(), is_cold=is_cold)
    return run_and_show(request, lambda at_hand, results, _absent: go_on(campaign, again, at_hand, results))


def run_and_show(request: RunRequest, choose: Choose) -> int:
    """Runs a sweep, shows its table, and names the hosts that took no part."""
    with ending_cleanly(), open_hosts(request.hosts, request.inventory, request.files) as hosts:
        outcome = run_sweep(request, hosts, choose, say, watched)
    code = outcome.exit_code
    if code == 0:
        _print_results(request.results, outcome.campaign_id)
        code = exit_code(open_existing(request.results).attempts(outcome.campaign_id).values())
    for name, reason in outcome.left_out.items():
        click.echo(f"not measured: {name}: {reason}")
    return code


def say(text: str) -> None:
    """Prints a line, in a line of its own though a driver may draw one on this terminal."""
    clear_line()
    click.echo(text)


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


def exit_code(attempts: Collection[Attempt]) -> ExitCode:
    """The exit code of a campaign, from the last attempt of each of its trials, whenever they ran.

    What an environment or a host cannot do is no failure, unless nothing else came of the sweep.
    """
    statuses = {attempt.status for attempt in attempts}
    failed = statuses - {Status.OK, Status.UNSUPPORTED, Status.SKIPPED}
    return ExitCode.TRIALS_FAILED if failed or Status.OK not in statuses else ExitCode.OK


def print_plan(planned: Plan) -> None:
    """Prints tasks, skips with reasons, the number of trials and the estimate."""
    for task in planned.tasks:
        count, rounds = len(task.task.trials), sorted({trial.round for trial in task.task.trials})
        which = f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}"
        click.echo(f"  {which}: {count} trials in one task on {task.host}, {task.task.environment}")
        if task.task.allocation is not None:
            budget = duration_text(task.task.allocation.budget_ms / 1000)
            click.echo(f"  then the widest interval next, until {budget} are spent or all are narrow enough")
    counts: Counter[tuple[str, str]] = Counter()
    for task in planned.tasks:
        for trial in task.task.trials:
            counts[(trial.spec.workload.name, trial.spec.backend.name)] += 1
    for (workload, backend), count in sorted(counts.items()):
        click.echo(f"  {workload:20} {backend:16} {count:4} trials")
    for reason in planned.unmatched:
        click.echo(f"  not measured: {reason}")
    for reason, count in Counter(skip.reason for skip in planned.skips).items():
        click.echo(f"  skipped: {count} trials, {reason}")
    least = "at least " if any(task.task.allocation is not None for task in planned.tasks) else ""
    click.echo(f"{least}{planned.trials} trials, about {duration_text(planned.estimate_s)} without set-up")


def _print_pins(wanted: Sweep, hosts: Iterable[PlanningHost]) -> None:
    """Prints what each host would run in."""
    for host in hosts:
        for pin in (host.environments[name] for name in environments_on(wanted, host)):
            identity = pin.image_digest or (f"lock {pin.lock_sha256[:12]}" if pin.lock_sha256 else "no lock")
            click.echo(f"{host.name}: {pin.name} in isolation {pin.isolation.value} ({pin.reason}), {identity}")


def known_environments(wanted: Sweep, files: ProjectFiles) -> None:
    """Refuses an environment that is not in the catalogue, where the sweep names it."""
    known = Catalogue.load(files.catalogue).entries
    for position, name in enumerate(wanted.environments):
        if name not in known and name != ANY_SUITABLE:
            problem = f"unknown environment {name}; {did_you_mean(name, [*known, ANY_SUITABLE])}"
            line = wanted.file.line("environments", position)
            raise ConfigurationError(problem, file=wanted.file.path, line=line, key="environments")


def git_commit() -> str | None:
    """The commit of the project in the current directory, `-dirty` if it was changed; None outside of a repository."""
    if shutil.which("git") is None:
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_GIT_S)
    except subprocess.TimeoutExpired:
        raise InfrastructureError(
            f"`{' '.join(command)}` gave no answer within {_GIT_S} s; look at the file system"
        ) from None
    return done.stdout.strip() if done.returncode == 0 else None


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Says what became of a sweep that is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\ninterrupted; what was measured is in the store. Run the same command again to go on.", err=True)
        raise click.exceptions.Abort from None


def _print_results(results: Path, campaign_id: str) -> None:
    """The table of a campaign that has ended, and how to read its rows."""
    print_summary(open_results(results), campaign_id)
    elsewhere = "" if results == DEFAULT_RESULTS else f" --results {results}"
    click.echo(f"Again: .venv/bin/taxmeter results show {campaign_id}{elsewhere}")
    click.echo("Narrower intervals: make cluster-sweep MORE=10m.  In a browser: make report.")
    click.echo("The rows in pyarrow, DuckDB, pandas: results/README.md")


def _row(campaign_id: str | None, results: Path) -> Mapping[str, Any] | None:
    """The row of a campaign; null if none is named and none is unfinished that can go on here."""
    opened = open_results(results)
    if campaign_id is not None:
        return known_campaign(opened, campaign_id, results)
    rows = {row["campaign_id"]: row for row in opened.campaigns().arrow().to_pylist()}
    for listed in campaign_list(opened.view()).to_pylist():
        row: Mapping[str, Any] = rows[listed["campaign_id"]]
        is_own = row["origin"] == Origin.MEASURED.value
        if is_own and listed["left_to_do"] and row["plan"] is not None and not is_reproduction(row):
            return row
    return None


def _refuse_hosts_of_others(row: Mapping[str, Any], store: Store, files: ProjectFiles) -> None:
    """Refuses to reach the hosts of an inventory that somebody else wrote: an agent and its token would go there."""
    identity = store_id(store.layout)
    if row["origin"] != Origin.MEASURED.value:
        whose = f"came from another store ({row['origin']})"
    elif identity is None or not files.knows_store(identity):
        whose = f"is of a store that no sweep of this project wrote to ({store.layout.root})"
    else:
        return
    raise ConfigurationError(
        f"campaign {row['campaign_id']} {whose}, and the inventory that it is stored with may name the hosts of "
        "somebody else; name your own with --inventory"
    )


def _hosts(inventory: Inventory, limit: str | None, campaign: Pinned, waiting: Mapping[str, int]) -> dict[str, Host]:
    """Those with something left to do. A host that the campaign does not know may get a part in it."""
    chosen = active_hosts(select_hosts(inventory, limit), click.echo)
    done = [name for name in chosen if name in campaign.plan.places and name not in waiting]
    left = {name: host for name, host in chosen.items() if name not in done}
    if not left:
        places = some_names(f"{place} ({count})" for place, count in waiting.items())
        raise inventory.error(f"nothing is left to do on {some_names(done)}; trials are left on {places}")
    return left


def _begun(campaign: Pinned, waiting: Mapping[str, int]) -> str:
    began = f"{campaign.row['started_at']:%Y-%m-%d %H:%M} UTC"
    places = ", ".join(f"{place} {count}" for place, count in waiting.items())
    what = f"of {campaign.row['planned_trials']} trials {sum(waiting.values())} are left ({places})"
    if not waiting:
        what = f"all {campaign.row['planned_trials']} planned trials are in the store"
        what += "; `make cluster-sweep` spends what may be left of a budget"
    return f"campaign {campaign.campaign_id} of sweep {campaign.row['sweep']}, begun {began}: {what}"
