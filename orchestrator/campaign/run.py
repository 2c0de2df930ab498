"""The pipeline of every sweep: facts, plan, provision, plan again with pins, drive. The same for all kinds of hosts."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.campaign.control import undisturbed
from orchestrator.campaign.driver.campaign_run import run_campaign
from orchestrator.campaign.handover import Handover, drive_in_head
from orchestrator.campaign.progress import Observer, StageClock
from orchestrator.campaign.provision import (
    Images,
    ReadyHost,
    images_for,
    provision,
    ready_host,
    remove_leftovers,
    unavailable_on,
)
from orchestrator.campaign.recovery import Spares, recovering
from orchestrator.campaign.resume import CampaignRequest, Choose, write_widened
from orchestrator.config import Host, Inventory, Sweep
from orchestrator.environments import Catalogue, read_built_images
from orchestrator.errors import ConfigurationError, NoUsableHostError, Say
from orchestrator.files import ProjectFiles
from orchestrator.hosts import HostFacts, Hosts
from orchestrator.hosts.cluster import SLOT
from orchestrator.hosts.pins import KnownEnvironments, image_pin, planning_host
from orchestrator.planning import (
    ANY_SUITABLE,
    Isolation,
    Plan,
    PlanningHost,
    environment_problem,
    needed_environments,
    plan,
    slots_at_once,
)
from orchestrator.scheduling import scheduler_at
from orchestrator.store import Stage, Store
from orchestrator.store.storage.layout import store_id

Watch = Callable[[], AbstractContextManager[Observer]]
"""Shows the progress of a campaign while the block lasts."""

PREVIEW: Final = "preview"
"""In place of a campaign's id while it has none."""


@dataclass(frozen=True)
class RunRequest:
    """What a command asks for."""

    sweep: Sweep
    inventory: Inventory
    hosts: Mapping[str, Host]
    """Those of the inventory that take new trials and are meant, by name."""
    files: ProjectFiles
    results: Path
    """The directory of the store."""
    commit: str | None = None
    """Of the project, for the row of the campaign."""
    is_cold: bool = False
    """What other campaigns left in the caches of hosts is made anew."""


@dataclass(frozen=True)
class RunOutcome:
    """What became of it."""

    campaign_id: str
    left_out: Mapping[str, str]
    """Hosts that took no part, and why."""
    exit_code: int
    """Of a driver in another process; 0 if it did its work, whatever the trials came to."""


@dataclass(frozen=True)
class Preview:
    """What is known before anything is changed anywhere."""

    hosts: Mapping[str, PlanningHost]
    """Those that can be used, by name."""
    facts: Mapping[str, HostFacts]
    left_out: Mapping[str, str]
    """The others, and why."""
    known: KnownEnvironments

    def plan(self, sweep: Sweep) -> Plan:
        """What the sweep would do.

        Raises:
            NoUsableHostError: no host is what its targets ask for.
        """
        planned = plan(sweep, list(self.hosts.values()), PREVIEW)
        refuse_empty(planned)
        return with_left_out(planned, self.left_out)

    def without(self, problems: Mapping[str, str]) -> "Preview":
        """The same without some hosts.

        Raises:
            NoUsableHostError: none is left; says why for each.
        """
        left = {name: host for name, host in self.hosts.items() if name not in problems}
        left_out = {**self.left_out, **problems}
        if not left:
            raise NoUsableHostError(f"no host can be used: {listed(left_out)}")
        return replace(self, hosts=left, left_out=left_out)


def look(request: RunRequest, hosts: Hosts) -> Preview:
    """Looks at all hosts at once. Nothing is changed there.

    Raises:
        ConfigurationError: the inventory asks of a host what it does not have, or an environment is unknown.
        NoUsableHostError: no host can be used; says why for each.
    """
    catalogue = Catalogue.load(request.files.catalogue)
    known = KnownEnvironments(request.sweep.environments, catalogue, read_built_images(request.files.catalogue))
    facts, left_out = hosts.look()
    answers, problems = hosts.each(facts, lambda access: unavailable_on(access, facts[access.name], known))
    left_out |= problems
    found = {
        name: planning_host(facts[name], request.hosts[name], request.inventory, known, unavailable)
        for name, unavailable in answers.items()
    }
    if not found:
        raise NoUsableHostError(f"no host can be used: {listed(left_out)}")
    _refuse_without_environment(found)
    return Preview(found, facts, left_out, known)


