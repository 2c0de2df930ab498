"""`taxmeter hosts`: what the machines are, and whether they can be used."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.options import (
    ComparingGroup,
    format_option,
    inventory_option,
    limit_option,
    print_status,
    timeout_option,
)
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
from orchestrator.files import ProjectFiles
from orchestrator.hosts import SystemDescription, describe_here, offered_key, open_hosts
from orchestrator.hosts.check import CHECK_TIMEOUT_S, Check, Finding, HostReport, Level, differences, read_requirements
from orchestrator.hosts.cluster import ClusterStatus, status

_FACTS_TIMEOUT_S = 120.0
_KEY_TIMEOUT_S = 30.0
_MARKS = {Level.FAILURE: "✗", Level.WARNING: "!"}
_PROGRAM_KEYS = ("ssh-ed25519", "ed25519"), ("ecdsa", "ecdsa"), ("ssh-rsa", "rsa")


@click.group(cls=ComparingGroup)
def hosts() -> None:
    """The machines of the inventory.

    Exit codes: 0 ok, 1 some hosts are unusable or what was compared differs, 2 usage or configuration, 3 no host can
    be used or asked.
    """


@hosts.command()
@inventory_option
@limit_option
@format_option("table", "json")
@timeout_option(CHECK_TIMEOUT_S, help="Seconds for each host.")
def check(inventory: Path, limit: str | None, form: str, timeout_s: float) -> ExitCode:
    """Looks at every host: whether it can be used, and what may disturb a measurement.

    Nothing is changed or installed on a host; a short container is started where GPUs must be seen from inside. Exit
    code 0: all can be used, 1: some cannot, 3: none can.
    """
    known = load_inventory(inventory)
    chosen = select_hosts(known, limit)
    files = ProjectFiles(Path.cwd())
    wanted = read_requirements(files.catalogue)
    with open_hosts(chosen, known, files) as hosts:
        answers, _ = hosts.each(chosen, lambda access: access.check(wanted, timeout_s))
    reports = _with_agents(list(answers.values()), status(files))
    if form == "json":
        click.echo(json.dumps(_document(reports), indent=2))
    else:
        _print_reports(reports)
    return exit_code(reports)


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
@timeout_option(_FACTS_TIMEOUT_S)
def facts(name: str | None, inventory: Path, timeout_s: float) -> None:
    """Prints the fingerprint of host NAME, or of this machine, as JSON."""
    [found] = [describe_here()] if name is None else _facts([name], inventory, timeout_s)
    click.echo(json.dumps({"read": found.read, **found.document}, indent=2))


@hosts.command()
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@inventory_option
@timeout_option(_FACTS_TIMEOUT_S)
def diff(left: str, right: str, inventory: Path, timeout_s: float) -> int:
    """Says in what the fingerprints of hosts A and B differ."""
    before, after = _facts([left, right], inventory, timeout_s)
    for name, found in ((left, before), (right, after)):
        click.echo(f"{name}: read {found.read}")
    hardware = "the same hardware" if before.document["hw_id"] == after.document["hw_id"] else "other hardware"
    found_differences = differences(before.document["fingerprint"], after.document["fingerprint"])
    if not found_differences:
        click.echo(f"{hardware}, and nothing else differs")
        return ExitCode.OK
    click.echo(f"{hardware}; what differs:")
    width = max(len(difference.key) for difference in found_differences)
    for difference in found_differences:
        click.echo(f"  {difference.key:{width}}  {left}: {difference.left}")
        click.echo(f"  {'':{width}}  {right}: {difference.right}")
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
        found, problems = hosts.each(chosen, lambda access: access.describe(timeout_s))
    if problems:
        raise InfrastructureError("; ".join(f"{name}: {problem}" for name, problem in problems.items()))
    return [found[name] for name in names]


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


def _with_agents(reports: Sequence[HostReport], cluster: ClusterStatus | None) -> list[HostReport]:
    """Adds how the agents are that this project's cluster has on the hosts.

    A wrong one is a warning: `cluster up` mends it, and so does the next sweep.
    """
    agents = {
        agent.name: Finding(Level.WARNING, agent.container, "; ".join(agent.problems))
        if agent.problems
        else Finding(Level.OK, "live")
        for agent in (() if cluster is None else cluster.agents)
    }
    return [
        replace(report, findings={**report.findings, Check.AGENT: agents[report.host]})
        if report.host in agents
        else report
        for report in reports
    ]


def exit_code(reports: Sequence[HostReport]) -> ExitCode:
    """0 if every host can be used, 1 if some cannot, 3 if none can that takes trials."""
    if not any(report.is_usable and report.is_active for report in reports):
        return ExitCode.NO_USABLE_HOST
    return ExitCode.OK if all(report.is_usable for report in reports) else ExitCode.TRIALS_FAILED


def _print_reports(reports: Sequence[HostReport]) -> None:
    rows = [["host", *(check.value for check in Check)]]
    for report in reports:
        name = report.host if report.is_active else f"{report.host} (drain)"
        rows.append([name, *(_cell(report, check) for check in Check)])
    problems = [
        f"{_MARKS[finding.level]} {report.host}: {check.value}: {finding.problem}"
        for level in (Level.FAILURE, Level.WARNING)
        for report in reports
        for check, finding in report.findings.items()
        if finding.level is level
    ]
    usable = sum(1 for report in reports if report.is_usable and report.is_active)
    drained = sum(1 for report in reports if not report.is_active)
    total = f"{usable} of {len(reports)} hosts can be used" + (f", {drained} take no new trials" if drained else "")
    print_status(rows, problems, total)


def _cell(report: HostReport, check: Check) -> str:
    finding = report.findings[check]
    mark = _MARKS.get(finding.level)
    return f"{finding.shown} {mark}" if mark else finding.shown


def _document(reports: Sequence[HostReport]) -> dict[str, Any]:
    return {
        "hosts": [
            {
                "host": report.host,
                "active": report.is_active,
                "usable": report.is_usable,
                "checks": {
                    check.value: {**asdict(finding), "level": finding.level.value}
                    for check, finding in report.findings.items()
                },
                "reading": None if report.preflight is None else asdict(report.preflight),
                "engine": None if report.engine is None else asdict(report.engine),
                "clock": None if report.skew is None else asdict(report.skew),
            }
            for report in reports
        ]
    }
