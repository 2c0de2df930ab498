"""Reads `hostinventory.yaml`: checked as a whole, merged, and with the line of every setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.config.documents import Location, Source, did_you_mean, load_yaml
from orchestrator.config.inventory.document import OF_VERSION_1, InventoryDocument
from orchestrator.config.inventory.merging import Places, members, merge, nested
from orchestrator.config.inventory.model import Connection, Host, Inventory, Origin, local_engine, problem_of
from orchestrator.config.inventory.secrets import secret_in
from orchestrator.config.inventory.values import local_path
from orchestrator.errors import ConfigurationError

MACHINE_LABELS = ("gpu_model", "gpu_count", "driver", "architecture")
"""Labels that are read off a host and that nobody sets: a label that people typed can be wrong."""

ALL = "all"
"""In a limit: every host. No group may take this name."""


def load_inventory(path: Path | Source) -> Inventory:
    """Reads an inventory: a file, or the text of one that a store has.

    Raises:
        ConfigurationError: the file is missing or wrong, holds a secret, or names one machine twice.
    """
    source = Source.read(path) if isinstance(path, Path) else path
    found = secret_in(source.tree)
    if found is not None:
        location, kind = found
        raise source.error(
            f"{kind} has no place here: the inventory is stored with every campaign. Remove it, change it where it is "
            "valid, and log in with a key that ssh knows (`identity_file:` names its file)",
            *location,
        )
    document = load_yaml(source, InventoryDocument)
    if document.version == 1:
        _refuse_later_keys(document, source)
    groups = {name: _members(name, document, source) for name in document.groups}
    hosts: dict[str, Host] = {}
    stands: dict[str, Places] = {}
    origins: dict[str, dict[str, Origin]] = {}
    for name in document.hosts:
        values, places = merge(name, document, groups)
        hosts[name] = _host(name, values, places, source)
        stands[name] = places
        origins[name] = {key: Origin(_level(where), source.line(*where)) for key, where in places.items()}
    _refuse_one_machine_twice(hosts, source)
    _refuse_endless_jumps(hosts, stands, source)
    _refuse_mixed_clusters(hosts, origins, document.ray_address, source)
    return Inventory(hosts, groups, document.faults, document.ray_address, source, origins)


def _refuse_later_keys(document: InventoryDocument, source: Source) -> None:
    later = [(key,) for key in sorted(document.model_fields_set - {"version", "hosts"})]
    for name, entry in document.hosts.items():
        later += [("hosts", name, key) for key in sorted(entry.model_fields_set - OF_VERSION_1)]  # type: ignore[misc]
    if later:
        raise source.error("this key came with version 2; write `version: 2`", *later[0])


def _members(group: str, document: InventoryDocument, source: Source) -> tuple[str, ...]:
    hosts = list(document.hosts)
    if group in document.hosts or group == ALL:
        what = "every host" if group == ALL else "a host"
        raise source.error(f"{group} means {what} in --limit; call the group something else", "groups", group)
    patterns = document.groups[group].hosts
    for number, pattern in enumerate(patterns):
        if not members([pattern], hosts):
            problem = f"no host is called {pattern}; {did_you_mean(pattern, hosts)}"
            raise source.error(problem, "groups", group, "hosts", number)
    return members(patterns, hosts)


def _host(name: str, values: dict[str, Any], places: Mapping[str, Location], source: Source) -> Host:
    if "connection" not in values:
        raise source.error("this key is missing; add `connection: ssh` or `local`", "hosts", name, "connection")
    problem = problem_of(values)
    if problem is not None:
        key, text = problem
        raise source.error(text, *(("hosts", name) if key is None else places[key]))
    _refuse_facts(places, source)
    _refuse_unknown_home(values, places, source)
    if values["connection"] is Connection.LOCAL:
        values = values | {"engine": local_engine(values.get("engine"))}
    return Host(**nested(values))


def _refuse_facts(places: Mapping[str, Location], source: Source) -> None:
    for name in MACHINE_LABELS:
        where = places.get(f"labels.{name}")
        if where is not None:
            raise source.error(
                f"{name} is read off the host, and no label to set; remove it (what must be found stands in `expect:`)",
                *where,
            )


def _refuse_unknown_home(values: Mapping[str, Any], places: Mapping[str, Location], source: Source) -> None:
    home = str(local_path(values.get("identity_file", ""))).partition("/")[0]
    if home.startswith("~"):
        raise source.error(
            f"{home} is no home directory of this machine; write the whole path of the key", *places["identity_file"]
        )


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


def _refuse_endless_jumps(hosts: Mapping[str, Host], stands: Mapping[str, Places], source: Source) -> None:
    for name in hosts:
        way = [name]
        while (jump := hosts[way[-1]].jump) is not None and jump in hosts:
            if jump in way:
                raise _circle(way[way.index(jump) :], stands, source)
            if hosts[jump].connection is Connection.LOCAL:
                raise source.error(
                    f"{jump} is this machine, so there is nothing to jump over", *stands[way[-1]]["jump"]
                )
            way.append(jump)


def _circle(circle: Sequence[str], stands: Mapping[str, Places], source: Source) -> ConfigurationError:
    where = [stands[name]["jump"] for name in circle]
    # A jump that a host inherits is more likely the mistake than one that was written for it.
    inherited = [one for one in where if one[0] != "hosts"]
    return source.error(
        f"these jumps lead in a circle: {' → '.join([*circle, circle[0]])}; write `jump: null` at the host that is "
        "reached without one",
        *(inherited or where)[0],
    )


def _refuse_mixed_clusters(
    hosts: Mapping[str, Host], origins: Mapping[str, Mapping[str, Origin]], ray_address: str | None, source: Source
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
        raise ConfigurationError(problem, file=source.path, line=line, key=f"hosts.{name}.connection")
