"""Which hosts a command is about."""

import fnmatch
import re
from collections.abc import Callable, Collection, Mapping

from orchestrator.config.inventory.loading import ALL
from orchestrator.config.inventory.model import Connection, Host, HostState, Inventory
from orchestrator.errors import ConfigurationError, NoUsableHostError


def select_hosts(inventory: Inventory, limit: str | None) -> dict[str, Host]:
    """The hosts that a limit leaves over.

    Args:
        inventory: the fleet.
        limit: names, groups and patterns joined by `:`, such as `ampere:!a100-07`; a leading `!` excludes, `&` keeps
            only those that are also there. None keeps every host.

    Raises:
        ConfigurationError: a pattern is empty or matches no host, or none is left.
    """
    if limit is None:
        return dict(inventory.hosts)
    chosen: set[str] = set()
    dropped: set[str] = set()
    kept = set(inventory.hosts)
    terms = re.split(r"[:,]", limit)
    if not all(term.strip("!& ") for term in terms):
        # A script's variable that is not set must not mean the whole lab.
        raise ConfigurationError(
            f"--limit {limit!r}: expected names, groups or patterns joined by ':', such as 'ampere:!a100-07', but "
            f"{'one of them' if limit.strip() else 'it'} is empty; every host is 'all'"
        )
    for term in terms:
        named = _named(term.lstrip("!&"), inventory, limit)
        if term.startswith("!"):
            dropped |= named
        elif term.startswith("&"):
            kept &= named
        else:
            chosen |= named
    if all(term[0] in "!&" for term in terms):
        chosen = set(inventory.hosts)
    left = {name: host for name, host in inventory.hosts.items() if name in (chosen & kept) - dropped}
    if not left:
        raise ConfigurationError(f"--limit {limit} leaves no host; known: {', '.join(inventory.hosts)}")
    return left


def groups_of(name: str, inventory: Inventory) -> list[str]:
    """The groups of a host, in the order of the file."""
    return [group for group, hosts in inventory.groups.items() if name in hosts]


def active_hosts(hosts: Mapping[str, Host], say: Callable[[str], None]) -> dict[str, Host]:
    """The hosts that take new trials; `say` is told about each of the others.

    Raises:
        NoUsableHostError: none does.
    """
    for name, host in hosts.items():
        if host.state is HostState.DRAIN:
            say(f"{name}: its state is drain, so it takes no new trials")
    active = {name: host for name, host in hosts.items() if host.state is HostState.ACTIVE}
    if not active:
        raise NoUsableHostError(
            f"no host takes new trials: the state of {', '.join(hosts)} is drain; write `state: active` for one"
        )
    return active


def refuse_nodes(hosts: Mapping[str, Host], inventory: Inventory) -> None:
    """Refuses hosts that are nodes of somebody's Ray cluster, where a command reaches hosts in another way.

    Args:
        hosts: that the command is about.
        inventory: that they come from.

    Raises:
        ConfigurationError: one of them is.
    """
    if any(host.connection is Connection.RAY for host in hosts.values()):
        raise inventory.error(
            "with ray_address there is nothing to reach but through Ray, which this command does not; `taxmeter sweep "
            "plan` looks at all hosts and says what is wrong",
            "ray_address",
        )


def _named(term: str, inventory: Inventory, limit: str) -> set[str]:
    if term == ALL:
        return set(inventory.hosts)
    hosts = set(fnmatch.filter(inventory.hosts, term))
    groups = fnmatch.filter(inventory.groups, term)
    if not hosts and not groups:
        what = "host or group" if inventory.groups else "host"
        raise ConfigurationError(f"--limit {limit}: no {what} is called {term}; known: {_known(inventory)}")
    return hosts.union(*(inventory.groups[group] for group in groups))


def _known(inventory: Inventory) -> str:
    names: Collection[str] = inventory.hosts
    groups = f"; groups: {', '.join(inventory.groups)}" if inventory.groups else ""
    return ", ".join(names) + groups