def run_sweep(request: RunRequest, hosts: Hosts, choose: Choose, say: Say, watch: Watch) -> RunOutcome:
    """Runs a sweep. Hosts that cannot be used are left out and named.

    Args:
        request: what to run, and where.
        hosts: how the hosts are reached.
        choose: says which campaign runs.
        say: told about choices and long steps, a line each, by any thread.
        watch: shows the progress.

    Raises:
        ConfigurationError: something in a file is wrong.
        NoUsableHostError: no host is left, or another sweep runs.
        InfrastructureError: this machine, an engine or a cluster is at fault.
    """
    refuse_results_elsewhere(request.results, hosts)
    with undisturbed(hosts):
        clock = StageClock()
        say(f"looking at {', '.join(request.hosts)}")
        preview = look(request, hosts)
        _tell_left_out(preview.left_out, say)
        for name, host in preview.hosts.items():
            for environment in request.sweep.environments:
                if environment in host.unavailable:
                    say(f"{name}: {host.unavailable[environment]}; its trials are skipped")
        with hosts.gathered(say):
            ready, left_out, spares = _ready(request, hosts, preview, say, clock)
            clock.enter(Stage.PLANNING)
            store = Store.open(request.results)
            order = _order(request, ready, left_out, store, choose, say)
            order = replace(order, spent=clock.seconds())
            code = drive_order(order, hosts, request.files, store, say, watch, spares)
    return RunOutcome(order.continuation.campaign_id, left_out, code)


def _ready(
    request: RunRequest, hosts: Hosts, preview: Preview, say: Say, clock: StageClock
) -> tuple[list[ReadyHost], Mapping[str, str], Spares]:
    """The hosts that take part, why the others do not, and what stands by.

    If a sweep does not want every host, others take the place of those that fail.
    """
    nothing = Spares({}, request.hosts, request.inventory, Images({}, None), preview.known)
    while True:
        clock.enter(Stage.PLANNING)
        planned = preview.plan(request.sweep)
        needed = needed_environments(planned)
        skipping = [
            ready_host(preview.hosts[name], preview.facts[name], {})
            for name in sorted({skip.host for skip in planned.skips} - set(needed))
        ]
        if not needed:
            return skipping, preview.left_out, nothing
        in_containers = {name for name in needed if preview.facts[name].isolation is Isolation.DOCKER}
        environments = {environment for name in in_containers for environment in needed[name]}
        clock.enter(Stage.IMAGES)
        images = images_for(environments, preview.known, hosts.builder, say)
        clock.enter(Stage.SETUP)
        facts, failed = hosts.join(needed, say)
        joined = {
            name: planning_host(
                facts[name], request.hosts[name], request.inventory, preview.known, preview.hosts[name].unavailable
            )
            for name in facts
        }
        failed |= _with_too_few_slots(hosts, joined, planned)
        failed |= remove_leftovers(hosts, facts, request.files, say)
        wanted = {name: needed[name] for name in joined if name not in failed}
        ready, problems = provision(hosts, joined, facts, wanted, images, preview.known.catalogue, say)
        failed |= problems
        if not failed:
            others = preview.hosts.keys() - planned.places.keys()
            spares = {name: _with_images(preview.hosts[name], images) for name in sorted(others)}
            return [*ready, *skipping], preview.left_out, replace(nothing, hosts=spares, images=images)
        _tell_left_out(failed, say)
        preview = preview.without(failed)


def _with_too_few_slots(hosts: Hosts, joined: Mapping[str, PlanningHost], planned: Plan) -> dict[str, str]:
    """The hosts whose node of somebody else's cluster takes fewer tasks at once than are planned, and what to do."""
    problems = {}
    for name, host in joined.items():
        tasks = [task.task for task in planned.tasks if task.host == name]
        at_once, offered = slots_at_once(host.slots, tasks) if host.slots else 1, hosts[name].slots()
        if offered is not None and offered < at_once:
            problems[name] = (
                f"with `exclusive: gpu` {at_once} trials run at once, and its node has {SLOT} {offered}; start Ray "
                f"there with --resources='{{\"{SLOT}\": {at_once}}}'"
            )
    return problems


def _with_images(host: PlanningHost, images: Images) -> PlanningHost:
    pins = {name: image_pin(host.environments[name], image) for name, image in images.built.items()}
    return replace(host, environments={**host.environments, **pins})


