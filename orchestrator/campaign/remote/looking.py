"""Which hosts of a mixed fleet can take part, and what is known of them before anything is started there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.campaign.files import ProjectFiles
from orchestrator.campaign.preparing.environments import expand, known_pins
from orchestrator.campaign.preparing.hosts import CHOSEN, MEMORY_SHARE, free_cores, slots_of, trial_topology
from orchestrator.config import Connection, ExecutorChoice, Host
from orchestrator.config.documents import line_of_key
from orchestrator.environments import BuiltImage, Catalogue, read_built_images
from orchestrator.errors import ConfigurationError, NoUsableHostError
from orchestrator.hosts.check import CHECK_TIMEOUT_S, Check, HostReport, Level, read_requirements
from orchestrator.hosts.check.findings import machine_of
from orchestrator.hosts.connection import Connections, for_each
from orchestrator.hosts.local import LocalHost
from orchestrator.hosts.ssh import SshHost
from orchestrator.planning import Isolation, PlanningHost

ENGINE_ANSWERS = "a Docker engine answers"


@dataclass(frozen=True)
class Seen:
    """What a look at the hosts gave."""

    hosts: tuple[PlanningHost, ...]
    """Those that can be used; their images have no identity before they are built."""
    left_out: Mapping[str, str]
    """The others, and why."""


def is_remote(hosts: Mapping[str, Host]) -> bool:
    """Whether any of the hosts is another machine, so that all of them need agents."""
    return any(host.connection is Connection.SSH for host in hosts.values())


def look_at_hosts(
    hosts: Mapping[str, Host],
    connections: Connections,
    inventory: Path,
    environments: Sequence[str],
    files: ProjectFiles,
) -> Seen:
    """Looks at all hosts at once. Nothing is changed there.

    Args:
        hosts: by name, those that take new trials.
        connections: that know them.
        inventory: where they come from, for errors.
        environments: names from the catalogue, or `any-suitable`.
        files: where the catalogue is.

    Raises:
        ConfigurationError: a host is to do without containers, or keeps all its cores for the agent.
        NoUsableHostError: no host can be used; says why for each.
    """
    _refuse_processes(hosts, inventory)
    catalogue, built = Catalogue.load(files.catalogue), read_built_images(files.catalogue)
    usable: list[PlanningHost] = []
    left_out: dict[str, str] = {}
    wanted = read_requirements(files.catalogue)

    def check(name: str) -> HostReport:
        host = hosts[name]
        if host.connection is Connection.LOCAL:
            return LocalHost(name, host, files.root).check(wanted, CHECK_TIMEOUT_S)
        return SshHost(name, host, connections, lambda: wanted).check(wanted, CHECK_TIMEOUT_S)

    for report in for_each(hosts, check, connections):
        problem = _problem(report)
        if problem is None:
            usable.append(_planning(report, hosts[report.host], inventory, environments, catalogue, built))
        else:
            left_out[report.host] = problem
    if not usable:
        raise NoUsableHostError(f"no host can be used: {listed(left_out)}")
    return Seen(tuple(usable), left_out)


def listed(reasons: Mapping[str, str]) -> str:
    """Hosts with their reasons, in one line."""
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())


def _problem(report: HostReport) -> str | None:
    """The first of what makes a host unusable. Images do not: they are built and sent before the first trial."""
    for check, finding in report.findings.items():
        if finding.level is Level.FAILURE and check is not Check.IMAGES:
            return finding.problem if check is Check.SSH else f"{check.value}: {finding.problem}"
    return None if report.preflight is not None else "it told nothing about itself"


def _planning(
    report: HostReport,
    host: Host,
    inventory: Path,
    environments: Sequence[str],
    catalogue: Catalogue,
    built: Mapping[str, BuiltImage],
) -> PlanningHost:
    seen = report.preflight
    assert seen is not None, report.host
    reason = CHOSEN if host.executor is ExecutorChoice.DOCKER else ENGINE_ANSWERS
    entries = expand(environments, catalogue)
    machine = machine_of(seen, host)
    memory = machine.trial_memory_bytes
    cores = free_cores(report.host, host, range(seen.threads or 1), inventory)
    topology = trial_topology(report.host, host, seen.topology, inventory)
    return PlanningHost(
        report.host,
        host.labels,
        cores,
        known_pins(environments, entries, Isolation.DOCKER, reason, built),
        machine=replace(machine, trial_memory_bytes=None if memory is None else int(memory * MEMORY_SHARE)),
        demands={entry.name: entry.demands for entry in entries},
        topology=topology,
        slots=slots_of(report.host, host, cores, topology, inventory),
        exclusive=host.exclusive,
    )


def _refuse_processes(hosts: Mapping[str, Host], inventory: Path) -> None:
    for name, host in hosts.items():
        if host.executor is ExecutorChoice.PROCESS:
            where = "is reached over SSH" if host.connection is Connection.SSH else "is measured beside others"
            raise ConfigurationError(
                f"executor process does without containers, which a host that {where} cannot: write `executor: "
                f"docker`, or leave it out with --limit '!{name}'",
                file=inventory,
                line=line_of_key(inventory, ("hosts", name, "executor")),
                key=f"hosts.{name}.executor",
            )
