"""`taxmeter sweep` on hosts that are reached over SSH: prepared here, then driven in the head's container."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from orchestrator.campaign import (
    CampaignOrder,
    Handover,
    ProjectFiles,
    ReadyHost,
    look_at_hosts,
    prepare_agents,
    ray_scheduler,
    read_handover,
    refuse_results_elsewhere,
    run_campaign,
    write_handover,
)
from orchestrator.campaign.remote import Charge, Prepared, build_images, pinned, taking_care
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
from orchestrator.config.inventory import WORK_DIRECTORY, Host, load_inventory
from orchestrator.environments import BuiltImage
from orchestrator.errors import ExitCode, InfrastructureError, NoUsableHostError
from orchestrator.hosts.cluster import Cluster, NoHostJoinedError, borrowed, execute_in_head, up
from orchestrator.hosts.connection import Connections
from orchestrator.planning import PlanningHost, needed_environments, plan
from orchestrator.scheduling import ExistingCluster
from orchestrator.store import Store

_SIGNAL = 128
"""An exit code above it tells of a signal."""

_GOES_ON = "what was measured is in the store; run the same command again to go on"
_CLEAR_LINE = "\r\x1b[2K"


@dataclass(frozen=True)
class _Ready:
    """The hosts of a campaign, and what stands by."""

    hosts: Sequence[ReadyHost]
    cluster: Cluster | None
    """Null if there is nothing to run on any."""
    images: Mapping[str, BuiltImage] = field(default_factory=dict)
    """By environment."""
    spares: Mapping[str, PlanningHost] = field(default_factory=dict)
    """Hosts that could be used, and that the sweep does without."""


def plan_remotely(wanted: Wanted) -> None:
    """Prints what a sweep would do. Hosts are looked at, and nothing is changed there.

    Raises:
        NoUsableHostError: no host can be used, or none is meant.
    """
    with Connections(load_inventory(wanted.inventory).hosts) as connections:
        seen = look_at_hosts(wanted.hosts, connections, wanted.inventory, wanted.sweep.environments, wanted.files)
    planned = plan(wanted.sweep, seen.hosts, campaign_id="preview")
    refuse_empty(planned)
    print_pins(wanted.sweep, seen.hosts)
    print_plan(with_left_out(planned, seen.left_out))


def run_remotely(wanted: Wanted, results_directory: Path, choose: Choose) -> int:
    """Runs a sweep and shows its table. Hosts that cannot be used are left out, and named at the end.

    Args:
        wanted: the sweep and its hosts.
        results_directory: of the store.
        choose: says which campaign runs.

    Raises:
        ConfigurationError: something in a file is wrong.
        NoUsableHostError: no host is left.
        InfrastructureError: this machine or its engine is at fault.
    """
    results = refuse_results_elsewhere(results_directory, wanted.files)
    known = load_inventory(wanted.inventory)
    with (
        project_to_ourselves(wanted.files),
        ending_cleanly(),
        Connections(known.hosts) as connections,
    ):
        click.echo(f"looking at {', '.join(wanted.hosts)}")
        seen = look_at_hosts(wanted.hosts, connections, wanted.inventory, wanted.sweep.environments, wanted.files)
        left_out = dict(seen.left_out)
        tell_left_out(left_out)
        with borrowed(wanted.files, click.echo):
            ready = _ready_hosts(wanted, seen.hosts, connections, left_out)
            store = Store.open(results)
            order = make_order(wanted, ready.hosts, store, choose, left_out)
            code = _driven(order, ready, known.hosts, wanted.files, results)
    if code == 0:
        print_results(store, results_directory, order.continuation.campaign_id)
        code = exit_code(store.attempts(order.continuation.campaign_id).values())
    tell_not_measured(left_out)
    return code


@click.command("drive", hidden=True)
@click.argument("order_file", type=click.Path(path_type=Path))
def drive(order_file: Path) -> None:
    """Drives a campaign that `sweep run` has prepared; it is called in the container of the cluster's head."""
    handover = read_handover(order_file)
    cluster = handover.cluster
    scheduler = ray_scheduler(ExistingCluster(cluster.ray_address, cluster.token_path))
    with ending_cleanly(), ProgressLine(wide_console()) as progress:
        run_campaign(
            handover.order,
            scheduler,
            Store.open(handover.results),
            handover.files,
            progress.observe,
            place=cluster.head_container,
        )


