"""`taxmeter results ls`: the campaigns of a store."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from orchestrator.cli.options import duration_text, format_option
from orchestrator.cli.stores import open_results, place_option
from orchestrator.cli.tables import console, print_rows, wide_console
from orchestrator.store import Origin
from orchestrator.store.query.campaigns import campaign_list

_ENDLESS = 10_000
_HOSTS_SHOWN = 3
_ORIGINS = {Origin.MEASURED.value: "this store", Origin.IMPORTED.value: "imported", Origin.MERGED.value: "merged"}


@click.command("ls")
@place_option
@format_option("table", "csv", "json", help="A table for people, or all rows as CSV or JSON.")
def list_campaigns(place: str | Path, form: str) -> None:
    """Lists the campaigns, the newest first, and how their trials ended."""
    rows = campaign_list(open_results(place).view())
    if form != "table":
        print_rows(rows, form)
        return
    if not len(rows):
        click.echo("no campaign yet; run `make cluster-sweep`")
        return
    listed = [_for_people(row) for row in rows.to_pylist()]
    table = Table(box=None, pad_edge=False)
    for name, value in listed[0].items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left", no_wrap=True)
    for row in listed:
        table.add_row(*(escape(str(value)) for value in row.values()))
    # An id that is cut cannot be copied into another command.
    console(max(wide_console().width, console(_ENDLESS).measure(table).maximum)).print(table)


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    hosts = row["hosts"]
    more = f" +{len(hosts) - _HOSTS_SHOWN}" if len(hosts) > _HOSTS_SHOWN else ""
    started: datetime = row["started_at"]
    return {
        "campaign": row["campaign_id"],
        "started (UTC)": f"{started:%Y-%m-%d %H:%M}",
        "sweep": row["sweep"],
        "origin": _ORIGINS.get(row["origin"], "unknown"),
        "hosts": " ".join(hosts[:_HOSTS_SHOWN]) + more,
        **{name: row[name] for name in ("planned", "ok", "failed", "unsupported", "skipped")},
        "left": row["left_to_do"],
        "duration": "" if row["duration_s"] is None else duration_text(row["duration_s"]),
    }
