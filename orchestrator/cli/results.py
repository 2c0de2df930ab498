"""`taxmeter results`: what was measured, for people and for other programs."""

from typing import Final

import click

from orchestrator.cli.lazy import LazyGroup

_COMMANDS: Final = {
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


@click.group(cls=LazyGroup, places=_COMMANDS)
def results() -> None:
    """The result store."""
