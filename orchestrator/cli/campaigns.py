"""What the commands share that plan and run campaigns."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from orchestrator.campaign import Continuation, ProjectFiles
from orchestrator.campaign.resuming.resume import Choose
from orchestrator.cli.progress import duration_text
from orchestrator.cli.results import print_summary
from orchestrator.config import Sweep
from orchestrator.environments import Catalogue
from orchestrator.errors import ConfigurationError, ExitCode, NoUsableHostError, did_you_mean
from orchestrator.planning import ANY_SUITABLE, Plan, PlanningHost, environments_on
from orchestrator.store import Attempt, Store
from runners.contract import Status


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
    for task in planned.tasks:
        for trial in task.task.trials:
            counts[(trial.spec.workload.name, trial.spec.backend.name)] += 1
    for (workload, backend), count in sorted(counts.items()):
        click.echo(f"  {workload:20} {backend:16} {count:4} trials")
    for reason in planned.unmatched:
        click.echo(f"  not measured: {reason}")
    for reason, count in Counter(skip.reason for skip in planned.skips).items():
        click.echo(f"  skipped: {count} trials, {reason}")
    click.echo(f"{planned.trials} trials, about {duration_text(planned.estimate_s)} without set-up")


def print_pins(wanted: Sweep, hosts: Iterable[PlanningHost]) -> None:
    """Prints what each host would run in."""
    for host in hosts:
        for pin in (host.environments[name] for name in environments_on(wanted, host)):
            identity = pin.image_digest or (f"lock {pin.lock_sha256[:12]}" if pin.lock_sha256 else "no lock")
            click.echo(f"{host.name}: {pin.name} in isolation {pin.isolation.value} ({pin.reason}), {identity}")


def known_environments(wanted: Sweep, files: ProjectFiles) -> None:
    """Refuses an environment that is not in the catalogue, where the sweep names it.

    Raises:
        ConfigurationError: names the line of the sweep.
    """
    known = Catalogue.load(files.catalogue).entries
    for position, name in enumerate(wanted.environments):
        if name not in known and name != ANY_SUITABLE:
            problem = f"unknown environment {name}; {did_you_mean(name, [*known, ANY_SUITABLE])}"
            line = wanted.file.line("environments", position)
            raise ConfigurationError(problem, file=wanted.file.path, line=line, key="environments")


def telling(choose: Choose) -> Choose:
    """Chooses, and says which hosts come to a campaign that began without them."""

    def chosen(hosts: Sequence[PlanningHost], store: Store, absent: Collection[str]) -> Continuation:
        continuation = choose(hosts, store, absent)
        if continuation.joined:
            click.echo(f"new to campaign {continuation.campaign_id}: {', '.join(continuation.joined)}")
        return continuation

    return chosen


def refuse_empty(planned: Plan) -> None:
    """Refuses a plan without work, before anything is built for it.

    Raises:
        NoUsableHostError: no host is what the sweep's targets ask for.
    """
    if not planned.tasks and not planned.skips:
        raise NoUsableHostError(f"no host is what the sweep's targets ask for: {'; '.join(planned.unmatched)}")


def git_commit() -> str | None:
    """The commit of the project in the current directory, `-dirty` if it was changed; None outside of a repository."""
    if shutil.which("git") is None:
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Says what became of a sweep that is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\ninterrupted; what was measured is in the store. Run the same command again to go on.", err=True)
        raise click.exceptions.Abort from None


def print_results(store: Store, results_directory: Path, campaign_id: str) -> None:
    """Prints the table of a campaign that has ended, and how to read its rows."""
    print_summary(store, campaign_id)
    trials = results_directory / "trials"
    click.echo(f"\nThis table again:  .venv/bin/taxmeter results show {campaign_id} --results {results_directory}")
    click.echo(
        "All rows:          "
        f'.venv/bin/python -c "import pyarrow.dataset as ds; '
        f"print(ds.dataset('{trials}', partitioning='hive').to_table().num_rows)\""
    )
    query = "SELECT status, count(*) FROM trials GROUP BY status"
    click.echo(f'In SQL:            .venv/bin/taxmeter results sql "{query}" --results {results_directory}')
    click.echo("results/README.md shows how pyarrow, DuckDB, pandas and Polars read them.")
