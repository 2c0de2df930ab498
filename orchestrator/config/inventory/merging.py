"""Defaults, then groups in the order of the file, then the host: the settings of one host and where each stands."""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.config.documents import Location
from orchestrator.config.inventory.document import HostEntry, InventoryDocument, _Settings
from orchestrator.config.inventory.model import OF_SSH, ROUTE, Connection

Places = dict[str, Location]
"""By setting, such as `user` or `labels.rack`, the key of the file that decided it, also where that is a null."""

_BY_KEY = ("labels", "expect")


def members(patterns: Sequence[str], hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts that one of the patterns names, in the order of `hosts`."""
    return tuple(host for host in hosts if any(fnmatch.fnmatchcase(host, pattern) for pattern in patterns))


def merge(name: str, document: InventoryDocument, groups: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], Places]:
    """The settings of a host that are not null, and where they come from.

    What a host inherits about SSH is left out where it does not apply: for the local machine all of it, for an alias
    the way to it, for a jump host the jump over itself.

    Args:
        name: of the host.
        document: the file.
        groups: the names of each group's hosts.
    """
    values: dict[str, Any] = {}
    places: Places = {}
    for location, settings in _levels(name, document, groups):
        for key in sorted(settings.model_fields_set - {"hosts"}):
            given = getattr(settings, key)
            if key == "jump" and given == name and location[0] != "hosts":
                continue  # a bastion that all the others jump over
            if key in _BY_KEY and given is not None:
                for inner, value in _items(given).items():
                    _note(values, places, f"{key}.{inner}", value, (*location, key, inner))
            elif key in _BY_KEY:
                for known in [one for one in values if one.startswith(f"{key}.")]:
                    _note(values, places, known, None, (*location, key))
            else:
                _note(values, places, key, given, (*location, key))
    for key in _inapplicable(values, document.hosts[name]):
        del values[key], places[key]
    return values, places


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `merge` as a host takes them: labels and expectations as mappings of their own."""
    whole: dict[str, Any] = {}
    for key, value in values.items():
        outer, dot, inner = key.partition(".")
        if dot:
            whole.setdefault(outer, {})[inner] = value
        else:
            whole[key] = value
    return whole


def _levels(
    name: str, document: InventoryDocument, groups: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Location, _Settings]]:
    yield ("defaults",), document.defaults
    for group, settings in document.groups.items():
        if name in groups[group]:
            yield ("groups", group), settings
    yield ("hosts", name), document.hosts[name]


def _items(given: Any) -> dict[str, Any]:
    return given if isinstance(given, dict) else {key: getattr(given, key) for key in sorted(given.model_fields_set)}


def _note(values: dict[str, Any], places: Places, key: str, value: Any, place: Location) -> None:
    places[key] = place
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _inapplicable(values: Mapping[str, Any], entry: HostEntry) -> list[str]:
    own = {key for key in entry.model_fields_set if getattr(entry, key) is not None}
    inherited = OF_SSH if values.get("connection") is Connection.LOCAL else ROUTE if "ssh_alias" in own else ()
    return [key for key in inherited if key in values and key not in own]