def _order(
    request: RunRequest, ready: Sequence[ReadyHost], left_out: Mapping[str, str], store: Store, choose: Choose, say: Say
) -> CampaignRequest:
    """Chooses the campaign that runs, and makes room for it."""
    continuation = choose([host.planning for host in ready], store, left_out)
    if continuation.joined:
        say(f"new to campaign {continuation.campaign_id}: {', '.join(continuation.joined)}")
    continuation = replace(
        continuation,
        plan=with_left_out(continuation.plan, left_out),
        left=with_left_out(continuation.left, left_out),
    )
    order = CampaignRequest(
        continuation,
        ready,
        request.sweep.name,
        request.sweep.file.text,
        request.inventory.file.text,
        request.commit,
        is_cold=request.is_cold,
        faults=request.inventory.faults,
        sweep=request.sweep,
    )
    write_widened(continuation, order.inventory_document, store)
    return order


def drive_order(
    order: CampaignRequest,
    hosts: Hosts,
    files: ProjectFiles,
    store: Store,
    say: Say,
    watch: Watch,
    spares: Spares,
) -> int:
    """Drives a campaign where its hosts can be driven from.

    Args:
        order: what to run.
        hosts: that are ready for it.
        files: of the project.
        store: where the rows go.
        say: told what is done for hosts that are lost.
        watch: shows the progress.
        spares: hosts that can take the place of lost ones.

    Returns:
        The exit code of a driver in another process; 0 of one in this.
    """
    place = hosts.driver()
    if hosts.are_locked:
        order = replace(order, hosts=[replace(host, work_directory=None) for host in order.hosts])
    with hosts.relayed(store_id(store.layout) or "", say):
        if place.head is None:
            with watch() as observe:
                run_campaign(order, scheduler_at(place), store, files, observe)
            return 0
        handover = Handover(order, place.head, files, store.layout.root.resolve())
        with recovering(order, hosts, spares, files, say):
            return drive_in_head(handover, say)


def refuse_results_elsewhere(results: Path, hosts: Hosts) -> None:
    """Refuses a store that the driver would not see.

    Raises:
        ConfigurationError: it is outside of the project.
    """
    root = hosts.driver_root
    if root is not None and not results.resolve().is_relative_to(root):
        raise ConfigurationError(
            f"a sweep on hosts that are reached over SSH writes its store inside the project, {root}; name a directory "
            "there with --results",
            file=results,
        )


def refuse_empty(planned: Plan) -> None:
    """Refuses a plan without work, before anything is built for it.

    Raises:
        NoUsableHostError: no host is what the sweep's targets ask for.
    """
    if not planned.tasks and not planned.skips:
        raise NoUsableHostError(f"no host is what the sweep's targets ask for: {'; '.join(planned.unmatched)}")


def with_left_out(planned: Plan, left_out: Mapping[str, str]) -> Plan:
    """The plan, which names the hosts that take no part."""
    return replace(planned, unmatched=(*planned.unmatched, *(f"{name}: {why}" for name, why in left_out.items())))


def listed(reasons: Mapping[str, str]) -> str:
    """Hosts with their reasons, in one line."""
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())


def _tell_left_out(left_out: Mapping[str, str], say: Say) -> None:
    for name, reason in left_out.items():
        say(f"{name} is left out: {reason}")


def _refuse_without_environment(hosts: Mapping[str, PlanningHost]) -> None:
    """Refuses hosts none of which can have any environment, whatever the device: no interpreter, or no lock.

    Raises:
        NoUsableHostError: says why.
    """
    problems = {name: _environment_problems(host) for name, host in hosts.items()}
    usable = [set(host.environments) - set(problems[name]) - {ANY_SUITABLE} for name, host in hosts.items()]
    if any(problems.values()) and not any(usable):
        reasons = [reason for known in problems.values() for reason in known.values()]
        raise NoUsableHostError("; ".join(dict.fromkeys(reasons)))


def _environment_problems(host: PlanningHost) -> dict[str, str]:
    unresolved = {name: environment_problem(demands, None, "cpu") for name, demands in host.demands.items()}
    without_lock = {name: f"{name}: {problem}" for name, problem in unresolved.items() if problem is not None}
    return without_lock | dict(host.unavailable)
