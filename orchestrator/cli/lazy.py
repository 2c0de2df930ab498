"""Groups of commands that import a command when it is called for."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """None of its commands waits for what the others need, and no list of them for any."""

    def __init__(self, places: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        """Imports nothing.

        Args:
            places: by the name of a command its place, `MODULE:NAME` in this package, and a line about it.
        """
        # for the names: each stands for what is imported later
        super().__init__(commands=[click.Command(name) for name in places], **settings)
        self.places = places

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.places:
            return None
        module, _, name = self.places[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"orchestrator.cli.{module}"), name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.places.items()])
