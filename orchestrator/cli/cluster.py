"""`taxmeter cluster`: the Ray cluster on the hosts of the inventory."""

import json
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import click

from orchestrator.cli.options import format_option, inventory_option, limit_option, print_status
from orchestrator.config import load_inventory, refuse_nodes, select_hosts
from orchestrator.environments import connect, engine_address
from orchestrator.errors import ExitCode
from orchestrator.files import ProjectFiles
from orchestrator.hosts.cluster import ClusterStatus, NodeStatus, ensure_agent_image, keep
from orchestrator.hosts.cluster import down as take_down
from orchestrator.hosts.cluster import status as look
from orchestrator.hosts.cluster import up as bring_up


@click.group()
def cluster() -> None:
    """A Ray cluster on the hosts of the inventory; docs/cluster.md says what runs where.

    Exit codes: 0 ok, 1 something is left out or wrong, 2 usage or configuration, 3 no host can be used.
    """


@cluster.command()
@inventory_option
@limit_option
@click.option(
    "--first-port",
    type=int,
    default=None,
    help="First of 300 ports; by default those the cluster has, TAXMETER_FIRST_PORT or the first free from 20000 on.",
)
@click.option("--address", default=None, help="IPv4 address of this machine as the hosts reach it; found without it.")
def up(inventory: Path, limit: str | None, first_port: int | None, address: str | None) -> ExitCode:
    """Brings the cluster up on the hosts, or mends it. What runs and is right stays as it is."""
    known = load_inventory(inventory)
    chosen = select_hosts(known, limit)
    refuse_nodes(chosen, known)
    files = ProjectFiles(Path.cwd())
    found = bring_up(chosen, known, files, click.echo, first_port=first_port, address=address)
    keep(files)
    for agent in found.agents.values():
        gpus = f", {_count(len(agent.gpu_uuids), 'GPU')}" if agent.gpu_uuids else ""
        click.echo(f"{agent.name:24} {agent.address:16} {_count(len(agent.cores), 'core')}{gpus}")
    for name, reason in found.unusable.items():
        click.echo(f"✗ {name}: {reason}", err=True)
    click.echo(f"the cluster {found.id} is up: {_count(len(found.agents), 'host')}, head {found.ray_address}")
    return ExitCode.TRIALS_FAILED if found.unusable else ExitCode.OK


@cluster.command()
@format_option("table", "json")
def status(form: str) -> ExitCode:
    """Says how the head and every agent is."""
    found = look(ProjectFiles(Path.cwd()))
    if found is None:
        click.echo("null" if form == "json" else "no cluster is up; make cluster-up brings one up")
        return ExitCode.NO_USABLE_HOST
    if form == "json":
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        _print(found)
    return ExitCode.OK if found.is_healthy else ExitCode.TRIALS_FAILED


@cluster.command()
def image() -> None:
    """Builds the image of the agents if this machine's engine lacks it, and prints its name: for clusters of others."""
    with closing(connect()) as client:
        found = ensure_agent_image(Path.cwd(), client, engine_address(), partial(click.echo, err=True))
    click.echo(found.reference)


@cluster.command()
def down() -> ExitCode:
    """Takes the cluster down: its containers, and nothing else."""
    left = take_down(ProjectFiles(Path.cwd()), click.echo)
    for name, reason in left.items():
        click.echo(f"✗ {name}: something may be left there: {reason}", err=True)
    if left:
        click.echo("repeat `taxmeter cluster down` when they answer")
        return ExitCode.TRIALS_FAILED
    click.echo("no cluster is up")
    return ExitCode.OK


def _print(found: ClusterStatus) -> None:
    nodes = (found.head, *found.agents)
    rows = [["node", "address", "container", "Ray", "up for", "Python", "Ray version"], *map(_row, nodes)]
    problems = [f"✗ {node.name}: {problem}" for node in nodes for problem in node.problems]
    living = sum(1 for node in found.agents if node.is_alive)
    print_status(rows, problems, f"{living} of {len(found.agents)} hosts live")


def _row(node: NodeStatus) -> list[str]:
    return [
        node.name,
        node.address,
        node.container,
        "alive" if node.is_alive else "-",
        "-" if node.since is None else _duration(datetime.now(UTC) - datetime.fromisoformat(node.since)),
        node.python or "-",
        node.ray or "-",
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _duration(passed: timedelta) -> str:
    minutes = int(passed.total_seconds()) // 60
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
