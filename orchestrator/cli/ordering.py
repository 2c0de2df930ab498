"""What every sweep does between its hosts and its campaign, wherever they are: hosts left out are named, an order is
made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import click

from orchestrator.campaign import CampaignOrder, ProjectFiles, ReadyHost, drop_caches
from orchestrator.campaign.resuming.resume import Choose, write_widened
from orchestrator.cli.campaigns import git_commit
from orchestrator.config.inventory import Host, load_inventory
from orchestrator.config.sweep import Sweep
from orchestrator.planning import Plan
from orchestrator.store import Store


@dataclass(frozen=True)
class Wanted:
    """What a command is about."""

    sweep: Sweep
    sweep_file: Path
    hosts: Mapping[str, Host]
    inventory: Path
    files: ProjectFiles


def make_order(
    wanted: Wanted, ready: Sequence[ReadyHost], store: Store, choose: Choose, left_out: Mapping[str, str]
) -> CampaignOrder:
    """Chooses the campaign that runs, and makes room for it.

    Args:
        wanted: the sweep and its hosts.
        ready: the hosts that take part.
        store: where the rows go.
        choose: says which campaign runs.
        left_out: the hosts that take no part, and why.
    """
    continuation = choose([host.planning for host in ready], store, left_out)
    continuation = replace(
        continuation,
        plan=with_left_out(continuation.plan, left_out),
        left=with_left_out(continuation.left, left_out),
    )
    order = CampaignOrder(
        continuation,
        ready,
        wanted.sweep.name,
        wanted.sweep_file.read_text(encoding="utf-8"),
        wanted.inventory.read_text(encoding="utf-8"),
        version("taxmeter"),
        git_commit(),
        faults=load_inventory(wanted.inventory).faults,
        sweep=wanted.sweep,
    )
    drop_caches(wanted.files, keep=continuation.campaign_id)
    write_widened(continuation, order.inventory_document, store)
    return order


def with_left_out(planned: Plan, left_out: Mapping[str, str]) -> Plan:
    """The plan, which names the hosts that take no part."""
    return replace(planned, unmatched=(*planned.unmatched, *(f"{name}: {why}" for name, why in left_out.items())))


def tell_left_out(left_out: Mapping[str, str]) -> None:
    """Says at the beginning which hosts take no part."""
    for name, reason in left_out.items():
        click.echo(f"{name} is left out: {reason}")


def tell_not_measured(left_out: Mapping[str, str]) -> None:
    """Says it again at the end, below the table."""
    for name, reason in left_out.items():
        click.echo(f"not measured: {name}: {reason}")
