"""`taxmeter sweep`: plan and run."""

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
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
    pins_without_building,
    prepare_hosts,
    reachable_hosts,
    reap_leftovers,
    run_campaign,
)
from orchestrator.cli.options import inventory_option, limit_option, results_option
from orchestrator.cli.progress import ProgressLine, duration_text
from orchestrator.cli.results import print_summary, wide_console
from orchestrator.errors import ExitCode, NoUsableHostError
from orchestrator.inventory import load_inventory, select_hosts
from orchestrator.planning import Plan, plan
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
    hosts = select_hosts(load_inventory(inventory), limit)
    reachable_hosts(hosts, inventory)
    planning_hosts = pins_without_building(hosts, wanted.environments, ProjectFiles(Path.cwd()))
    for host in planning_hosts:
        for pin in host.environments.values():
            identity = pin.image_digest or f"lock {pin.lock_sha256[:12]}"
            click.echo(f"{host.name}: {pin.name} in isolation {pin.isolation.value} ({pin.reason}), {identity}")
    planned = plan(wanted, planning_hosts, campaign_id="preview")
    refuse_empty(planned)
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
    hosts = select_hosts(load_inventory(inventory), limit)
    reachable_hosts(hosts, inventory)
    files = ProjectFiles(Path.cwd())
    refuse_empty(plan(wanted, pins_without_building(hosts, wanted.environments, files), campaign_id="preview"))
    with host_to_ourselves():
        ready = prepare_hosts(hosts, wanted.environments, files, click.echo)
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
        failed = _run(order, store, files, sweep_file)
    print_summary(store, continuation.campaign_id)
    _print_how_to_read(results_directory, continuation.campaign_id)
    return ExitCode.TRIALS_FAILED if failed else ExitCode.OK


def _run(order: CampaignOrder, store: Store, files: ProjectFiles, sweep_file: Path) -> int:
    from orchestrator.scheduling.ray import RayScheduler  # Ray takes a second to import; most commands do without

    progress = ProgressLine(wide_console())
    try:
        with progress, terminated_like_interrupted():
            run_campaign(order, RayScheduler(), store, files, progress.observe)
    except KeyboardInterrupt:
        click.echo("\ninterrupted; what was measured is in the store, nothing is left running", err=True)
        click.echo(f"the same command continues: taxmeter sweep run {shlex.quote(str(sweep_file))}", err=True)
        raise click.exceptions.Abort from None
    return progress.failed


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


def refuse_empty(planned: Plan) -> None:
    """Refuses a plan without work, before anything is built for it.

    Raises:
        NoUsableHostError: no host has the labels of the sweep's targets.
    """
    if not planned.tasks and not planned.skips:
        raise NoUsableHostError(f"no host has the labels of the sweep's targets: {'; '.join(planned.unmatched)}")


def git_commit() -> str | None:
    """The commit of the project in the current directory; None outside of a repository."""
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


@contextmanager
def host_to_ourselves() -> Iterator[None]:
    """Keeps a second sweep off this machine: two benchmarks at once measure each other.

    Raises:
        NoUsableHostError: another sweep runs here.
    """
    path = Path(tempfile.gettempdir()) / "taxmeter-host.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise NoUsableHostError(f"another sweep runs on this machine; wait for it ({path} is locked)") from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Makes SIGTERM end a campaign as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
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
