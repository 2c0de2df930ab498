"""Decides where and how stored trials run again, with which limits, and plans the campaign that does so."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.reproduce.environment import EnvironmentMatch, compare
from orchestrator.campaign.reproduce.stored import Configuration, Limits, StoredTrials
from orchestrator.campaign.resume import CampaignRequest, ResumeDecision, new_campaign_id, unfinished
from orchestrator.config import ExecutorChoice, Host, Inventory
from orchestrator.errors import ConfigurationError, NoUsableHostError, did_you_mean, some_names
from orchestrator.execution import ExecutionSettings, FakeSettings
from orchestrator.hosts.access import MEMORY_SHARE
from orchestrator.planning import EnvironmentPin, Isolation, Plan, PlannedTask, estimate_s, trial_key, visit
from orchestrator.store import Store
from orchestrator.store.origin import ReproducedTrial, Reproduces
from runners.contract import CONTRACT_VERSION, METHOD_VERSION, Guards, Task, TrialSpec, digest
from runners.contract.catalogue import BACKENDS, WORKLOADS, refusal
from runners.system import cores_text

LEAST_ROUNDS: Final = 3
"""Fewer processes than that give no interval that is worth anything."""

AS_THEN: Final = "as in the campaign that is reproduced"

_PREFIX: Final = "reproduce-"
_MADE_BY: Final = "# made by `taxmeter reproduce"


@dataclass(frozen=True)
class Allowed:
    """What may differ."""

    image: bool = False
    """Also another isolation."""
    method: Mapping[str, str] = field(default_factory=dict)
    """By stored key, what does differ in method or specification, of `refuse_another_method`."""


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
class ReadyTarget:
    """A host that can run stored trials again."""

    target: Target
    host: ReadyHost
    installed: Mapping[str, Mapping[str, str]]
    """Versions that were seen in its virtual environments, by environment; of images they are known otherwise."""


@dataclass(frozen=True)
class Again:
    """A configuration, and where it runs now."""

    then: Configuration
    host: str
    pin: EnvironmentPin
    differs: tuple[str, ...] = ()
    """In what it differs from then, a line each."""

    @property
    def trial_key(self) -> str:
        """The key of the trials that run now."""
        return trial_key(self.then.spec, self.pin)


@dataclass(frozen=True)
class Reproduction:
    """All that is decided before anything runs."""

    wanted: StoredTrials
    hosts: tuple[ReadyHost, ...]
    again: tuple[Again, ...]
    rounds: int
    reproduces: Reproduces
    notes: tuple[str, ...]
    """What was found, for a person."""


def targets(
    wanted: StoredTrials, inventory: Inventory, host: str | None, allowed: Allowed | None = None
) -> list[Target]:
    """Where to run: on the hosts of then, or all on one; in the isolation of then where the inventory does not say.

    Raises:
        ConfigurationError: the host that was named is unknown, or would have to treat trials in two ways.
        NoUsableHostError: the host of then is not in the inventory.
    """
    known = inventory.hosts
    if host is not None and host not in known:
        raise inventory.error(f"--host {host}: no host is called so; {did_you_mean(host, known)}")
    by_host: dict[str, list[Configuration]] = {}
    for configuration in wanted.configurations:
        by_host.setdefault(host or configuration.host, []).append(configuration)
    missing = sorted(set(by_host) - set(known))
    if missing:
        raise NoUsableHostError(
            f"{wanted.campaign_id} ran on {some_names(name or 'an unknown host' for name in missing)}, which "
            f"{inventory.file.path} does not have; choose another with --host (known: {some_names(known)})"
        )
    return [_target(name, known[name], tuple(group), allowed or Allowed()) for name, group in sorted(by_host.items())]


def _target(name: str, host: Host, group: tuple[Configuration, ...], allowed: Allowed) -> Target:
    isolations = {configuration.pin.isolation for configuration in group}
    if len(isolations) > 1:
        raise ConfigurationError(
            f"{name} would run some trials in containers and some without; reproduce them one by one, by trial id"
        )
    first: dict[str, Configuration] = {}
    for configuration in group:
        other = first.setdefault(configuration.pin.name, configuration)
        if other.limits != configuration.limits:
            raise ConfigurationError(
                f"{name} would have to run {other.name} with {other.limits}, but {configuration.name} with "
                f"{configuration.limits}; reproduce them one by one, by trial id"
            )
    if host.executor is not ExecutorChoice.AUTO:
        return Target(name, host, group)
    if isolations == {Isolation.DOCKER}:
        # Where another isolation is allowed, an engine that is down is no reason to give up.
        return Target(name, host, group, is_as_then=not allowed.image)
    if not host.can_do_without_containers:
        # There are containers only, so that the isolation differs.
        return Target(name, host, group)
    return Target(name, host.model_copy(update={"executor": ExecutorChoice.PROCESS}), group, is_as_then=True)


def refuse(configuration: Configuration, host: str, match: EnvironmentMatch, allowed: Allowed) -> None:
    """Refuses an environment that is not the one of then, unless that is allowed.

    Raises:
        ConfigurationError: with every difference.
    """
    if match.differences and not allowed.image:
        raise ConfigurationError(
            f"{configuration.name} cannot be reproduced on {host}: environment {configuration.pin.name} is not the one "
            f"that it ran in: {match.text}; --allow-different-image runs it all the same, and each row says so"
        )


def refuse_another_method(wanted: StoredTrials, *, allowed: bool) -> dict[str, str]:
    """Checks that the rebuilt specifications mean what the stored ones meant.

    Returns:
        By stored key, what is said about it in the new rows; nothing of those that are as they were.

    Raises:
        ConfigurationError: this version cannot run a trial at all; or another method, or a specification that cannot
            be rebuilt, and that is not allowed.
    """
    problems: dict[str, str] = {}
    version = f"taxmeter {wanted.campaign.get('taxmeter_version')}, commit {wanted.campaign.get('git_commit')}"
    for trial in wanted.configurations:
        unknown = _unknown(trial.spec)
        if unknown is not None:
            raise ConfigurationError(
                f"{trial.name} cannot be reproduced: {unknown}; use the version that measured it ({version})"
            )
        if trial.method_version != METHOD_VERSION:
            problem = f"method version {trial.method_version} then, {METHOD_VERSION} now"
        elif trial.rebuilt_key != trial.trial_key:
            problem = f"specification with key {trial.trial_key} then, {trial.rebuilt_key} now"
        else:
            continue
        if not allowed:
            raise ConfigurationError(
                f"{trial.name} cannot be reproduced: {problem}, so that the numbers would not mean the same; "
                f"use the version that measured it ({version}), or add --allow-different-method"
            )
        problems[trial.trial_key] = problem
    return problems


def _unknown(spec: TrialSpec) -> str | None:
    """Why this version cannot run a specification of another one."""
    if spec.workload.source is None and spec.workload.name not in WORKLOADS:
        return f"this version has no workload {spec.workload.name}"
    if spec.backend.name not in BACKENDS:
        return f"this version has no backend {spec.backend.name}"
    problem = refusal(spec)
    return None if problem is None else f"this version cannot run it: {problem}"


def decide(
    wanted: StoredTrials, ready: Sequence[ReadyTarget], allowed: Allowed, rounds: int | None = None
) -> Reproduction:
    """Proves that the hosts provide what the trials ran in, and gives them the limits of then.

    Args:
        wanted: what to run again.
        ready: where.
        allowed: what may differ.
        rounds: how many; null for as many as then, three at least.

    Raises:
        ConfigurationError: an environment differs and that is not allowed.
        NoUsableHostError: a host has too few cores or too little memory.
    """
    hosts, again, notes = [], list[Again](), list[str]()
    for place in ready:
        host, here, noted = _decide_on(place, allowed)
        hosts.append(host)
        again += here
        notes += noted
    same = sum(trial.trial_key == trial.then.trial_key for trial in again)
    note = f"trial keys: {same} of {len(again)} are those of the stored trials"
    notes.append(note if same == len(again) else f"{note}; reproduces_trial_key pairs the others")
    return Reproduction(
        wanted=wanted,
        hosts=tuple(hosts),
        again=tuple(again),
        rounds=rounds or max(LEAST_ROUNDS, *(configuration.rounds for configuration in wanted.configurations)),
        reproduces=Reproduces(wanted.campaign_id, _counterparts(again)),
        notes=tuple(notes),
    )


def _decide_on(place: ReadyTarget, allowed: Allowed) -> tuple[ReadyHost, list[Again], list[str]]:
    target, name, pins = place.target, place.target.name, dict(place.host.planning.environments)
    notes: dict[str, None] = {}
    # those of two hosts of then may have differed
    matches: dict[EnvironmentPin, EnvironmentMatch] = {}
    for trial in {trial.pin: trial for trial in target.configurations}.values():
        then, here = trial.pin, place.host.planning.environments[trial.pin.name]
        match = matches[then] = compare(then, here, trial.versions, place.installed.get(then.name))
        refuse(trial, name, match, allowed)
        if match.differences:
            notes[f"{name}: environment {then.name} DIFFERS, which was allowed: {match.text}"] = None
        else:
            notes[f"{name}: environment {then.name} is identical to the stored one ({match.compared})"] = None
            if pins[then.name] is here:  # an identical image keeps the names of then
                pins[then.name] = replace(here, image_id=then.image_id, image_digest=then.image_digest)
    if target.is_as_then:
        pins |= {environment: replace(pins[environment], reason=AS_THEN) for environment in target.environments}
    limits = {trial.pin.name: trial.limits for trial in target.configurations}
    threads = max(trial.spec.threads for trial in target.configurations)
    planning = replace(place.host.planning, environments=pins)
    host = limited(replace(place.host, planning=planning), limits, threads)
    again = []
    for trial in target.configurations:
        method = [allowed.method[trial.trial_key]] if trial.trial_key in allowed.method else []
        elsewhere = [] if trial.host == name else [f"host: expected {trial.host or 'unknown'}, found {name}"]
        elsewhere += _limit_differences(trial.limits, host.executions[trial.pin.name])
        notes |= dict.fromkeys(f"{name}: {line}" for line in elsewhere)
        again.append(Again(trial, name, pins[trial.pin.name], (*method, *matches[trial.pin].lines, *elsewhere)))
    return host, again, list(notes)


def _counterparts(again: Sequence[Again]) -> dict[str, dict[str, ReproducedTrial]]:
    """By host and key of now. Two of then may have become one: it then says what differs from either."""
    groups: dict[str, dict[str, list[Again]]] = {}
    for trial in again:
        groups.setdefault(trial.host, {}).setdefault(trial.trial_key, []).append(trial)
    return {
        host: {
            key: ReproducedTrial(
                trials[0].then.trial_key,
                "; ".join(dict.fromkeys(line for trial in trials for line in trial.differs)) or None,
            )
            for key, trials in by_key.items()
        }
        for host, by_key in groups.items()
    }


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


def _limited(host: ReadyHost, execution: ExecutionSettings, limits: Limits) -> ExecutionSettings:
    if isinstance(execution, FakeSettings):
        return execution
    cores, memory_bytes = host.planning.cores, execution.memory_bytes
    if limits.cores is not None:
        if len(limits.cores) > len(cores):
            had = f"{len(limits.cores)} cores ({cores_text(limits.cores)})"
            raise NoUsableHostError(f"the trials had {had}, {host.planning.name} has {len(cores)} for trials")
        cores = limits.cores if set(limits.cores) <= set(cores) else cores[: len(limits.cores)]
    if limits.memory_bytes is not None:
        whole_bytes = int(memory_bytes / MEMORY_SHARE)
        if limits.memory_bytes > whole_bytes:
            raise NoUsableHostError(
                f"the trials could take {limits.memory_bytes} bytes of memory, {host.planning.name} has {whole_bytes}"
            )
        memory_bytes = limits.memory_bytes
    return replace(execution, cores=cores, memory_bytes=memory_bytes)


def _limit_differences(limits: Limits, execution: ExecutionSettings) -> list[str]:
    """One line for each limit that is not that of then; unknown then is no difference."""
    if isinstance(execution, FakeSettings):
        return []
    lines = []
    if limits.cores is not None and limits.cores != execution.cores:
        lines.append(f"cores: expected {cores_text(limits.cores)}, found {cores_text(execution.cores)}")
    if limits.memory_bytes is not None and limits.memory_bytes != execution.memory_bytes:
        lines.append(f"memory: expected {limits.memory_bytes} bytes, found {execution.memory_bytes}")
    return lines


def continuation_of(reproduction: Reproduction, store: Store) -> ResumeDecision:
    """A new campaign, or the one that an interrupted command left."""
    fresh_id = new_campaign_id(_sweep_name(reproduction.wanted))
    fresh = plan_again(reproduction, fresh_id)
    earlier = store.newest_campaign(fresh.digest)
    if earlier is not None:
        full = plan_again(reproduction, earlier)
        left = unfinished(full, store.attempts(earlier))
        if left.tasks:
            return ResumeDecision(earlier, False, full, left)
    return ResumeDecision(fresh_id, True, fresh, fresh)


def plan_again(reproduction: Reproduction, campaign_id: str) -> Plan:
    """One task per host, environment and round, each in an order of its own."""
    places: dict[tuple[str, str], dict[str, Again]] = {}
    for again in reproduction.again:
        # each key once: two hosts of then may ask one host of now for the same
        places.setdefault((again.host, again.pin.name), {}).setdefault(again.trial_key, again)
    tasks = []
    for (host, environment), group in sorted(places.items()):
        for number in range(1, reproduction.rounds + 1):
            order = [group[key] for key in sorted(group)]
            random.Random(f"{campaign_id}/{host}/{environment}/{number}").shuffle(order)  # noqa: S311 - an order, no secret
            trials = tuple(
                visit(campaign_id, host, again.trial_key, again.then.spec, number, position, 0, again.then.timeout_s)
                for position, again in enumerate(order)
            )
            task_id = f"{campaign_id}-{host}-{environment}-r{number}"
            # Those that a sweep has which says nothing: the store does not tell which ones were chosen then
            tasks.append(PlannedTask(host, Task(CONTRACT_VERSION, campaign_id, task_id, environment, trials, Guards())))
    tasks.sort(key=lambda planned: planned.task.trials[0].round)
    visits = sorted([task.host, trial.trial_key, trial.round] for task in tasks for trial in task.task.trials)
    # One key may have been measured with several limits: those are reproduced one by one.
    limits = sorted([a.host, a.trial_key, str(a.then.limits)] for group in places.values() for a in group.values())
    work = digest({"reproduces": reproduction.wanted.campaign_id, "visits": visits, "limits": limits})
    return Plan(tuple(tasks), (), (), work, estimate_s(tasks))


def order_again(
    reproduction: Reproduction, chosen: ResumeDecision, inventory: Inventory, commit: str | None
) -> CampaignRequest:
    """All that the campaign needs. In place of a sweep's text it keeps what was reproduced."""
    wanted = reproduction.wanted
    lines = [f"{_MADE_BY} {wanted.trial_id or wanted.campaign_id}`"]
    lines += [f"reproduces: {wanted.campaign_id}", f"rounds: {reproduction.rounds}", "trial_keys:"]
    lines += [f"  - {trial.trial_key}  # {trial.name} on {trial.host}" for trial in wanted.configurations]
    return CampaignRequest(
        chosen,
        reproduction.hosts,
        _sweep_name(wanted),
        "\n".join(lines) + "\n",
        inventory.file.text,
        commit,
        reproduction.reproduces,
        inventory.faults,
    )


def is_reproduction(row: Mapping[str, Any]) -> bool:
    """Whether a row of `campaigns` is of one that ran stored trials again."""
    return str(row["sweep_document"]).startswith(_MADE_BY)


def _sweep_name(wanted: StoredTrials) -> str:
    """The name under which the new campaign goes."""
    return _PREFIX + str(wanted.campaign["sweep"]).removeprefix(_PREFIX)
