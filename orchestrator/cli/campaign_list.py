"""`taxmeter results ls`: the campaigns of a store."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.cells import cell_len

from orchestrator.boundary import terminal_text
from orchestrator.cli.options import aligned, duration_text, format_option
from orchestrator.cli.stores import open_results, place_option
from orchestrator.cli.tables import print_rows
from orchestrator.store import Origin
from orchestrator.store.query.view import campaign_list

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
    are_numbers = [isinstance(value, int) for value in listed[0].values()]
    # An id that is cut cannot be copied into another command: no line is fitted to the terminal
    texts = [[terminal_text(str(text)) for text in row] for row in (listed[0], *(row.values() for row in listed))]
    head, *lines = aligned(texts, are_numbers, cell_len)
    click.secho(head, bold=True)
    click.echo("\n".join(lines))


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
