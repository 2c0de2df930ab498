"""Options that several commands share."""

from pathlib import Path

import click

inventory_option = click.option(
    "--inventory",
    type=click.Path(path_type=Path),
    default=Path("hostinventory.yaml"),
    show_default=True,
    help="The machines.",
)
limit_option = click.option(
    "--limit", default=None, metavar="PATTERN", help="Hosts to use, such as 'a100-*:!a100-07'; all without it."
)
results_option = click.option(
    "--results",
    "results_directory",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="The result store.",
)
