"""`taxmeter hosts`: what the machines are."""

import json
from enum import Enum
from pathlib import Path
from typing import Any

import click

from orchestrator.campaign import ProjectFiles
from orchestrator.cli.hosts_check import check
from orchestrator.cli.options import inventory_option, limit_option
from orchestrator.config import (
    Expectation,
    Host,
    Inventory,
    fingerprint_of,
    groups_of,
    json_schema,
    load_inventory,
    select_hosts,
)
from orchestrator.errors import ExitCode, InfrastructureError, did_you_mean
from orchestrator.hosts import SystemDescription, describe_here, offered_key, open_hosts
from orchestrator.hosts.check import differences

_FACTS_TIMEOUT_S = 120.0
_KEY_TIMEOUT_S = 30.0
_PROGRAM_KEYS = ("ssh-ed25519", "ed25519"), ("ecdsa", "ecdsa"), ("ssh-rsa", "rsa")


class _Hosts(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Exit code 1 means that something differs or is unusable, so a host that cannot be asked at all is 3."""
        try:
            return super().invoke(ctx)
        except InfrastructureError as error:
            error.exit_code = ExitCode.NO_USABLE_HOST
            raise


@click.group(cls=_Hosts)
def hosts() -> None:
    """The machines of the inventory.

    Exit codes: 0 ok, 1 some hosts are unusable or what was compared differs, 2 usage or configuration, 3 no host can
    be used or asked.
    """


hosts.add_command(check)


@hosts.command("list")
@inventory_option
@limit_option
def list_hosts(inventory: Path, limit: str | None) -> None:
    """Lists the hosts with their groups and labels. None is asked anything; `check` does that."""
    known = load_inventory(inventory)
    for name, host in select_hosts(known, limit).items():
        place = host.address or host.ssh_alias or "-"
        groups = ",".join(groups_of(name, known)) or "-"
        labels = " ".join(f"{label}={value}" for label, value in sorted(host.labels.items()))
        click.echo(f"{name:24} {host.connection.value:6} {place:24} {host.state.value:7} {groups:20} {labels}".rstrip())


@hosts.command()
@click.argument("name")
@inventory_option
def show(name: str, inventory: Path) -> None:
    """Shows the settings of host NAME, and where each comes from."""
    known = load_inventory(inventory)
    host = _host(name, known)
    click.echo(f"{name}  groups: {', '.join(groups_of(name, known)) or 'none'}")
    origins = known.origins[name]
    for key, value in _settings(host).items():
        origin = origins.get(key)
        place = "built in" if origin is None else f"{inventory}:{origin.line} ({origin.level})"
        click.echo(f"  {key:24} {value:40} {place}")


@hosts.command()
@click.argument("name", required=False)
@inventory_option
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=_FACTS_TIMEOUT_S, show_default=True)
def facts(name: str | None, inventory: Path, timeout_s: float) -> None:
    """Prints the fingerprint of host NAME, or of this machine, as JSON."""
    [found] = [describe_here()] if name is None else _facts([name], inventory, timeout_s)
    click.echo(json.dumps({"read": found.read, **found.document}, indent=2))


@hosts.command()
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@inventory_option
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=_FACTS_TIMEOUT_S, show_default=True)
def diff(one: str, other: str, inventory: Path, timeout_s: float) -> int:
    """Says in what the fingerprints of hosts A and B differ."""
    left, right = _facts([one, other], inventory, timeout_s)
    for name, found in ((one, left), (other, right)):
        click.echo(f"{name}: read {found.read}")
    hardware = "the same hardware" if left.document["hw_id"] == right.document["hw_id"] else "other hardware"
    found_differences = differences(left.document["fingerprint"], right.document["fingerprint"])
    if not found_differences:
        click.echo(f"{hardware}, and nothing else differs")
        return ExitCode.OK
    click.echo(f"{hardware}; what differs:")
    width = max(len(difference.key) for difference in found_differences)
    for difference in found_differences:
        click.echo(f"  {difference.key:{width}}  {one}: {difference.one}")
        click.echo(f"  {'':{width}}  {other}: {difference.other}")
    return ExitCode.TRIALS_FAILED


@hosts.command()
@click.argument("name")
@inventory_option
def key(name: str, inventory: Path) -> int:
    """Prints the SSH host key that host NAME offers. Compare its fingerprint before you trust it."""
    known = load_inventory(inventory)
    host = _host(name, known)
    offered = offered_key(name, known, _KEY_TIMEOUT_S)
    kind = next((file for start, file in _PROGRAM_KEYS if offered.startswith(start)), "*")
    click.echo(f"{name} offers {fingerprint_of(offered)}")
    click.echo(f"the host itself says: ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub")
    click.echo(f"host_key: {offered}")
    if host.host_key is None:
        click.echo(f"{inventory} pins none yet; if the fingerprints agree, write that line there")
        return ExitCode.OK
    if host.host_key == offered:
        click.echo(f"{inventory} pins the same")
        return ExitCode.OK
    click.echo(f"{inventory} pins another: {fingerprint_of(host.host_key)}")
    return ExitCode.TRIALS_FAILED


@hosts.command()
def schema() -> None:
    """Prints the JSON schema of the inventory, for editors (docs/hostinventory.schema.json)."""
    click.echo(json_schema(), nl=False)


def _facts(names: list[str], inventory: Path, timeout_s: float) -> list[SystemDescription]:
    known = load_inventory(inventory)
    chosen = {name: _host(name, known) for name in names}
    with open_hosts(chosen, known, ProjectFiles(Path.cwd())) as hosts:
        found = hosts.each(chosen, lambda access: access.describe(timeout_s))
    problems = [f"{name}: {answer}" for name, answer in found.items() if isinstance(answer, str)]
    if problems:
        raise InfrastructureError("; ".join(problems))
    return [answer for name in names if not isinstance(answer := found[name], str)]


def _host(name: str, known: Inventory) -> Host:
    if name not in known.hosts:
        raise known.error(f"no host is called {name}; {did_you_mean(name, known.hosts)}")
    return known.hosts[name]


def _settings(host: Host) -> dict[str, str]:
    """Every setting by its key; those that are not set are `-`."""
    shown: dict[str, str] = {}
    for name in type(host).model_fields:
        value = getattr(host, name)
        if isinstance(value, Expectation):
            pairs = {key: getattr(value, key) for key in type(value).model_fields}
            shown |= {f"{name}.{key}": str(inner) for key, inner in pairs.items() if inner is not None}
        elif isinstance(value, dict):
            shown |= {f"{name}.{key}": str(inner) for key, inner in value.items()}
        else:
            value = ", ".join(value) or "none" if isinstance(value, tuple) else value
            shown[name] = str(value.value if isinstance(value, Enum) else "-" if value is None else value)
    return shown
