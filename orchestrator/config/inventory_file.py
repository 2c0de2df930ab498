"""Reads `hostinventory.yaml`: every setting may stand in the defaults, in a group or at the host."""

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field

from orchestrator.config.documents import Document, Location, Source, load_yaml, nodes
from orchestrator.config.inventory import (
    ALL,
    OF_SSH,
    ROUTE,
    Connection,
    Faults,
    Host,
    HostEntry,
    Inventory,
    Origin,
    Settings,
    local_engine,
    problem_of,
)
from orchestrator.config.inventory_values import GroupName, HostName, Pattern, RayAddress, local_path
from orchestrator.errors import ConfigurationError, did_you_mean

MACHINE_LABELS = ("gpu_model", "gpu_count", "driver", "architecture")
"""Labels that are read off a host and that nobody sets: a label that people typed can be wrong."""

_Places = dict[str, Location]
"""By setting, such as `user` or `labels.rack`, the key of the file that decided it, also where that is a null."""

_BY_KEY: Final = ("labels", "expect")

_SECRET_KEY = re.compile(
    r"(.*[_-])?(pass(word|wd|phrase)|secret|token|api[_-]?key|private[_-]?key|credentials?)([_-].*)?", re.IGNORECASE
)
_PRIVATE_KEY = re.compile(r"PRIVATE KEY-----|PuTTY-User-Key-File|b3BlbnNzaC1rZXktdjE")
_ADDRESS_WITH_PASSWORD = re.compile(r"(?<![a-z])[a-z]+://[^/\s:@]*:[^/\s@]+@")


class Defaults(Settings):
    """Settings of every host, unless a group or the host says otherwise."""


class Group(Settings):
    """Hosts that share settings, and are selected by the group's name."""

    hosts: tuple[Pattern, ...] = Field(min_length=1)
    """Names of hosts, or patterns such as `a100-*`."""


class InventoryDocument(Document):
    """The machines of a lab. A setting of a host wins over its groups, a later group over an earlier one, and any
    of them over the defaults."""

    model_config = ConfigDict(use_attribute_docstrings=True, title="taxmeter host inventory")

    version: Literal[1]
    """Of this format: 1."""
    defaults: Defaults = Defaults()
    faults: Faults = Faults()
    """How long hosts are waited for that do not answer."""
    ray_address: RayAddress | None = None
    """HOST:PORT of a Ray cluster that is kept by somebody else, or `auto`. All hosts are then nodes of it: each the one
    whose label `taxmeter-host` is the host's name."""
    groups: dict[GroupName, Group] = Field(default_factory=dict)
    hosts: dict[HostName, HostEntry] = Field(min_length=1)


