"""The command line: one file per group of commands. Only this package prints and exits."""

import signal
import sys
from importlib import import_module
from types import FrameType

import click

from orchestrator.errors import ExitCode, TaxmeterError

_PLACES = {
    "claims": "claims:claims_command",
    "cluster": "cluster:cluster",
    "compare": "compare:compare_command",
    "explain": "explain:explain_command",
    "gate": "compare:gate_command",
    "hosts": "hosts:hosts",
    "images": "images:images",
    "paper": "paper:paper_command",
    "report": "report:report_command",
    "reproduce": "reproduce:reproduce",
    "results": "results:results",
    "serve": "report:serve_command",
    "sweep": "sweep:sweep",
    "task": "task:task",
}
"""By the name of a command its module and its name there."""


class _LazyGroup(click.Group):
    """Imports a command when it is called for: none waits for what the others need."""

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        module, _, name = _PLACES.get(cmd_name, "").partition(":")
        command: click.Command | None = getattr(import_module(f"orchestrator.cli.{module}"), name) if module else None
        return command


@click.group(
    cls=_LazyGroup,
    commands=[click.Command(name) for name in _PLACES],  # for the names: each stands for what is imported later
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
