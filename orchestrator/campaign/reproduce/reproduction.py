"""Decides how stored trials run again, and plans the campaign that does so."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.reproduce.environment import EnvironmentMatch, compare
from orchestrator.campaign.reproduce.stored import Configuration, Wanted
from orchestrator.campaign.reproduce.targets import AS_THEN, Allowed, Target, limit_differences, limited, refuse
from orchestrator.campaign.resuming.resume import Continuation, new_campaign_id, unfinished
from orchestrator.config import Inventory
from orchestrator.planning import EnvironmentPin, Plan, PlannedTask, estimate_s, trial_key, visit
from orchestrator.store import Counterpart, Reproduces, Store
from runners.contract import CONTRACT_VERSION, Guards, Task, digest

LEAST_ROUNDS = 3
"""Fewer processes than that give no interval that is worth anything."""


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

    wanted: Wanted
    hosts: tuple[ReadyHost, ...]
    again: tuple[Again, ...]
    rounds: int
    reproduces: Reproduces
    notes: tuple[str, ...]
    """What was found, for a person."""


@dataclass(frozen=True)
class ReadyTarget:
    """A host that can run stored trials again."""

    target: Target
    host: ReadyHost
    installed: Mapping[str, Mapping[str, str]]
    """Versions that were seen in its virtual environments, by environment; of images they are known otherwise."""


def decide(wanted: Wanted, ready: Sequence[ReadyTarget], allowed: Allowed, rounds: int | None = None) -> Reproduction:
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
    again: list[Again] = []
    notes: list[str] = []
    hosts = []
    for place in ready:
        target, pins = place.target, dict(place.host.planning.environments)
        matches: dict[EnvironmentPin, EnvironmentMatch] = {}
        for name in target.environments:
            found = _matches(place, name, allowed)
            matches |= found
            pins[name] = _pin_of_now(found, pins[name], as_then=target.is_as_then)
            notes += dict.fromkeys(_note(target.name, name, match) for match in found.values())
        limits = {configuration.pin.name: configuration.limits for configuration in target.configurations}
        threads = max(configuration.spec.threads for configuration in target.configurations)
        planning = replace(place.host.planning, environments=pins)
        hosts.append(limited(replace(place.host, planning=planning), limits, threads))
        elsewhere: dict[str, None] = {}
        for configuration in target.configurations:
            method = allowed.method.get(configuration.trial_key)
            placement = _elsewhere(configuration, hosts[-1])
            elsewhere |= dict.fromkeys(placement)
            lines = (*([method] if method else []), *matches[configuration.pin].lines, *placement)
            again.append(Again(configuration, target.name, pins[configuration.pin.name], lines))
        notes += [f"{target.name}: {line}" for line in elsewhere]
    notes.append(_keys_note(again))
    return Reproduction(
        wanted=wanted,
        hosts=tuple(hosts),
        again=tuple(again),
        rounds=rounds or max(LEAST_ROUNDS, *(configuration.rounds for configuration in wanted.configurations)),
        reproduces=Reproduces(wanted.campaign_id, _counterparts(again)),
        notes=tuple(notes),
    )


def _counterparts(again: Sequence[Again]) -> dict[str, dict[str, Counterpart]]:
    """By host and key of now. Two of then may have become one: it then says what differs from either."""
    found: dict[str, dict[str, Counterpart]] = {}
    differs: dict[tuple[str, str], dict[str, None]] = {}
    for trial in again:
        lines = differs.setdefault((trial.host, trial.trial_key), {})
        lines |= dict.fromkeys(trial.differs)
        here = found.setdefault(trial.host, {})
        first = here.get(trial.trial_key)
        key = trial.then.trial_key if first is None else first.trial_key
        here[trial.trial_key] = Counterpart(key, "; ".join(lines) or None)
    return found


def _elsewhere(configuration: Configuration, host: ReadyHost) -> list[str]:
    """In what the place differs from that of then."""
    then, now = configuration.host, host.planning.name
    lines = [] if then == now else [f"host: expected {then or 'unknown'}, found {now}"]
    return lines + limit_differences(configuration.limits, host.executions[configuration.pin.name])


def _keys_note(again: Sequence[Again]) -> str:
    same = sum(trial.trial_key == trial.then.trial_key for trial in again)
    note = f"trial keys: {same} of {len(again)} are those of the stored trials"
    return note if same == len(again) else f"{note}; reproduces_trial_key pairs the others"


def _matches(place: ReadyTarget, environment: str, allowed: Allowed) -> dict[EnvironmentPin, EnvironmentMatch]:
    """Whether the host has the environment that each trial had; those of two hosts of then may have differed."""
    group = [trial for trial in place.target.configurations if trial.pin.name == environment]
    here, installed = place.host.planning.environments[environment], place.installed.get(environment)
    found: dict[EnvironmentPin, EnvironmentMatch] = {}
    for configuration in {trial.pin: trial for trial in group}.values():
        match = compare(configuration.pin, configuration.versions, here, installed)
        refuse(configuration, place.target.name, match, allowed)
        found[configuration.pin] = match
    return found


def _note(host: str, environment: str, match: EnvironmentMatch) -> str:
    if match.differences:
        return f"{host}: environment {environment} DIFFERS, which was allowed: {match.text}"
    return f"{host}: environment {environment} is identical to the stored one ({match.compared})"


def _pin_of_now(
    matches: Mapping[EnvironmentPin, EnvironmentMatch], found: EnvironmentPin, *, as_then: bool
) -> EnvironmentPin:
    """The pin of an identical image keeps the names of then."""
    named = next((stored for stored, match in matches.items() if not match.differences), found)
    reason = AS_THEN if as_then else found.reason
    return replace(found, reason=reason, image_id=named.image_id, image_digest=named.image_digest)


def places(again: Sequence[Again]) -> Mapping[tuple[str, str], Sequence[Again]]:
    """By host and environment, each key once: two hosts of then may ask one host of now for the same."""
    groups: dict[tuple[str, str], dict[str, Again]] = {}
    for trial in again:
        groups.setdefault((trial.host, trial.pin.name), {}).setdefault(trial.trial_key, trial)
    return {place: [group[key] for key in sorted(group)] for place, group in sorted(groups.items())}


_PREFIX = "reproduce-"
_MADE_BY = "# made by `taxmeter reproduce"


def continuation_of(reproduction: Reproduction, store: Store) -> Continuation:
    """A new campaign, or the one that an interrupted command left."""
    fresh_id = new_campaign_id(sweep_name(reproduction.wanted))
    fresh = plan_again(reproduction, fresh_id)
    earlier = store.newest_campaign(fresh.digest)
    if earlier is not None:
        full = plan_again(reproduction, earlier)
        left = unfinished(full, store.attempts(earlier))
        if left.tasks:
            return Continuation(earlier, False, full, left)
    return Continuation(fresh_id, True, fresh, fresh)


def plan_again(reproduction: Reproduction, campaign_id: str) -> Plan:
    """One task per host, environment and round, each in an order of its own."""
    tasks = []
    visits = []
    for (host, environment), group in places(reproduction.again).items():
        for number in range(1, reproduction.rounds + 1):
            order = list(group)
            random.Random(f"{campaign_id}/{host}/{environment}/{number}").shuffle(order)  # noqa: S311 - an order, no secret
            trials = tuple(
                visit(campaign_id, host, again.trial_key, again.then.spec, number, position, 0, again.then.timeout_s)
                for position, again in enumerate(order)
            )
            visits += [[host, trial.trial_key, number] for trial in trials]
            task_id = f"{campaign_id}-{host}-{environment}-r{number}"
            # Those that a sweep has which says nothing: the store does not tell which ones were chosen then
            task = Task(CONTRACT_VERSION, campaign_id, task_id, environment, trials, Guards())
            tasks.append(PlannedTask(host, task))
    tasks.sort(key=lambda planned: planned.task.trials[0].round)
    work = {"reproduces": reproduction.wanted.campaign_id, "visits": sorted(visits)}
    return Plan(tuple(tasks), (), (), digest(work), estimate_s(tasks))


def order_again(
    reproduction: Reproduction, chosen: Continuation, inventory: Inventory, taxmeter_version: str, commit: str | None
) -> CampaignOrder:
    """All that the campaign needs. In place of a sweep's text it keeps what was reproduced."""
    wanted = reproduction.wanted
    lines = [f"{_MADE_BY} {wanted.trial_id or wanted.campaign_id}`"]
    lines += [f"reproduces: {wanted.campaign_id}", f"rounds: {reproduction.rounds}", "trial_keys:"]
    lines += [f"  - {trial.trial_key}  # {trial.name} on {trial.host}" for trial in wanted.configurations]
    return CampaignOrder(
        chosen,
        reproduction.hosts,
        sweep_name(wanted),
        "\n".join(lines) + "\n",
        inventory.file.text,
        taxmeter_version,
        commit,
        reproduction.reproduces,
        inventory.faults,
    )


def is_reproduction(row: Mapping[str, Any]) -> bool:
    """Whether a row of `campaigns` is of one that ran stored trials again."""
    return str(row["sweep_document"]).startswith(_MADE_BY)


def sweep_name(wanted: Wanted) -> str:
    """The name under which the new campaign goes."""
    return _PREFIX + str(wanted.campaign["sweep"]).removeprefix(_PREFIX)
