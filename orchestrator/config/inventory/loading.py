"""Reads `hostinventory.yaml`: checked as a whole, merged, and with the line of every setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.documents import Location, did_you_mean, line_in, read_yaml, validated
from orchestrator.config.inventory.document import OF_VERSION_1, InventoryDocument
from orchestrator.config.inventory.merging import Places, members, merge, nested
from orchestrator.config.inventory.model import Connection, Host, Inventory, local_engine, problem_of
from orchestrator.config.inventory.secrets import secret_in
from orchestrator.config.inventory.values import local_path
from orchestrator.errors import ConfigurationError

MACHINE_LABELS = ("gpu_model", "gpu_count", "driver", "architecture")
"""Labels that are read off a host and that nobody sets: a label that people typed can be wrong."""

ALL = "all"
"""In a limit: every host. No group may take this name."""


@dataclass(frozen=True)
class Origin:
    """Where a setting of a host comes from."""

    level: str
    """`defaults`, `group NAME` or `host`."""
    line: int


@dataclass(frozen=True)
class LoadedInventory:
    """An inventory and where its settings stand."""

    inventory: Inventory
    origins: Mapping[str, Mapping[str, Origin]]
    """By host and setting, such as `user` or `labels.rack`; what is missing is built in."""


def load_inventory(path: Path) -> Inventory:
    """Reads an inventory.

    Raises:
        ConfigurationError: the file is missing or wrong, holds a secret, or names one machine twice.
    """
    return load_with_origins(path).inventory


def load_with_origins(path: Path) -> LoadedInventory:
    """Reads an inventory, and where each setting of a host stands.

    Raises:
        ConfigurationError: as `load_inventory`.
    """
    tree = read_yaml(path)
    _refuse_secrets(path, tree)
    document = validated(tree, path, InventoryDocument)
    place = _Place(path, tree)
    if document.version == 1:
        _refuse_later_keys(document, place)
    groups = {name: _members(name, document, place) for name in document.groups}
    hosts: dict[str, Host] = {}
    stands: dict[str, Places] = {}
    origins: dict[str, dict[str, Origin]] = {}
    for name in document.hosts:
        values, places = merge(name, document, groups)
        hosts[name] = _host(name, values, places, place)
        stands[name] = places
        origins[name] = {key: Origin(_level(where), line_in(tree, where)) for key, where in places.items()}
    _refuse_one_machine_twice(hosts, place)
    _refuse_endless_jumps(hosts, stands, place)
    _refuse_mixed_clusters(hosts, origins, document.ray_address, place)
    whole = Inventory(
        version=document.version,
        hosts=hosts,
        groups=groups,
        faults=document.faults,
        ray_address=document.ray_address,
    )
    return LoadedInventory(whole, origins)


@dataclass(frozen=True)
class _Place:
    path: Path
    tree: Any

    def error(self, problem: str, location: Location) -> ConfigurationError:
        line = line_in(self.tree, location)
        return ConfigurationError(problem, file=self.path, line=line, key=".".join(map(str, location)))


def _refuse_secrets(path: Path, tree: Any) -> None:
    found = secret_in(tree)
    if found is not None:
        location, kind = found
        raise _Place(path, tree).error(
            f"{kind} has no place here: the inventory is stored with every campaign. Remove it, change it where it is "
            "valid, and log in with a key that ssh knows (`identity_file:` names its file)",
            location,
        )


def _refuse_later_keys(document: InventoryDocument, place: _Place) -> None:
    later = [(key,) for key in sorted(document.model_fields_set - {"version", "hosts"})]
    for name, entry in document.hosts.items():
        later += [("hosts", name, key) for key in sorted(entry.model_fields_set - OF_VERSION_1)]  # type: ignore[misc]
    if later:
        raise place.error("this key came with version 2; write `version: 2`", later[0])


def _members(group: str, document: InventoryDocument, place: _Place) -> tuple[str, ...]:
    hosts = list(document.hosts)
    if group in document.hosts or group == ALL:
        what = "every host" if group == ALL else "a host"
        raise place.error(f"{group} means {what} in --limit; call the group something else", ("groups", group))
    patterns = document.groups[group].hosts
    for number, pattern in enumerate(patterns):
        if not members([pattern], hosts):
            problem = f"no host is called {pattern}; {did_you_mean(pattern, hosts)}"
            raise place.error(problem, ("groups", group, "hosts", number))
    return members(patterns, hosts)


def _host(name: str, values: dict[str, Any], places: Mapping[str, Location], place: _Place) -> Host:
    if "connection" not in values:
        raise place.error("this key is missing; add `connection: ssh` or `local`", ("hosts", name, "connection"))
    problem = problem_of(values)
    if problem is not None:
        key, text = problem
        raise place.error(text, ("hosts", name) if key is None else places[key])
    _refuse_facts(places, place)
    _refuse_unknown_home(values, places, place)
    if values["connection"] is Connection.LOCAL:
        values = values | {"engine": local_engine(values.get("engine"))}
    return Host(**nested(values))


def _refuse_facts(places: Mapping[str, Location], place: _Place) -> None:
    for name in MACHINE_LABELS:
        where = places.get(f"labels.{name}")
        if where is not None:
            raise place.error(
                f"{name} is read off the host, and no label to set; remove it (what must be found stands in `expect:`)",
                where,
            )


def _refuse_unknown_home(values: Mapping[str, Any], places: Mapping[str, Location], place: _Place) -> None:
    home = str(local_path(values.get("identity_file", ""))).partition("/")[0]
    if home.startswith("~"):
        raise place.error(
            f"{home} is no home directory of this machine; write the whole path of the key", places["identity_file"]
        )


def _level(where: Location) -> str:
    return {"defaults": "defaults", "groups": f"group {where[1]}", "hosts": "host"}[str(where[0])]


def _refuse_one_machine_twice(hosts: Mapping[str, Host], place: _Place) -> None:
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
            raise place.error(
                f"{other} and {name} are both {what}; two benchmarks at once would disturb each other, keep one",
                ("hosts", name, key),
            )


def _refuse_endless_jumps(hosts: Mapping[str, Host], stands: Mapping[str, Places], place: _Place) -> None:
    for name in hosts:
        way = [name]
        while (jump := hosts[way[-1]].jump) is not None and jump in hosts:
            if jump in way:
                raise _circle(way[way.index(jump) :], stands, place)
            if hosts[jump].connection is Connection.LOCAL:
                raise place.error(f"{jump} is this machine, so there is nothing to jump over", stands[way[-1]]["jump"])
            way.append(jump)


def _circle(circle: Sequence[str], stands: Mapping[str, Places], place: _Place) -> ConfigurationError:
    where = [stands[name]["jump"] for name in circle]
    # A jump that a host inherits is more likely the mistake than one that was written for it.
    inherited = [one for one in where if one[0] != "hosts"]
    return place.error(
        f"these jumps lead in a circle: {' → '.join([*circle, circle[0]])}; write `jump: null` at the host that is "
        "reached without one",
        (inherited or where)[0],
    )


def _refuse_mixed_clusters(
    hosts: Mapping[str, Host], origins: Mapping[str, Mapping[str, Origin]], ray_address: str | None, place: _Place
) -> None:
    for name, host in hosts.items():
        is_node = host.connection is Connection.RAY
        if is_node and ray_address is None:
            problem = "connection ray needs the cluster's address; add `ray_address: HOST:PORT` at the top of the file"
        elif not is_node and ray_address is not None:
            problem = (
                "with ray_address every host is a node of that cluster; write `connection: ray`, or put "
                f"{name} into an inventory of its own"
            )
        else:
            continue
        line = origins[name]["connection"].line
        raise ConfigurationError(problem, file=place.path, line=line, key=f"hosts.{name}.connection")