def json_schema() -> str:
    """The schema of `hostinventory.yaml`, as a document of JSON."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(schema | InventoryDocument.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def load_inventory(path: Path | Source) -> Inventory:
    """Reads an inventory: a file, or the text of one that a store has.

    Raises:
        ConfigurationError: the file is missing or wrong, holds a secret, or names one machine twice.
    """
    source = Source.read(path) if isinstance(path, Path) else path
    _refuse_secrets(source)
    document = load_yaml(source, InventoryDocument)
    groups = {name: _members(name, document) for name in document.groups}
    merged = {name: _merge(name, document, groups) for name in document.hosts}
    hosts = {name: _host(name, *found, source) for name, found in merged.items()}
    places = {name: found[1] for name, found in merged.items()}
    _refuse_one_machine_twice(hosts, source)
    _refuse_endless_jumps(hosts, places, source)
    _refuse_mixed_clusters(hosts, places, document)
    origins = {
        name: {key: Origin(_level(where), source.line(*where)) for key, where in stands.items()}
        for name, stands in places.items()
    }
    return Inventory(hosts, groups, document.faults, document.ray_address, source, origins)


def _refuse_secrets(source: Source) -> None:
    """Refuses the first secret of a document, and tells where it stands and of which kind it is, but never its text."""
    for location, value in nodes(source.tree):
        # Names of hosts and groups are theirs: a host may well be called token-ring.
        is_name = len(location) == 2 and location[0] in ("hosts", "groups")
        key = str(location[-1]) if location and not is_name else ""
        if _SECRET_KEY.fullmatch(key):
            kind = repr(key)
        elif isinstance(value, str) and _PRIVATE_KEY.search(value):
            kind = "a private key"
        elif isinstance(value, str) and _ADDRESS_WITH_PASSWORD.search(value):
            kind = "a password in an address"
        else:
            continue
        raise source.error(
            f"{kind} has no place here: the inventory is stored with every campaign. Remove it, change it where it is "
            "valid, and log in with a key that ssh knows (`identity_file:` names its file)",
            *location,
        )


def _members(group: str, document: InventoryDocument) -> tuple[str, ...]:
    """The hosts of a group, in the order of the file."""
    if group in document.hosts or group == ALL:
        what = "every host" if group == ALL else "a host"
        raise document.error(f"{group} means {what} in --limit; call the group something else", "groups", group)
    patterns = document.groups[group].hosts
    for number, pattern in enumerate(patterns):
        if not any(fnmatchcase(host, pattern) for host in document.hosts):
            problem = f"no host is called {pattern}; {did_you_mean(pattern, document.hosts)}"
            raise document.error(problem, "groups", group, "hosts", number)
    return tuple(host for host in document.hosts if any(fnmatchcase(host, pattern) for pattern in patterns))


def _merge(
    name: str, document: InventoryDocument, groups: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any], _Places]:
    """The settings of a host that are not null, with dotted keys such as `labels.rack`, and where they come from.

    What a host inherits about SSH is left out where it does not apply: for the local machine all of it, for an alias
    the way to it, for a jump host the jump over itself.
    """
    values: dict[str, Any] = {}
    places: _Places = {}

    def note(key: str, value: Any, *location: int | str) -> None:
        places[key] = location
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value

    entry = document.hosts[name]
    levels: list[tuple[Location, Settings]] = [(("defaults",), document.defaults)]
    levels += [(("groups", group), document.groups[group]) for group in groups if name in groups[group]]
    for location, settings in [*levels, (("hosts", name), entry)]:
        for key in sorted(settings.model_fields_set - {"hosts"}):
            given = getattr(settings, key)
            if key == "jump" and given == name and settings is not entry:
                continue  # a bastion that all the others jump over
            if key not in _BY_KEY:
                note(key, given, *location, key)
            elif given is None:
                for known in [known for known in values if known.startswith(f"{key}.")]:
                    note(known, None, *location, key)
            else:
                inner = (
                    given
                    if isinstance(given, dict)
                    else {name: getattr(given, name) for name in given.model_fields_set}
                )
                for part, value in inner.items():
                    note(f"{key}.{part}", value, *location, key, part)
    own = {key for key in entry.model_fields_set if getattr(entry, key) is not None}
    foreign = OF_SSH if values.get("connection") is Connection.LOCAL else ROUTE if "ssh_alias" in own else ()
    for key in foreign:
        if key in values and key not in own:
            del values[key], places[key]
    return values, places


def _host(name: str, values: Mapping[str, Any], places: _Places, source: Source) -> Host:
    if "connection" not in values:
        raise source.error("this key is missing; add `connection: ssh` or `local`", "hosts", name, "connection")
    problem = problem_of(values)
    if problem is not None:
        key, text = problem
        raise source.error(text, *(("hosts", name) if key is None else places[key]))
    for label in MACHINE_LABELS:
        if f"labels.{label}" in places:
            text = f"{label} is read off the host, and no label to set; remove it (`expect:` has what must be found)"
            raise source.error(text, *places[f"labels.{label}"])
    home = str(local_path(values.get("identity_file", ""))).partition("/")[0]
    if home.startswith("~"):
        text = f"{home} is no home directory of this machine; write the whole path of the key"
        raise source.error(text, *places["identity_file"])
    settings: dict[str, Any] = {key: {} for key in _BY_KEY}
    for key, value in values.items():
        outer, _, inner = key.partition(".")
        if inner:
            settings[outer][inner] = value
        else:
            settings[key] = value
    if settings["connection"] is Connection.LOCAL:
        settings["engine"] = local_engine(settings.get("engine"))
    return Host(**settings)


def _level(where: Location) -> str:
    return {"defaults": "defaults", "groups": f"group {where[1]}", "hosts": "host"}[str(where[0])]


def _refuse_one_machine_twice(hosts: Mapping[str, Host], source: Source) -> None:
    seen: dict[object, str] = {}
    for name, host in hosts.items():
        if host.connection is Connection.RAY:
            continue  # known by its name alone
        local = host.connection is Connection.LOCAL
        machine = "local" if local else (host.ssh_alias, host.jump, host.address, host.port or 22)
        other = seen.setdefault(machine, name)
        if other != name:
            what = "this machine" if local else "the same machine"
            key = "connection" if local else "address" if host.address is not None else "ssh_alias"
            raise source.error(
                f"{other} and {name} are both {what}; two benchmarks at once would disturb each other, keep one",
                "hosts",
                name,
                key,
            )


def _refuse_endless_jumps(hosts: Mapping[str, Host], places: Mapping[str, _Places], source: Source) -> None:
    for name in hosts:
        way = [name]
        while (jump := hosts[way[-1]].jump) is not None and jump in hosts:
            if jump in way:
                raise _circle(way[way.index(jump) :], places, source)
            if hosts[jump].connection is Connection.LOCAL:
                raise source.error(
                    f"{jump} is this machine, so there is nothing to jump over", *places[way[-1]]["jump"]
                )
            way.append(jump)


def _circle(circle: Sequence[str], places: Mapping[str, _Places], source: Source) -> ConfigurationError:
    where = [places[name]["jump"] for name in circle]
    # A jump that a host inherits is more likely the mistake than one that was written for it.
    inherited = [location for location in where if location[0] != "hosts"]
    return source.error(
        f"these jumps lead in a circle: {' → '.join([*circle, circle[0]])}; write `jump: null` at the host that is "
        "reached without one",
        *(inherited or where)[0],
    )


def _refuse_mixed_clusters(
    hosts: Mapping[str, Host], places: Mapping[str, _Places], document: InventoryDocument
) -> None:
    for name, host in hosts.items():
        is_node = host.connection is Connection.RAY
        if is_node == (document.ray_address is not None):
            continue
        problem = (
            "connection ray needs the cluster's address; add `ray_address: HOST:PORT` at the top of the file"
            if is_node
            else "with ray_address every host is a node of that cluster; write `connection: ray`, or put "
            f"{name} into an inventory of its own"
        )
        raise document.error(problem, *places[name]["connection"])
