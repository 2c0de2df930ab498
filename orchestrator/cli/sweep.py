"""`taxmeter sweep`: plan and run."""

import fcntl
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType

import click

from orchestrator.campaign import (
    CampaignOrder,
    ProjectFiles,
    ResumePolicy,
    choose_campaign,
    drop_caches,
    pins_without_building,
    prepare_hosts,
    ray_scheduler,
    reachable_hosts,
    reap_leftovers,
    run_campaign,
)
from orchestrator.cli.options import inventory_option, limit_option, results_option
from orchestrator.cli.progress import ProgressLine, duration_text
from orchestrator.cli.results import print_summary, wide_console
from orchestrator.documents import did_you_mean, line_of_key
from orchestrator.errors import ConfigurationError, ExitCode, NoUsableHostError
from orchestrator.feasibility import ANY_SUITABLE
from orchestrator.images import Catalogue
from orchestrator.inventory import active_hosts, load_inventory, select_hosts
from orchestrator.planning import Plan, environments_on, needed_environments, plan
from orchestrator.store import Attempt, Store
from orchestrator.sweep import Sweep, load_sweep
from runners.contract import Status

HOST_LOCK = Path("/tmp/taxmeter-host.lock")  # noqa: S108 - one for all users of the machine, whatever TMPDIR says

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
    reachable_hosts(hosts, inventory)
    known_environments(wanted, sweep_file, ProjectFiles(Path.cwd()))
    planning_hosts = pins_without_building(hosts, inventory, wanted.environments, ProjectFiles(Path.cwd()))
    planned = plan(wanted, planning_hosts, campaign_id="preview")
    refuse_empty(planned)
    for host in planning_hosts:
        for pin in (host.environments[name] for name in environments_on(wanted, host)):
            identity = pin.image_digest or (f"lock {pin.lock_sha256[:12]}" if pin.lock_sha256 else "no lock")
            click.echo(f"{host.name}: {pin.name} in isolation {pin.isolation.value} ({pin.reason}), {identity}")
    print_plan(planned)


@sweep.command("run")
@sweep_argument
@inventory_option
@limit_option
@results_option
@resume_option
def run_command(sweep_file: Path, inventory: Path, limit: str | None, results_directory: Path, resume: str) -> ExitCode:
    """Runs a sweep on the inventory and shows its table."""
    wanted = load_sweep(sweep_file)
    hosts = active_hosts(select_hosts(load_inventory(inventory), limit), click.echo)
    reachable_hosts(hosts, inventory)
    files = ProjectFiles(Path.cwd())
    known_environments(wanted, sweep_file, files)
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
    print_summary(store, continuation.campaign_id)
    _print_how_to_read(results_directory, continuation.campaign_id)
    return exit_code(store.attempts(continuation.campaign_id).values())


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
        count = len(task.task.trials)
        click.echo(
            f"  round {task.task.trials[0].round}: {count} trials in one task on {task.host}, {task.task.environment}"
        )
    counts: Counter[tuple[str, str]] = Counter()
    for one in planned.tasks:
        for trial in one.task.trials:
            counts[(trial.spec.workload.name, trial.spec.backend.name)] += 1
    for (workload, backend), count in sorted(counts.items()):
        click.echo(f"  {workload:20} {backend:16} {count:4} trials")
    for reason in planned.unmatched:
        click.echo(f"  not measured: {reason}")
    for reason, count in Counter(skip.reason for skip in planned.skips).items():
        click.echo(f"  skipped: {count} trials, {reason}")
    click.echo(f"{planned.trials} trials, about {duration_text(planned.estimate_s)} without set-up")


def known_environments(wanted: Sweep, sweep_file: Path, files: ProjectFiles) -> None:
    """Refuses an environment that is not in the catalogue, where the sweep names it.

    Raises:
        ConfigurationError: names the line of the sweep.
    """
    known = Catalogue.load(files.catalogue).entries
    for position, name in enumerate(wanted.environments):
        if name not in known and name != ANY_SUITABLE:
            line = line_of_key(sweep_file, ("environments", position))
            problem = f"unknown environment {name}; {did_you_mean(name, [*known, ANY_SUITABLE])}"
            raise ConfigurationError(problem, file=sweep_file, line=line, key="environments")


def refuse_empty(planned: Plan) -> None:
    """Refuses a plan without work, before anything is built for it.

    Raises:
        NoUsableHostError: no host has the labels of the sweep's targets.
    """
    if not planned.tasks and not planned.skips:
        raise NoUsableHostError(f"no host has the labels of the sweep's targets: {'; '.join(planned.unmatched)}")


def git_commit() -> str | None:
    """The commit of the project in the current directory, `-dirty` if it was changed; None outside of a repository."""
    if shutil.which("git") is None:
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


@contextmanager
def host_to_ourselves() -> Iterator[None]:
    """Keeps a second sweep off this machine, whoever runs it: two benchmarks at once measure each other.

    Raises:
        NoUsableHostError: another sweep runs here.
    """
    try:
        # Reading is enough for a lock, and allowed for a file that another user made.
        if not HOST_LOCK.exists():
            HOST_LOCK.touch(mode=0o644)
        descriptor = os.open(HOST_LOCK, os.O_RDONLY)
    except OSError as error:
        raise NoUsableHostError(f"{HOST_LOCK} cannot be opened: {error.strerror}; remove it") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise NoUsableHostError(f"another sweep runs on this machine; wait for it ({HOST_LOCK} is locked)") from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Makes SIGTERM end a sweep as Ctrl-C does, and says what became of it."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\ninterrupted; what was measured is in the store. Run the same command again to go on.", err=True)
        raise click.exceptions.Abort from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_how_to_read(results_directory: Path, campaign_id: str) -> None:
    trials = results_directory / "trials"
    click.echo(f"\nThis table again:  .venv/bin/taxmeter results show {campaign_id} --results {results_directory}")
    click.echo(
        "All rows:          "
        f'.venv/bin/python -c "import pyarrow.dataset as ds; '
        f"print(ds.dataset('{trials}', partitioning='hive').to_table().num_rows)\""
    )
    click.echo("results/README.md shows how pyarrow, DuckDB, pandas and Polars read them.")
