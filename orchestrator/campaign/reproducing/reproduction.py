"""Decides how stored trials run again: where, in which environment, and whether that is identical to theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.campaign.reproducing.identical import Identity, compare
from orchestrator.campaign.reproducing.limits import limit_differences, limited
from orchestrator.campaign.reproducing.stored import Configuration, Wanted
from orchestrator.campaign.reproducing.targets import AS_THEN, Allowed, Target, refuse
from orchestrator.planning import EnvironmentPin, trial_key
from orchestrator.store import Counterpart, Reproduces

LEAST_ROUNDS = 3
"""Fewer processes than that give no interval that is worth anything."""


@dataclass(frozen=True)
class Again:
    """A configuration, and where it runs now."""

    then: Configuration
    host: str
    pin: EnvironmentPin

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


def decide(
    wanted: Wanted, ready: Sequence[tuple[Target, ReadyHost]], allowed: Allowed, rounds: int | None = None
) -> Reproduction:
    """Proves that the hosts provide what the trials ran in, and gives them the limits of then.

    Args:
        wanted: what to run again.
        ready: where, each host prepared.
        allowed: what may differ.
        rounds: how many; null for as many as then, three at least.

    Raises:
        ConfigurationError: an environment differs and that is not allowed.
        NoUsableHostError: a host has too few cores or too little memory.
        InfrastructureError: an environment cannot be looked into.
    """
    again: list[tuple[Again, tuple[str, ...]]] = []
    notes: list[str] = []
    hosts = []
    for target, host in ready:
        pins = dict(host.planning.environments)
        identities: dict[EnvironmentPin, Identity] = {}
        for name in target.environments:
            group = [one for one in target.configurations if one.pin.name == name]
            found = _identities(group, target.name, host, allowed)
            identities |= found
            pins[name] = _pin_of_now(found, pins[name], as_then=target.is_as_then)
            notes += dict.fromkeys(_note(target.name, name, identity) for identity in found.values())
        limits = {one.pin.name: one.limits for one in target.configurations}
        threads = max(one.spec.threads for one in target.configurations)
        planning = replace(host.planning, environments=pins)
        hosts.append(limited(replace(host, planning=planning), limits, threads))
        for one in target.configurations:
            method = allowed.method.get(one.trial_key)
            lines = [*([method] if method else []), *identities[one.pin].lines, *_elsewhere(one, hosts[-1])]
            again.append((Again(one, target.name, pins[one.pin.name]), tuple(lines)))
        notes += _placement(target, hosts[-1])
    notes.append(_keys_note(again))
    return Reproduction(
        wanted=wanted,
        hosts=tuple(hosts),
        again=tuple(one for one, _ in again),
        rounds=rounds or max(LEAST_ROUNDS, *(one.rounds for one in wanted.configurations)),
        reproduces=Reproduces(wanted.campaign_id, _counterparts(again)),
        notes=tuple(notes),
    )


def _counterparts(again: Sequence[tuple[Again, tuple[str, ...]]]) -> dict[tuple[str, str], Counterpart]:
    """By host and key of now. Two of then may have become one: it then says what differs from either."""
    found: dict[tuple[str, str], Counterpart] = {}
    differs: dict[tuple[str, str], dict[str, None]] = {}
    for one, lines in again:
        place = one.host, one.trial_key
        differs.setdefault(place, {}).update(dict.fromkeys(lines))
        first = found.get(place)
        key = one.then.trial_key if first is None else first.trial_key
        found[place] = Counterpart(key, "; ".join(differs[place]) or None)
    return found


def _elsewhere(one: Configuration, host: ReadyHost) -> list[str]:
    """In what the place differs from that of then."""
    name = host.planning.name
    lines = [] if one.host == name else [f"host: expected {one.host or 'unknown'}, found {name}"]
    return lines + limit_differences(one.limits, host.executions[one.pin.name])


def _placement(target: Target, host: ReadyHost) -> list[str]:
    lines = dict.fromkeys(line for one in target.configurations for line in _elsewhere(one, host))
    return [f"{target.name}: {line}" for line in lines]


def _keys_note(again: Sequence[tuple[Again, tuple[str, ...]]]) -> str:
    same = sum(one.trial_key == one.then.trial_key for one, _ in again)
    note = f"trial keys: {same} of {len(again)} are those of the stored trials"
    # The content of an image has not always been what a key names it by.
    return note if same == len(again) else f"{note}; reproduces_trial_key pairs the others"


def _identities(
    group: Sequence[Configuration], name: str, host: ReadyHost, allowed: Allowed
) -> dict[EnvironmentPin, Identity]:
    """Whether the host has the environment that each of them had; those of two hosts of then may have differed."""
    found: dict[EnvironmentPin, Identity] = {}
    for one in {one.pin: one for one in group}.values():
        here = host.planning.environments[one.pin.name]
        found[one.pin] = compare(one.pin, one.versions, here, host.executions[one.pin.name])
        refuse(one, name, found[one.pin], allowed)
    return found


def _note(host: str, environment: str, identity: Identity) -> str:
    if identity.differences:
        return f"{host}: environment {environment} DIFFERS, which was allowed: {identity.text}"
    return f"{host}: environment {environment} is identical to the stored one ({identity.compared})"


def _pin_of_now(
    identities: Mapping[EnvironmentPin, Identity], found: EnvironmentPin, *, as_then: bool
) -> EnvironmentPin:
    """The pin of an identical image keeps the names of then."""
    named = next((stored for stored, identity in identities.items() if not identity.differences), found)
    reason = AS_THEN if as_then else found.reason
    return replace(found, reason=reason, image_id=named.image_id, image_digest=named.image_digest)


def places(again: Sequence[Again]) -> Mapping[tuple[str, str], Sequence[Again]]:
    """By host and environment, each key once: two hosts of then may ask one host of now for the same."""
    groups: dict[tuple[str, str], dict[str, Again]] = {}
    for one in again:
        groups.setdefault((one.host, one.pin.name), {}).setdefault(one.trial_key, one)
    return {place: [group[key] for key in sorted(group)] for place, group in sorted(groups.items())}
