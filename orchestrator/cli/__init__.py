"""The command line: one file per group of commands. Only this package prints and exits."""

import gc
import os
import signal
import sys
from types import FrameType
from typing import Final

import click

from orchestrator.cli.options import LazyGroup
from orchestrator.cli.terminal import filtered_streams
from orchestrator.errors import ExitCode, TaxmeterError

GARBAGE_EVERY: Final = 20_000
"""Objects. Modules, trials and rows stay: looking among every 700 of them is a tenth of what `sweep plan` takes."""

ARROW_ALLOCATOR: Final = ("ARROW_DEFAULT_MEMORY_POOL", "system")
"""Variable and value. Arrow's own keeps what is freed, a third of a long campaign's memory; queries are no faster."""

_RESULTS: Final = {
    "ls": ("campaign_list:list_campaigns", "Lists the campaigns, the newest first, and how their trials ended."),
    "show": ("campaigns:show", "Shows the table of one campaign, by default of the newest."),
    "log": ("campaigns:show_log", "Shows how a trial ended, why, and the end of its log."),
    "coverage": ("campaigns:coverage", "Says what ran and what did not in one campaign or several."),
    "sql": ("rows:sql", "Answers a query, in the SQL of DuckDB."),
    "export": ("rows:export", "Writes results to a directory or a file, for other programs or other people."),
    "import": ("store_care:import_command", "Adds the results of a directory that another machine ran."),
    "merge": ("store_care:merge", "Adds what another store has and this one lacks."),
    "push": ("store_care:push_command", "Makes the store readable at a URL, such as s3://BUCKET/PREFIX."),
    "drop": ("store_care:drop_command", "Takes a campaign and its rows out of the store."),
    "compact": ("store_care:compact", "Merges small files of the store into few large ones."),
    "verify": ("store_care:verify", "Reads every row of the store and checks that all of it fits together."),
}


@click.group(cls=LazyGroup, places=_RESULTS)
def results() -> None:
    """The result store."""


_COMMANDS: Final = {
    "claims": ("claims:claims_command", "Which findings hold in what is in the store."),
    "cluster": ("cluster:cluster", "A Ray cluster on the hosts of the inventory."),
    "compare": ("compare:compare_command", "Compares what was measured, with intervals and verdicts."),
    "explain": ("explain:explain_command", "Where the time of one configuration goes, and what removes it."),
    "gate": ("compare:gate_command", "Fails if anything became slower by more than is allowed."),
    "hosts": ("hosts:hosts", "The machines of the inventory."),
    "images": ("images:images", "Environments: pinned software stacks."),
    "paper": ("paper:paper_command", "Draws the paper's figures and tables."),
    "report": ("report:report_command", "Writes one page in HTML, with all charts."),
    "reproduce": ("reproduce:reproduce", "Runs stored trials again and compares then with now."),
    "results": (results, "The result store."),
    "serve": ("report:serve_command", "Shows the page of `report` on this machine, kept up to date."),
    "sweep": ("sweep:sweep", "Sweeps: parameter spaces to measure."),
    "task": ("task:task", "Tasks for machines that this one cannot reach."),
    "workloads": ("workloads:workloads_command", "What a sweep can name: models and operators."),
}


@click.group(
    cls=LazyGroup,
    places=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="taxmeter")
def taxmeter() -> None:
    """Measures the framework tax of deep-learning inference on the machines of a lab."""


def main() -> None:
    """Runs the command line and exits: 0 ok, 1 some trials failed, 2 usage, 3 no usable host.

    SIGTERM ends a command as Ctrl-C does, so that it leaves nothing behind either.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    gc.set_threshold(GARBAGE_EVERY)
    os.environ.setdefault(*ARROW_ALLOCATOR)
    sys.exit(run(sys.argv[1:]))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@filtered_streams()
def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code. An error is one line on standard error."""
    try:
        code = taxmeter.main(arguments, prog_name="taxmeter", standalone_mode=False)
    except click.exceptions.Abort:
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except TaxmeterError as error:
        click.echo(f"taxmeter: {error}", err=True)
        return error.exit_code
    return int(code or ExitCode.OK)
