"""`taxmeter sweep` on hosts that are reached over SSH: prepared here, then driven in the head's container."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import click

from orchestrator.campaign import (
    CampaignOrder,
    Handover,
    ProjectFiles,
    ReadyHost,
    ResumePolicy,
    choose_campaign,
    drop_caches,
    look_at_hosts,
    prepare_agents,
    ray_scheduler,
    read_handover,
    refuse_results_elsewhere,
    run_campaign,
    write_handover,
)
from orchestrator.campaign.remote import build_images
from orchestrator.cli.campaigns import (
    ending_cleanly,
    exit_code,
    git_commit,
    host_to_ourselves,
    print_pins,
    print_plan,
    print_results,
    project_to_ourselves,
    refuse_empty,
)
from orchestrator.cli.progress import ProgressLine
from orchestrator.cli.results import wide_console
from orchestrator.cluster import Cluster, down, execute_in_head, load, up
from orchestrator.connection import Connections
from orchestrator.errors import ExitCode, NoUsableHostError
from orchestrator.inventory import WORK_DIRECTORY, Connection, Host, load_inventory
from orchestrator.planning import Plan, PlanningHost, needed_environments, plan
from orchestrator.scheduling import ExistingCluster
from orchestrator.store import Store
from orchestrator.sweep import Sweep

_SIGNAL = 128
"""An exit code above it tells of a signal."""

_OF_A_SWEEP = "of-a-sweep"
"""Beside the cluster's state: whose sweep brought it up takes it down, also after one that was killed."""


@dataclass(frozen=True)
class Wanted:
    """What a command is about."""

    sweep: Sweep
    sweep_file: Path
    hosts: Mapping[str, Host]
    inventory: Path
    files: ProjectFiles


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
    print_plan(_with_left_out(planned, seen.left_out))


def run_remotely(wanted: Wanted, results_directory: Path, policy: ResumePolicy) -> int:
    """Runs a sweep and shows its table. Hosts that cannot be used are left out, and named at the end.

    Raises:
        ConfigurationError: something in a file is wrong.
        NoUsableHostError: no host is left.
        InfrastructureError: this machine or its engine is at fault.
    """
    results = refuse_results_elsewhere(results_directory, wanted.files)
    with (
        _undisturbed(wanted),
        ending_cleanly(),
        Connections(load_inventory(wanted.inventory).hosts) as connections,
    ):
        click.echo(f"looking at {', '.join(wanted.hosts)}")
        seen = look_at_hosts(wanted.hosts, connections, wanted.inventory, wanted.sweep.environments, wanted.files)
        left_out = dict(seen.left_out)
        _tell_left_out(left_out)
        with _cluster_of_this_sweep(wanted.files):
            ready, cluster = _ready_hosts(wanted, seen.hosts, connections, left_out)
            store = Store.open(results)
            continuation = choose_campaign(wanted.sweep, [host.planning for host in ready], store, policy)
            continuation = replace(
                continuation,
                plan=_with_left_out(continuation.plan, left_out),
                left=_with_left_out(continuation.left, left_out),
            )
            order = CampaignOrder(
                continuation,
                ready,
                wanted.sweep.name,
                wanted.sweep_file.read_text(encoding="utf-8"),
                wanted.inventory.read_text(encoding="utf-8"),
                version("taxmeter"),
                git_commit(),
            )
            drop_caches(wanted.files, keep=continuation.campaign_id)
            code = _driven(order, cluster, wanted.files, results)
    if code == 0:
        print_results(store, results_directory, continuation.campaign_id)
        code = exit_code(store.attempts(continuation.campaign_id).values())
    for name, reason in left_out.items():
        click.echo(f"not measured: {name}: {reason}")
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
            address=cluster.head_address,
            port=cluster.delivery_port,
        )


def _ready_hosts(
    wanted: Wanted, known: Sequence[PlanningHost], connections: Connections, left_out: dict[str, str]
) -> tuple[list[ReadyHost], Cluster | None]:
    """The hosts that take part, and the cluster that they are in; it is null if there is nothing to run on any.

    `left_out` gets those that turn out to be of no use. If a sweep does not want every host, others take their place.
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
            return skipping, None
        built = build_images(frozenset().union(*needed.values()), wanted.files, click.echo)
        cluster = up({name: wanted.hosts[name] for name in needed}, wanted.inventory, wanted.files, click.echo)
        failed = {name: cluster.unusable[name] for name in needed if name not in cluster.agents}
        images = {host: {name: built[name] for name in names} for host, names in needed.items()}
        chosen = [candidates[name] for name in needed if name not in failed]
        prepared = prepare_agents(chosen, wanted.hosts, cluster, connections, images, wanted.files, click.echo)
        failed |= prepared.left_out
        if not failed:
            return [*prepared.hosts, *skipping], cluster
        _tell_left_out(failed)
        left_out |= failed
        candidates = {name: host for name, host in candidates.items() if name not in failed}
    raise NoUsableHostError(f"no host can be used: {'; '.join(f'{name}: {why}' for name, why in left_out.items())}")


def _driven(order: CampaignOrder, cluster: Cluster | None, files: ProjectFiles, results: Path) -> int:
    """Runs a campaign where its hosts deliver to, and returns its exit code."""
    if cluster is None:
        with ProgressLine(wide_console()) as progress:
            run_campaign(order, ray_scheduler(), Store.open(results), files, progress.observe)
        return 0
    path = write_handover(Handover(order, cluster, files, results), files.state / "cluster")
    try:
        code = execute_in_head(cluster, ["python", "-m", "orchestrator", "sweep", "drive", str(path)])
    finally:
        path.unlink()
    if code > _SIGNAL and code != ExitCode.INTERRUPTED:
        said = f"the driver of the campaign was ended by signal {code - _SIGNAL}"
        click.echo(f"{said}; what was measured is in the store. Run the same command again to go on.", err=True)
    return code


@contextmanager
def _undisturbed(wanted: Wanted) -> Iterator[None]:
    is_here = any(host.connection is Connection.LOCAL for host in wanted.hosts.values())
    with project_to_ourselves(wanted.files), host_to_ourselves() if is_here else nullcontext():
        yield


@contextmanager
def _cluster_of_this_sweep(files: ProjectFiles) -> Iterator[None]:
    """Takes the cluster down at the end, unless it was up before for its own sake."""
    mark = files.state / "cluster" / _OF_A_SWEEP
    if load(files) is None:
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()
    try:
        yield
    finally:
        if mark.exists():
            for name, problem in down(files, click.echo).items():
                click.echo(f"{name}: something of the cluster may be left there: {problem}")
            mark.unlink()


def _with_left_out(planned: Plan, left_out: Mapping[str, str]) -> Plan:
    return replace(planned, unmatched=(*planned.unmatched, *(f"{name}: {why}" for name, why in left_out.items())))


def _tell_left_out(left_out: Mapping[str, str]) -> None:
    for name, reason in left_out.items():
        click.echo(f"{name} is left out: {reason}")
