"""`taxmeter results verify | compact | merge | import | drop | push`: care of a store, rows from and for elsewhere."""

from pathlib import Path

import click

from orchestrator.boundary import terminal_text
from orchestrator.campaign.exchange import ImportReport, import_export
from orchestrator.cli.stores import StorePlace, open_existing, place_option, require_store, results_option, writing
from orchestrator.errors import ConfigurationError, ExitCode, some_of
from orchestrator.store import Store
from orchestrator.store.merge import merge as merge_stores
from orchestrator.store.push import push
from orchestrator.store.storage.compaction import compact as compact_store
from orchestrator.store.storage.compaction import drop
from orchestrator.store.storage.generations import KEEP_S
from orchestrator.store.storage.layout import Layout
from orchestrator.store.verification import verify as verify_store

_DAY_S = 24 * 3600
_SHOWN = 20


@click.command()
@place_option
def verify(place: str | Path) -> ExitCode:
    """Reads every row of the store and checks that all of it fits together; changes nothing.

    Exit code 0 says that it is sound, 1 that something is damaged: what, and what to do, stands in the report.
    """
    opened = require_store(place)
    found = verify_store(opened.view(), Layout(place) if isinstance(place, Path) else None)
    counts = ", ".join(f"{found.rows[name]} {name}" for name in ("trials", "systems", "environments", "campaigns"))
    click.echo(f"{place}: {found.files} files, {counts}; {found.unsealed} of the trials are not sealed yet")
    for note in found.notes:
        click.echo(terminal_text(f"note: {note}"))
    for problem in found.problems:
        click.echo(terminal_text(f"damaged: {problem.place}: {problem.what}; {problem.remedy}"))
    if found.problems:
        return ExitCode.TRIALS_FAILED
    click.echo("sound: every row was read, and every reference leads somewhere")
    return ExitCode.OK


@click.command()
@results_option
def compact(results_directory: Path) -> None:
    """Merges small files of the store into few large ones; readers do not notice.

    It happens by itself when it is worth it. Here all of a month that is not full becomes one file, in the current
    schema.
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

    A row that is in both with different content, or that no taxmeter writes, is named and not taken; the exit code is
    then 1. Run it again if it was
    interrupted: nothing is taken twice.
    """
    theirs = require_store(other)
    if isinstance(other, Path) and results_directory.exists() and other.samefile(results_directory):
        raise ConfigurationError("is the store itself; name another one", file=other)
    view = theirs.view()
    with writing():
        report = merge_stores(Store.open(results_directory), view)
    click.echo(f"{results_directory}: {report.added} rows added, {report.already} were there already")
    added = [f"{count} {name}" for name, count in report.small.items() if count]
    if added:
        click.echo(f"added: {', '.join(added)}")
    if report.continued:
        click.echo(f"{report.continued} campaigns went on over there, and have their newer totals now")
    left = [*report.conflicts, *report.refused]
    for line in some_of(left, _SHOWN):
        click.echo(terminal_text(f"not taken: {line}"), err=True)
    return ExitCode.TRIALS_FAILED if left else ExitCode.OK


@click.command("import")
@click.argument("directory", type=click.Path(path_type=Path))
@results_option
@click.option(
    "--accept-versions",
    is_flag=True,
    help="Take results of other versions than the lock's, under an environment name of their own.",
)
def import_command(directory: Path, results_directory: Path, accept_versions: bool) -> ExitCode:
    """Adds the results of DIRECTORY, which `taxmeter task export` wrote and another machine ran."""
    with writing():
        report = import_export(directory, Store.open(results_directory), accept_versions=accept_versions)
    _print_import(report, results_directory)
    return ExitCode.OK if report.is_whole else ExitCode.TRIALS_FAILED


@click.command("drop")
@click.argument("campaign_id")
@results_option
def drop_command(campaign_id: str, results_directory: Path) -> None:
    """Takes the campaign CAMPAIGN_ID and its rows out of the store, whoever measured it.

    The files that had them are kept for a week, in the generation before.
    """
    require_store(results_directory)
    with writing():
        report = drop(open_existing(results_directory).layout, campaign_id)
    click.echo(f"{campaign_id}: {report.rows} rows were taken out")
    click.echo(
        f"generation {report.generation - 1} has them for {KEEP_S / _DAY_S:.0f} days; until something else is written, "
        f"`ln -sfn generations/{report.generation - 1:06d} {results_directory}/current` brings them back"
    )


@click.command("push")
@click.argument("url")
@results_option
@click.option("--prune", is_flag=True, help="Delete what no push has listed for --keep-days.")
@click.option(
    "--keep-days",
    type=click.FloatRange(min=0),
    default=KEEP_S / _DAY_S,
    show_default=True,
    help="How long what was replaced stays for those who still read it.",
)
def push_command(url: str, results_directory: Path, prune: bool, keep_days: float) -> ExitCode:
    """Makes the store readable at URL, such as s3://BUCKET/PREFIX?endpoint_override=HOST:PORT&region=NAME.

    Uploads what is missing there, and does nothing if nothing is. Credentials come from the environment:
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE.
    """
    require_store(results_directory)
    layout = Store.open(results_directory).layout

    def told(key: str, size: int) -> None:
        click.echo(f"{size / 1e6:10.2f} MB  {key}")

    with writing():
        report = push(layout, url, prune=prune, prune_after_s=keep_days * _DAY_S, progress=told)
    for key in report.replaced:
        click.echo(f"note: {key} was there with another content, and was replaced", err=True)
    click.echo(
        f"{report.uploaded} files ({report.uploaded_bytes / 1e6:.2f} MB) uploaded, {report.present} were there already"
    )
    if report.pruned:
        click.echo(f"{report.pruned} old files deleted")
    if report.superseded:
        click.echo(f"{report.superseded} replaced files are kept for those who read them; --prune deletes them later")
    click.echo(
        f"generation {report.generation} of this store {'is now' if report.published else 'was already'} at {url}"
    )
    if layout.segments():
        click.echo("note: rows that are not sealed yet stay behind; push again when the sweep has ended", err=True)
    return ExitCode.OK


def _print_import(report: ImportReport, results_directory: Path) -> None:
    manifest = report.manifest
    for damage in report.damages:
        click.echo(f"not imported: {damage}", err=True)
    if report.conflicts:
        click.echo(
            f"not imported: {report.conflicts} rows that the store has with another content; "
            "this export was run twice, and each machine or run needs an export of its own",
            err=True,
        )
    for notice in report.notices:
        click.echo(f"note: {notice}", err=True)
    for name, differences in report.found.items():
        click.echo(f"environment {name} is not the locked one: {'; '.join(differences)}")
    if report.missing:
        click.echo(f"not here: {', '.join(report.missing)}")
    if report.begun or report.untouched:
        click.echo(
            f"not finished: {report.begun} trials began and have no record, {report.untouched} have not begun; "
            "./run.sh goes on there"
        )
    if report.added:
        click.echo(f"campaign {manifest.campaign_id}: {report.added} rows added, {report.already} were there already")
        command = f"taxmeter results show {manifest.campaign_id} --results {results_directory}"
        click.echo(f"its table: {command}")
    else:
        click.echo(f"campaign {manifest.campaign_id}: nothing added, {report.already} rows were there already")


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
