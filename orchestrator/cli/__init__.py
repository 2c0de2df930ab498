"""The command line: one file per group of commands. Only this package prints and exits."""

import signal
import sys
from types import FrameType

import click

from orchestrator.cli.claims import claims_command
from orchestrator.cli.cluster import cluster
from orchestrator.cli.compare import compare_command
from orchestrator.cli.explain import explain_command
from orchestrator.cli.gate import gate_command
from orchestrator.cli.hosts import hosts
from orchestrator.cli.images import images
from orchestrator.cli.paper import paper_command
from orchestrator.cli.report import report_command, serve_command
from orchestrator.cli.reproduce import reproduce
from orchestrator.cli.results import results
from orchestrator.cli.sweep import sweep
from orchestrator.cli.sweep_resume import resume_command
from orchestrator.cli.task import task
from orchestrator.errors import ExitCode, TaxmeterError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="taxmeter")
def taxmeter() -> None:
    """Measures the framework tax of deep-learning inference on the machines of a lab."""


for command in (
    *(sweep, results, compare_command, explain_command, claims_command, gate_command, reproduce),
    *(report_command, serve_command, paper_command),
    *(task, images, hosts, cluster),
):
    taxmeter.add_command(command)
sweep.add_command(resume_command)


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
