"""Where stored trials are to run again, and what may differ there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.campaign.preparing.hosts import CHOSEN
from orchestrator.campaign.reproducing.identical import Identity
from orchestrator.campaign.reproducing.stored import Configuration, Wanted
from orchestrator.config.inventory import ExecutorChoice, Host, Inventory
from orchestrator.errors import ConfigurationError, NoUsableHostError
from orchestrator.planning import Isolation

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
    def reason(self) -> str:
        """Why it has its isolation, where nobody looks for an engine."""
        return AS_THEN if self.is_as_then else CHOSEN

    @property
    def environments(self) -> list[str]:
        """The names of their environments."""
        return sorted({one.pin.name for one in self.configurations})


@dataclass(frozen=True)
class Allowed:
    """What may differ."""

    image: bool = False
    """Also another isolation."""
    method: Mapping[str, str] = field(default_factory=dict)
    """By stored key, what does differ in method or specification, of `refuse_another_method`."""


def targets(
    wanted: Wanted, inventory: Inventory, path: Path, host: str | None, allowed: Allowed | None = None
) -> list[Target]:
    """Where to run: on the hosts of then, or all on one; in the isolation of then where the inventory does not say.

    Raises:
        ConfigurationError: the host that was named is unknown, or would have to treat trials in two ways.
        NoUsableHostError: the host of then is not in the inventory.
    """
    known = inventory.hosts
    if host is not None and host not in known:
        raise ConfigurationError(f"--host {host}: no host is called so; known: {', '.join(known)}", file=path)
    by_host: dict[str, list[Configuration]] = {}
    for one in wanted.configurations:
        by_host.setdefault(host or one.host, []).append(one)
    missing = sorted(set(by_host) - set(known))
    if missing:
        raise NoUsableHostError(
            f"{wanted.campaign_id} ran on {', '.join(name or 'an unknown host' for name in missing)}, which {path} "
            f"does not have; choose another with --host (known: {', '.join(known)})"
        )
    return [_target(name, known[name], group, allowed or Allowed()) for name, group in sorted(by_host.items())]


def _target(name: str, host: Host, group: Sequence[Configuration], allowed: Allowed) -> Target:
    isolations = {one.pin.isolation for one in group}
    if len(isolations) > 1:
        raise ConfigurationError(
            f"{name} would run some trials in containers and some without; reproduce them one by one, by trial id"
        )
    _refuse_mixed_limits(name, group)
    [isolation] = isolations
    as_then = ExecutorChoice.PROCESS if isolation is Isolation.PROCESS else ExecutorChoice.DOCKER
    # Where another isolation is allowed, an engine that is down is no reason to give up.
    is_free = allowed.image and as_then is ExecutorChoice.DOCKER
    if host.executor is ExecutorChoice.AUTO and not is_free:
        return Target(name, host.model_copy(update={"executor": as_then}), tuple(group), is_as_then=True)
    return Target(name, host, tuple(group))


def _refuse_mixed_limits(name: str, group: Sequence[Configuration]) -> None:
    first: dict[str, Configuration] = {}
    for one in group:
        other = first.setdefault(one.pin.name, one)
        if other.limits != one.limits:
            raise ConfigurationError(
                f"{name} would have to run {other.name} with {other.limits}, but {one.name} with {one.limits}; "
                "reproduce them one by one, by trial id"
            )


def refuse(one: Configuration, host: str, identity: Identity, allowed: Allowed) -> None:
    """Refuses an environment that is not the one of then, unless that is allowed.

    Raises:
        ConfigurationError: with every difference.
    """
    if identity.differences and not allowed.image:
        raise ConfigurationError(
            f"{one.name} cannot be reproduced on {host}: environment {one.pin.name} is not the one that it ran in: "
            f"{identity.text}; {_ALLOW}"
        )
