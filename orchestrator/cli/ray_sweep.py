"""`taxmeter sweep` on the nodes of somebody else's Ray cluster, driven by this process, which is on one of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from orchestrator.campaign import ReadyHost, ray_scheduler, run_campaign
from orchestrator.campaign.remote.by_ray import RayHosts, work_of
from orchestrator.campaign.remote.joining import Joined, joining
from orchestrator.campaign.resuming.resume import Choose
from orchestrator.cli.campaigns import (
    ending_cleanly,
    exit_code,
    print_pins,
    print_plan,
    print_results,
    project_to_ourselves,
    refuse_empty,
)
from orchestrator.cli.ordering import Wanted, make_order, tell_left_out, tell_not_measured, with_left_out
from orchestrator.cli.progress import ProgressLine
from orchestrator.cli.results import wide_console
from orchestrator.config.inventory import load_inventory
from orchestrator.errors import NoUsableHostError
from orchestrator.planning import Plan, PlanningHost, needed_environments, plan
from orchestrator.store import Store


def plan_by_ray(wanted: Wanted) -> None:
    """Prints what a sweep would do. The nodes are asked what they are, and nothing is changed there.

    Raises:
        ConfigurationError: the cluster cannot be used from this machine, or something in a file is wrong.
        NoUsableHostError: no cluster answers, or no host can be used or is meant.
    """
    with _joined(wanted) as joined, _asking(wanted, joined) as hosts:
        seen = hosts.look(wanted.sweep.environments)
    planned = plan(wanted.sweep, seen.hosts, campaign_id="preview")
    refuse_empty(planned)
    print_pins(wanted.sweep, seen.hosts)
    print_plan(with_left_out(planned, {**joined.left_out, **seen.left_out}))


def run_by_ray(wanted: Wanted, results_directory: Path, choose: Choose) -> int:
    """Runs a sweep and shows its table. Hosts that cannot be used are left out, and named at the end.

    Args:
        wanted: the sweep and its hosts.
        results_directory: of the store.
        choose: says which campaign runs.

    Raises:
        ConfigurationError: the cluster cannot be used from this machine, or something in a file is wrong.
        NoUsableHostError: no cluster answers, or no host is left.
        InfrastructureError: this machine or its engine is at fault.
    """
    with project_to_ourselves(wanted.files), ending_cleanly(), _joined(wanted) as joined:
        left_out = dict(joined.left_out)
        tell_left_out(left_out)
        ready = _ready_hosts(wanted, joined, left_out)
        store = Store.open(results_directory)
        order = make_order(wanted, ready, store, choose, left_out)
        scheduler = ray_scheduler(joined.cluster)
        with ProgressLine(wide_console()) as progress:
            run_campaign(order, scheduler, store, wanted.files, progress.observe)
    print_results(store, results_directory, order.continuation.campaign_id)
    tell_not_measured(left_out)
    return exit_code(store.attempts(order.continuation.campaign_id).values())


@contextmanager
def _joined(wanted: Wanted) -> Iterator[Joined]:
    address = load_inventory(wanted.inventory).ray_address
    assert address is not None, wanted.inventory
    with joining(address, list(wanted.hosts), wanted.inventory) as joined:
        click.echo(f"the Ray cluster at {joined.seen.address} has {len(joined.seen.nodes)} nodes")
        yield joined


@contextmanager
def _asking(wanted: Wanted, joined: Joined) -> Iterator[RayHosts]:
    here = {name: host for name, host in wanted.hosts.items() if name not in joined.left_out}
    click.echo(f"asking {', '.join(here)}")
    scheduler, external = ray_scheduler(joined.cluster), joined.cluster.external
    hosts = RayHosts(here, joined.seen, external, wanted.inventory, wanted.files, scheduler, click.echo)
    try:
        yield hosts
    finally:
        hosts.stop()


def _ready_hosts(wanted: Wanted, joined: Joined, left_out: dict[str, str]) -> list[ReadyHost]:
    """The hosts that take part.

    `left_out` gets those that turn out to be of no use. If a sweep does not want every host, others take their place.
    """
    with _asking(wanted, joined) as hosts:
        seen = hosts.look(wanted.sweep.environments)
        failed = dict(seen.left_out)
        candidates = {host.name: host for host in seen.hosts}
        while True:
            tell_left_out(failed)
            left_out |= failed
            candidates = {name: host for name, host in candidates.items() if name not in left_out}
            if not candidates:
                reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
                raise NoUsableHostError(f"no host can be used: {reasons}")
            planned = plan(wanted.sweep, list(candidates.values()), campaign_id="preview")
            refuse_empty(planned)
            prepared = hosts.prepare(candidates, planned)
            failed = dict(prepared.left_out)
            if not failed:
                return [*prepared.hosts, *_skipping(wanted, planned, candidates)]


def _skipping(wanted: Wanted, planned: Plan, candidates: Mapping[str, PlanningHost]) -> Sequence[ReadyHost]:
    """The hosts of which it is noted only what they cannot run."""
    names = sorted({skip.host for skip in planned.skips} - set(needed_environments(planned)))
    return [ReadyHost(candidates[name], {}, None, work_directory=work_of(wanted.hosts[name])) for name in names]
