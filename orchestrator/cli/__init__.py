"""The command line: one file per group of commands. Only this package prints and exits."""

import signal
import sys
from types import FrameType
from typing import Final

import click

from orchestrator.cli.lazy import LazyGroup
from orchestrator.cli.terminal import filtered_streams
from orchestrator.errors import ExitCode, TaxmeterError

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
    "results": ("results:results", "The result store."),
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
    sys.exit(run(sys.argv[1:]))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code. An error is one line on standard error."""
    with filtered_streams():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
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
