"""What several commands share: groups, options, and how a state is printed. Quick to import: no store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator.errors import ExitCode, InfrastructureError

Command = TypeVar("Command", bound=Callable[..., Any])


class LazyGroup(click.Group):
    """Imports a command when it is called for: none waits for what the others need, and no list of them for any."""

    def __init__(self, places: Mapping[str, tuple[str | click.Command, str]], **settings: Any) -> None:
        """Imports nothing.

        Args:
            places: by the name of a command where it is, as `MODULE:NAME` in this package, or itself; and a line about
                it.
        """
        # for the names: each stands for what is imported later
        super().__init__(commands=[click.Command(name) for name in places], **settings)
        self.places = places

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        place, _ = self.places.get(cmd_name, (None, ""))
        if not isinstance(place, str):
            return place
        module, _, name = place.partition(":")
        command: click.Command = getattr(import_module(f"orchestrator.cli.{module}"), name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.places.items()])


class ComparingGroup(click.Group):
    """Its exit code 1 says that something differs or is unusable, so what cannot be asked or done at all is 3."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InfrastructureError as error:
            error.exit_code = ExitCode.NO_USABLE_HOST
            raise


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
stored_code_option = click.option(
    "--allow-stored-code", is_flag=True, help="Run the files of users' own models that the store holds."
)


def format_option(*forms: str, **settings: Any) -> Callable[[Command], Command]:
    """`--format`, by default the first of `forms`."""
    chosen = {"default": forms[0], "show_default": True, **settings}
    return click.option("--format", "form", type=click.Choice(forms), **chosen)


def timeout_option(default_s: float, **settings: Any) -> Callable[[Command], Command]:
    """`--timeout`, in seconds."""
    kind = click.FloatRange(min=1)
    return click.option("--timeout", "timeout_s", type=kind, default=default_s, show_default=True, **settings)


def print_status(rows: Sequence[Sequence[str]], problems: Sequence[str], total: str) -> None:
    """Prints how things are: a table without lines, what is wrong, and how many are well."""
    click.echo("\n".join([*aligned(rows), "", *problems, *([""] if problems else []), total]))


def aligned(
    rows: Sequence[Sequence[str]], are_numbers: Sequence[bool] = (), measure: Callable[[str], int] = len
) -> Iterator[str]:
    """Rows of equal length as lines with columns, numbers to the right."""
    widths = [max(map(measure, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        gaps = [" " * (width - measure(text)) for width, text in zip(widths, row, strict=True)]
        cells = zip_longest(row, gaps, are_numbers, fillvalue=False)
        yield "  ".join(f"{gap}{text}" if is_number else f"{text}{gap}" for text, gap, is_number in cells).rstrip()


def duration_text(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
