"""Nothing that a row, a record or a file says steers the terminal that shows it."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from orchestrator.cli import run
from orchestrator.cli.tables import console
from orchestrator.cli.terminal import clear_line, filtered_streams, write_data

EVIL = "a\x1b]0;title\x07\x1b[2J\x9b31m\u202eb"
SHOWN = r"a\x1b]0;title\x07\x1b[2J\x9b31m\u202eb"


class Terminal(io.StringIO):
    encoding = "utf-8"
    errors = "strict"

    def isatty(self) -> bool:
        return True


@contextmanager
def terminal() -> Iterator[Terminal]:
    """What a person sees of the block."""
    shown = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stdout", shown)
        patch.setattr(sys, "stderr", shown)
        with filtered_streams():
            yield shown
        assert sys.stdout is shown


def test_whatever_is_printed_is_filtered() -> None:
    with terminal() as shown:
        click.echo(EVIL)
        click.echo(EVIL, err=True)
        print(EVIL)
        sys.stdout.writelines([EVIL, "\n"])
        write_data(EVIL + "\n")
    assert shown.getvalue() == f"{SHOWN}\n" * 5


def test_a_console_draws_with_its_own_codes_alone() -> None:
    with terminal() as shown:
        table = Table()
        table.add_column(EVIL)
        table.add_row(Text(EVIL, "bold red"))
        console(200).print(table)
        with Progress(console=console(200), refresh_per_second=1) as live:
            live.add_task(EVIL, total=1)
        clear_line()
    drawn = shown.getvalue()
    assert r"a\x1b]0;title" in drawn, "as much of it as there is room for"
    assert "\x1b[1;31m" in drawn, "its own colours stay"
    assert drawn.endswith("\r\x1b[2K")
    assert not any(code in drawn for code in ("\x1b]0", "\x07", "\x1b[2J", "\x9b", "\u202e"))


def test_a_program_reads_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with filtered_streams():
        write_data(EVIL)
    assert capsys.readouterr().out == EVIL


def test_an_error_about_a_hostile_file_is_shown_plain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text('version: 1\n"\\e[2J\\u202e": 1\n')
    assert run(["sweep", "plan", str(path)]) == 2
    error = capsys.readouterr().err
    assert r":2: \u202e: unknown key" in error
    assert "\x1b" not in error
    assert "\u202e" not in error
