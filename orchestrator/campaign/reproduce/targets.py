"""Where stored trials run again, with which limits, and what may differ there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.campaign.pins import MEMORY_SHARE
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.reproduce.environment import EnvironmentMatch
from orchestrator.campaign.reproduce.stored import Configuration, Limits, Wanted
from orchestrator.config import ExecutorChoice, Host, Inventory
from orchestrator.errors import ConfigurationError, NoUsableHostError
from orchestrator.execution import ExecutionSettings, FakeSettings
from orchestrator.planning import Isolation
from runners.contract import METHOD_VERSION, TrialSpec
from runners.contract.catalogue import BACKENDS, WORKLOADS, refusal
from runners.system import cores_text

AS_THEN = "as in the campaign that is reproduced"
_ALLOW = "--allow-different-image runs it all the same, and each row says so"


@dataclass(frozen=True)
class Target:
    """A host, and what it is to run again."""

    name: str
    host: Host
    configurations: tuple[Configuration, ...]
    is_as_then: bool = False
    """The isolation follows from the stored rows, not from the inventory."""

    @property
    def environments(self) -> list[str]:
        """The names of their environments."""
        return sorted({configuration.pin.name for configuration in self.configurations})


@dataclass(frozen=True)
class Allowed:
    """What may differ."""

    image: bool = False
    """Also another isolation."""
    method: Mapping[str, str] = field(default_factory=dict)
    """By stored key, what does differ in method or specification, of `refuse_another_method`."""


def targets(wanted: Wanted, inventory: Inventory, host: str | None, allowed: Allowed | None = None) -> list[Target]:
    """Where to run: on the hosts of then, or all on one; in the isolation of then where the inventory does not say.

    Raises:
        ConfigurationError: the host that was named is unknown, or would have to treat trials in two ways.
        NoUsableHostError: the host of then is not in the inventory.
    """
    known = inventory.hosts
    if host is not None and host not in known:
        raise inventory.error(f"--host {host}: no host is called so; known: {', '.join(known)}")
    by_host: dict[str, list[Configuration]] = {}
    for configuration in wanted.configurations:
        by_host.setdefault(host or configuration.host, []).append(configuration)
    missing = sorted(set(by_host) - set(known))
    if missing:
        raise NoUsableHostError(
            f"{wanted.campaign_id} ran on {', '.join(name or 'an unknown host' for name in missing)}, which "
            f"{inventory.file.path} does not have; choose another with --host (known: {', '.join(known)})"
        )
    return [_target(name, known[name], group, allowed or Allowed()) for name, group in sorted(by_host.items())]


def _target(name: str, host: Host, group: Sequence[Configuration], allowed: Allowed) -> Target:
    isolations = {configuration.pin.isolation for configuration in group}
    if len(isolations) > 1:
        raise ConfigurationError(
            f"{name} would run some trials in containers and some without; reproduce them one by one, by trial id"
        )
    _refuse_mixed_limits(name, group)
    chosen = tuple(group)
    if host.executor is not ExecutorChoice.AUTO:
        return Target(name, host, chosen)
    if isolations == {Isolation.DOCKER}:
        # Where another isolation is allowed, an engine that is down is no reason to give up.
        return Target(name, host, chosen, is_as_then=not allowed.image)
    if not host.can_do_without_containers:
        # There are containers only, so that the isolation differs.
        return Target(name, host, chosen)
    return Target(name, host.model_copy(update={"executor": ExecutorChoice.PROCESS}), chosen, is_as_then=True)


def _refuse_mixed_limits(name: str, group: Sequence[Configuration]) -> None:
    first: dict[str, Configuration] = {}
    for configuration in group:
        other = first.setdefault(configuration.pin.name, configuration)
        if other.limits != configuration.limits:
            raise ConfigurationError(
                f"{name} would have to run {other.name} with {other.limits}, but {configuration.name} with "
                f"{configuration.limits}; reproduce them one by one, by trial id"
            )


def refuse(configuration: Configuration, host: str, match: EnvironmentMatch, allowed: Allowed) -> None:
    """Refuses an environment that is not the one of then, unless that is allowed.

    Raises:
        ConfigurationError: with every difference.
    """
    if match.differences and not allowed.image:
        raise ConfigurationError(
            f"{configuration.name} cannot be reproduced on {host}: environment {configuration.pin.name} is not the one "
            f"that it ran in: {match.text}; {_ALLOW}"
        )


def refuse_another_method(wanted: Wanted, *, allowed: bool) -> dict[str, str]:
    """Checks that the rebuilt specifications mean what the stored ones meant.

    Returns:
        By stored key, what is said about it in the new rows; nothing of those that are as they were.

    Raises:
        ConfigurationError: this version cannot run a trial at all; or another method, or a specification that cannot
            be rebuilt, and that is not allowed.
    """
    problems: dict[str, str] = {}
    version = f"taxmeter {wanted.campaign.get('taxmeter_version')}, commit {wanted.campaign.get('git_commit')}"
    for configuration in wanted.configurations:
        unknown = _unknown(configuration.spec)
        if unknown is not None:
            raise ConfigurationError(
                f"{configuration.name} cannot be reproduced: {unknown}; use the version that measured it ({version})"
            )
        problem = None
        if configuration.method_version != METHOD_VERSION:
            problem = f"method version {configuration.method_version} then, {METHOD_VERSION} now"
        elif not configuration.is_rebuilt:
            problem = f"specification with key {configuration.trial_key} then, {configuration.rebuilt_key} now"
        if problem is None:
            continue
        if not allowed:
            raise ConfigurationError(
                f"{configuration.name} cannot be reproduced: {problem}, so that the numbers would not mean the same; "
                f"use the version that measured it ({version}), or add --allow-different-method"
            )
        problems[configuration.trial_key] = problem
    return problems


def _unknown(spec: TrialSpec) -> str | None:
    """Why this version cannot run a specification of another one."""
    for kind, name, known in (("workload", spec.workload.name, WORKLOADS), ("backend", spec.backend.name, BACKENDS)):
        if name not in known:
            return f"this version has no {kind} {name}"
    problem = refusal(spec)
    return None if problem is None else f"this version cannot run it: {problem}"


def limited(host: ReadyHost, limits: Mapping[str, Limits], threads: int) -> ReadyHost:
    """The host with the limits of then, where they are known; else with its own.

    Args:
        host: ready to start trials.
        limits: by environment.
        threads: the most that a trial asks for.

    Raises:
        NoUsableHostError: it has too few cores or too little memory.
    """
    executions = {
        environment: _limited(host, execution, limits[environment]) if environment in limits else execution
        for environment, execution in host.executions.items()
    }
    for execution in executions.values():
        count = len(host.planning.cores if isinstance(execution, FakeSettings) else execution.cores)
        if threads > count:
            raise NoUsableHostError(f"the trials need {threads} threads, {host.planning.name} has {count} cores")
    # What had cores of its own is repeated one by one: the slots of now may have others.
    return replace(host, executions=executions, planning=replace(host.planning, slots=host.planning.slots[:1]))


def limit_differences(limits: Limits, execution: ExecutionSettings) -> list[str]:
    """One line for each limit that is not that of then; unknown then is no difference."""
    if isinstance(execution, FakeSettings):
        return []
    lines = []
    if limits.cores is not None and limits.cores != execution.cores:
        lines.append(f"cores: expected {cores_text(limits.cores)}, found {cores_text(execution.cores)}")
    if limits.memory_bytes is not None and limits.memory_bytes != execution.memory_bytes:
        lines.append(f"memory: expected {limits.memory_bytes} bytes, found {execution.memory_bytes}")
    return lines


def _limited(host: ReadyHost, execution: ExecutionSettings, limits: Limits) -> ExecutionSettings:
    if isinstance(execution, FakeSettings):
        return execution
    return replace(
        execution, cores=_cores(host, limits), memory_bytes=_memory_bytes(host, execution.memory_bytes, limits)
    )


def _cores(host: ReadyHost, limits: Limits) -> tuple[int, ...]:
    """Those of then if the host has them, else as many."""
    here = host.planning.cores
    if limits.cores is None:
        return here
    if len(limits.cores) > len(here):
        had = f"{len(limits.cores)} cores ({cores_text(limits.cores)})"
        raise NoUsableHostError(f"the trials had {had}, {host.planning.name} has {len(here)} for trials")
    return limits.cores if set(limits.cores) <= set(here) else here[: len(limits.cores)]


def _memory_bytes(host: ReadyHost, usual_bytes: int, limits: Limits) -> int:
    if limits.memory_bytes is None:
        return usual_bytes
    whole_bytes = int(usual_bytes / MEMORY_SHARE)
    if limits.memory_bytes > whole_bytes:
        raise NoUsableHostError(
            f"the trials could take {limits.memory_bytes} bytes of memory, {host.planning.name} has {whole_bytes}"
        )
    return limits.memory_bytes
