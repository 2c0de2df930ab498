"""`taxmeter results verify | compact | merge`: care of a store."""

from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator.cli.options import StorePlace, open_existing, place_option, require_store, results_option, writing
from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.store import Store
from orchestrator.store.storage.compaction import compact as compact_store
from orchestrator.store.storage.files import Layout
from orchestrator.store.sharing.merging import merge as merge_stores
from orchestrator.store.objects.remote import differing_contents
from orchestrator.store.verification.verifying import verify as verify_store

_SHOWN = 20


@click.command()
@place_option
def verify(place: str | Path) -> ExitCode:
    """Reads every row of the store and checks that all of it fits together; changes nothing.

    Exit code 0 says that it is sound, 1 that something is damaged: what, and what to do, stands in the report.
    """
    opened = require_store(place)
    found = verify_store(opened.view(), Layout(place) if isinstance(place, Path) else None)
    if isinstance(place, str):
        for difference in differing_contents(place):
            found.damage(place, difference, "push the store again, which replaces it")
    counts = ", ".join(f"{found.rows[name]} {name}" for name in ("trials", "systems", "environments", "campaigns"))
    click.echo(f"{place}: {found.files} files, {counts}; {found.unsealed} of the trials are not sealed yet")
    for note in found.notes:
        click.echo(f"note: {note}")
    for problem in found.problems:
        click.echo(f"damaged: {problem.place}: {problem.what}; {problem.remedy}")
    if found.problems:
        return ExitCode.TRIALS_FAILED
    click.echo("sound: every page was read, and every reference leads somewhere")
    return ExitCode.OK


@click.command()
@results_option
def compact(results_directory: Path) -> None:
    """Merges small files of the store into few large ones; readers do not notice.

    It happens by itself when it is worth it. Here all of a month that is not full becomes one file, in the current schema.
    """
    require_store(results_directory)
    with writing():
        report = compact_store(open_existing(results_directory).layout, full=True)
    if report.months:
        click.echo(
            f"{', '.join(report.months)}: {report.rows} rows were merged; "
            f"{report.parts_before} parts became {report.parts_after}, "
            f"{_megabytes(report.bytes_before)} became {_megabytes(report.bytes_after)}"
        )
    else:
        click.echo(f"nothing to merge: {report.parts_before} parts, {_megabytes(report.bytes_before)}")
    if report.expired:
        click.echo(f"{report.expired} old generations were deleted")


@click.command()
@click.argument("other", metavar="OTHER_STORE", type=StorePlace())
@results_option
def merge(other: str | Path, results_directory: Path) -> ExitCode:
    """Adds to the store what OTHER_STORE has and it lacks. OTHER_STORE, a directory or a URL, is only read.

    A row that is in both with different content is named and not taken; the exit code is then 1. Run it again if it was
    interrupted: nothing is taken twice.
    """
    theirs = require_store(other)
    if isinstance(other, Path) and results_directory.exists() and other.samefile(results_directory):
        raise ConfigurationError("is the store itself; name another one", file=other)
    view = theirs.view()
    with writing():
        report = merge_stores(Store.open(results_directory), view)
    click.echo(f"{results_directory}: {report.added} rows added, {report.already} were there already")
    small = {"systems": report.systems, "environments": report.environments, "campaigns": report.campaigns}
    added = [f"{count} {name}" for name, count in small.items() if count]
    if added:
        click.echo(f"added: {', '.join(added)}")
    if report.continued:
        click.echo(f"{report.continued} campaigns went on over there, and have their newer totals now")
    _print_conflicts(report.conflicts)
    return ExitCode.TRIALS_FAILED if report.conflicts else ExitCode.OK


def _print_conflicts(conflicts: Sequence[str]) -> None:
    for conflict in conflicts[:_SHOWN]:
        click.echo(f"not taken: {conflict}", err=True)
    if len(conflicts) > _SHOWN:
        click.echo(f"not taken: {len(conflicts) - _SHOWN} more", err=True)


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