def _ready_hosts(
    wanted: Wanted, known: Sequence[PlanningHost], connections: Connections, left_out: dict[str, str]
) -> _Ready:
    """The hosts that take part. `left_out` gets those that turn out to be of no use.

    If a sweep does not want every host, others take their place.
    """
    candidates = {host.name: host for host in known}
    while candidates:
        planned = plan(wanted.sweep, list(candidates.values()), campaign_id="preview")
        refuse_empty(planned)
        needed = needed_environments(planned)
        skipping = [
            ReadyHost(candidates[name], {}, None, work_directory=WORK_DIRECTORY)
            for name in sorted({skip.host for skip in planned.skips} - set(needed))
        ]
        if not needed:
            return _Ready(skipping, None)
        built = build_images(frozenset().union(*needed.values()), wanted.files, click.echo)
        images = {host: {name: built[name] for name in names} for host, names in needed.items()}
        cluster, prepared = _prepared(wanted, [candidates[name] for name in needed], connections, images)
        failed = prepared.left_out
        if not failed:
            others = candidates.keys() - planned.places.keys()
            spares = {name: pinned(host, built) for name, host in candidates.items() if name in others}
            return _Ready([*prepared.hosts, *skipping], cluster, built, spares)
        tell_left_out(failed)
        left_out |= failed
        candidates = {name: host for name, host in candidates.items() if name not in failed}
    raise NoUsableHostError(f"no host can be used: {'; '.join(f'{name}: {why}' for name, why in left_out.items())}")


def _prepared(
    wanted: Wanted,
    chosen: Sequence[PlanningHost],
    connections: Connections,
    images: Mapping[str, Mapping[str, BuiltImage]],
) -> tuple[Cluster | None, Prepared]:
    """The cluster, which is null if no host can be part of it, and the hosts with what their trials need."""
    try:
        hosts = {one.name: wanted.hosts[one.name] for one in chosen}
        cluster = up(hosts, load_inventory(wanted.inventory), wanted.files, click.echo)
    except NoHostJoinedError as error:
        return None, Prepared((), error.reasons)
    failed = {one.name: cluster.unusable[one.name] for one in chosen if one.name not in cluster.agents}
    joined = [one for one in chosen if one.name not in failed]
    prepared = prepare_agents(joined, wanted.hosts, cluster, connections, images, wanted.files, click.echo)
    return cluster, replace(prepared, left_out={**failed, **prepared.left_out})


def _driven(order: CampaignOrder, ready: _Ready, hosts: Mapping[str, Host], files: ProjectFiles, results: Path) -> int:
    """Runs a campaign where its hosts deliver to, and returns its exit code. `hosts` is the whole inventory."""
    cluster = ready.cluster
    if cluster is None:
        with ProgressLine(wide_console()) as progress:
            run_campaign(order, ray_scheduler(), Store.open(results), files, progress.observe)
        return 0
    path = write_handover(Handover(order, cluster, files, results), files.state / "cluster")
    charge = Charge(order, cluster, hosts, ready.spares, ready.images, files)
    try:
        with taking_care(charge, _tell_meanwhile):
            code = execute_in_head(cluster, ["python", "-m", "orchestrator", "sweep", "drive", str(path)])
    except InfrastructureError as error:
        raise InfrastructureError(f"{error}; {_GOES_ON}") from error
    finally:
        path.unlink()
    if code > _SIGNAL and code != ExitCode.INTERRUPTED:
        click.echo(f"the driver of the campaign was ended by signal {code - _SIGNAL}; {_GOES_ON}", err=True)
    return code


def _tell_meanwhile(text: str) -> None:
    """In a line of its own, though the driver draws one on this terminal."""
    click.echo(f"{_CLEAR_LINE if sys.stdout.isatty() else ''}{text}")
