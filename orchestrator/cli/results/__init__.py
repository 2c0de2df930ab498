"""`taxmeter results`: what was measured."""

import click

from orchestrator.cli.options import open_existing
from orchestrator.cli.results.importing import import_command
from orchestrator.cli.results.keeping import compact, merge, verify
from orchestrator.cli.results.pushing import push_command
from orchestrator.cli.results.showing import coverage, known_campaign, list_campaigns, print_summary, show
from orchestrator.cli.results.tables import wide_console
from orchestrator.cli.results.taking import export, sql

__all__ = ["known_campaign", "open_existing", "print_summary", "results", "wide_console"]


@click.group()
def results() -> None:
    """The result store."""


for command in (list_campaigns, show, coverage, sql, export, verify, compact, merge, import_command, push_command):
    results.add_command(command)
