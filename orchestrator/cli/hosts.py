"""`taxmeter hosts`: what the machines are."""

import json
from pathlib import Path

import click

from orchestrator.cli.options import inventory_option, limit_option
from orchestrator.inventory import load_inventory, select_hosts, unreachable_reason
from runners.contract import encode
from runners.system import collect, hw_id, system_id


@click.group()
def hosts() -> None:
    """The machines of the inventory."""


@hosts.command("list")
@inventory_option
@limit_option
def list_hosts(inventory: Path, limit: str | None) -> None:
    """Lists the hosts, and whether each can be reached."""
    for name, host in select_hosts(load_inventory(inventory), limit).items():
        problem = unreachable_reason(host)
        click.echo(f"{name:24} {host.connection.value:6} {host.address or '-':24} {problem or 'reached'}")


@hosts.command()
def facts() -> None:
    """Prints the fingerprint of this machine as JSON."""
    fingerprint = collect()
    document = {
        "hw_id": hw_id(fingerprint),
        "system_id": system_id(fingerprint),
        "fingerprint": encode(fingerprint),
    }
    click.echo(json.dumps(document, indent=2))
