"""`taxmeter hosts check`: one table for all hosts, and below it one line for each thing that is not right."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import Any

import click

from orchestrator.campaign import ProjectFiles
from orchestrator.cli.options import inventory_option, limit_option
from orchestrator.config import load_inventory, select_hosts
from orchestrator.errors import ExitCode
from orchestrator.hosts import open_hosts
from orchestrator.hosts.check import CHECK_TIMEOUT_S, Check, Finding, HostReport, Level, read_requirements
from orchestrator.hosts.cluster import ClusterStatus, NodeStatus, status

_MARKS = {Level.FAILURE: "✗", Level.WARNING: "!"}


@click.command()
@inventory_option
@limit_option
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=CHECK_TIMEOUT_S,
    show_default=True,
    help="Seconds for each host.",
)
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
        answers = hosts.each(chosen, lambda access: access.check(wanted, timeout_s))
    reports = with_agents([answer for answer in answers.values() if isinstance(answer, HostReport)], status(files))
    click.echo(json.dumps(_document(reports), indent=2) if form == "json" else _text(reports))
    return exit_code(reports)


def with_agents(reports: Sequence[HostReport], cluster: ClusterStatus | None) -> list[HostReport]:
    """Adds how the agents are that this project's cluster has on the hosts.

    A wrong one is a warning: `cluster up` mends it, and so does the next sweep.
    """
    agents = {} if cluster is None else {agent.name: agent for agent in cluster.agents}
    return [
        replace(report, findings={**report.findings, Check.AGENT: _agent(agents[report.host])})
        if report.host in agents
        else report
        for report in reports
    ]


def _agent(found: NodeStatus) -> Finding:
    if not found.problems:
        return Finding(Level.OK, "live")
    return Finding(Level.WARNING, found.container, "; ".join(found.problems))


def exit_code(reports: Sequence[HostReport]) -> ExitCode:
    """0 if every host can be used, 1 if some cannot, 3 if none can that takes trials."""
    if not any(report.is_usable and report.is_active for report in reports):
        return ExitCode.NO_USABLE_HOST
    return ExitCode.OK if all(report.is_usable for report in reports) else ExitCode.TRIALS_FAILED


def _text(reports: Sequence[HostReport]) -> str:
    rows = [["host", *(check.value for check in Check)]]
    for report in reports:
        name = report.host if report.is_active else f"{report.host} (drain)"
        rows.append([name, *(_cell(report, check) for check in Check)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
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
    return "\n".join([*lines, "", *problems, *([""] if problems else []), total])


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
                "checks": {check.value: _plain(asdict(finding)) for check, finding in report.findings.items()},
                "reading": None if report.preflight is None else asdict(report.preflight),
                "engine": None if report.engine is None else asdict(report.engine),
                "clock": None if report.skew is None else asdict(report.skew),
            }
            for report in reports
        ]
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
