"""The machines of a lab, merged: what everything but the reading of the file works with."""

import fnmatch
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from pydantic import ConfigDict, Field

from orchestrator.config.documents import Source, StrictModel
from orchestrator.config.inventory_values import (
    Address,
    Alias,
    Engine,
    GpuPattern,
    HostKey,
    Jump,
    LocalPath,
    Pattern,
    Port,
    RemotePath,
    UserName,
    VersionRange,
    in_range,
)
from orchestrator.errors import ConfigurationError, NoUsableHostError, Say, did_you_mean, some_names

WORK_DIRECTORY = "/var/lib/taxmeter"
"""Where a host that is reached over SSH keeps our files, unless the inventory names another place."""

ALL: Final = "all"
"""In a limit: every host. No group may take this name."""

ROUTE = ("user", "port", "identity_file", "jump")
"""How an address is reached. For an alias the user's SSH configuration says all of it."""
OF_SSH = ("address", "ssh_alias", "host_key", "python", *ROUTE)


class Connection(Enum):
    """How a host is reached."""

    LOCAL = "local"
    """The machine on which the command runs."""
    SSH = "ssh"
    RAY = "ray"
    """A node of the Ray cluster at the inventory's `ray_address`."""


class ExecutorChoice(Enum):
    """What isolates the trials of a host."""

    AUTO = "auto"
    """A Docker engine if one answers, else virtual environments; the choice stands in every row."""
    DOCKER = "docker"
    PROCESS = "process"


class HostState(Enum):
    """Whether a host takes part."""

    ACTIVE = "active"
    DRAIN = "drain"
    """It takes no new trials."""


class Exclusive(Enum):
    """What runs one benchmark at a time."""

    HOST = "host"
    """The host: what runs on another GPU disturbs the processor's share of the work, which is what is measured."""
    GPU = "gpu"
    """Each GPU, with cores of its own; trials of processors still have the host for themselves."""


class Expectation(StrictModel):
    """What a host must be found to have; it is compared whenever the host is looked at."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    gpu_model: Pattern | None = None
    """Pattern that the name of each GPU matches, such as `NVIDIA A100*`."""
    gpu_count: int | None = Field(default=None, ge=0)
    """How many GPUs the driver shows."""
    driver: VersionRange | None = None
    """Versions of the NVIDIA driver, such as `>=535,<581`."""
    cpu_model: Pattern | None = None
    """Pattern that the processor's name matches, such as `*EPYC*`."""
    memory_bytes_min: int | None = Field(default=None, gt=0)
    """Least memory, in bytes; the kernel manages a little less than what is fitted."""

    def unmet(self, gpus: Sequence[str], driver: str | None, model: str | None, memory: int | None) -> list[str]:
        """In what a host is not as expected; what it does not tell is not as expected either."""
        wrong = []
        if self.gpu_count is not None and self.gpu_count != len(gpus):
            wrong.append(f"expected {self.gpu_count} GPUs, found {len(gpus)}")
        if self.gpu_model is not None:
            others = sorted({name for name in gpus if not fnmatch.fnmatchcase(name, self.gpu_model)})
            if others or not gpus:
                wrong.append(f"expected GPUs {self.gpu_model}, found {', '.join(others) or 'none'}")
        if self.driver is not None and (driver is None or not in_range(driver, self.driver)):
            wrong.append(f"expected driver {self.driver}, found {driver or 'none'}")
        if self.cpu_model is not None and (model is None or not fnmatch.fnmatchcase(model, self.cpu_model)):
            wrong.append(f"expected processor {self.cpu_model}, found {model or 'one without a name'}")
        least = self.memory_bytes_min
        if least is not None and (memory is None or memory < least):
            wrong.append(f"expected at least {least} bytes of memory, found {memory}")
        return wrong


class Faults(StrictModel):
    """How long a campaign waits for hosts that do not answer, in seconds."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    silence_s: int = Field(default=10, ge=3)
    """A task's host says every second that it lives; if it says nothing for so many seconds, it is lost."""
    return_s: int = Field(default=300, gt=0)
    """Once nothing else is left to do, a lost host has been waited for so many seconds, and is given up."""
    queue_s: int = Field(default=120, gt=0)
    """A host on which a task has not begun after so many seconds is lost."""


class Settings(StrictModel):
    """What may stand in the defaults, in a group and at a host; null is what nobody says."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    connection: Connection | None = None
    """`local`: the machine on which the command runs. `ssh`: another one. `ray`: a node of the cluster at
    `ray_address`."""
    user: UserName | None = None
    """Who logs in; by default your own name. The user must be allowed to use the engine (group docker)."""
    port: Port | None = None
    """Of the host's SSH server; by default 22."""
    identity_file: LocalPath | None = None
    """Path of a private key on this machine; by default those that ssh tries, and your agent's."""
    jump: Jump | None = None
    """What the connection goes through: `[user@]host[:port]`, or the name of another host of this file."""
    executor: ExecutorChoice | None = None
    """`auto` (default): a container engine if one answers, else virtual environments. `docker` demands an engine."""
    engine: Engine | None = None
    """`docker` (default), `podman` or a socket as `unix:///path`, on that host."""
    python: RemotePath | None = None
    """Of a host over SSH that has no engine: the interpreter there in which all trials run, without containers."""
    work_directory: RemotePath | None = None
    """Where that host keeps our files; by default /var/lib/taxmeter."""
    reserved_cores: int | None = Field(default=None, ge=0)
    """Cores kept for the agent; the trials run on the others. By default none."""
    exclusive: Exclusive | None = None
    """What runs one benchmark at a time: the `host` (default), or each `gpu` with cores of its own."""
    gpus: tuple[GpuPattern, ...] | None = None
    """GPUs that trials may use, by default all: UUIDs as `nvidia-smi -L` prints them, patterns such as `GPU-1f*`,
    its numbers, or ranges such as `0-3`. An empty list: none."""
    labels: Mapping[str, str | None] | None = None
    """Names and values by which a sweep's `targets` select hosts; merged by name, null removes one."""
    state: HostState | None = None
    """`active` (default), or `drain`: the host takes no new trials."""
    expect: Expectation | None = None
    """What must be found on the host; merged by key, null removes one."""


class HostEntry(Settings):
    """One machine. What can be detected (processors, memory, GPUs) does not stand here."""

    address: Address | None = None
    """Name or IP address."""
    ssh_alias: Alias | None = None
    """Instead of an address: a Host of your SSH configuration, which then says how it is reached."""
    host_key: HostKey | None = None
    """The key by which the host is known, from `taxmeter hosts key NAME`. Without it your known_hosts decides."""


class Host(HostEntry):
    """One machine, with all that its groups and the defaults say. Of `local`, `engine` is an address of the engine."""

    connection: Connection
    executor: ExecutorChoice = ExecutorChoice.AUTO
    reserved_cores: int = Field(default=0, ge=0)
    exclusive: Exclusive = Exclusive.HOST
    labels: dict[str, str] = Field(default_factory=dict)
    state: HostState = HostState.ACTIVE
    expect: Expectation = Expectation()

    @property
    def can_do_without_containers(self) -> bool:
        """Whether trials may run there as plain processes."""
        return self.connection is not Connection.SSH or self.python is not None


@dataclass(frozen=True)
class Origin:
    """Where a setting of a host comes from."""

    level: str
    """`defaults`, `group NAME` or `host`."""
    line: int


@dataclass(frozen=True)
class Inventory:
    """The fleet, as a file says it. A command reads it once."""

    hosts: Mapping[str, Host]
    """By name, in the order of the file: also those that take no part, or that others are only reached through."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The hosts of each group, by their names."""
    faults: Faults = field(default_factory=Faults)
    ray_address: str | None = None
    """Of somebody's Ray cluster, whose nodes the hosts are; null where they are reached otherwise."""
    file: Source = field(default_factory=Source)
    """The file and its text, which is stored with a campaign."""
    origins: Mapping[str, Mapping[str, Origin]] = field(default_factory=dict)
    """By host and setting, such as `user` or `labels.rack`, where it stands; what is missing is built in."""

    def error(self, problem: str, *location: int | str) -> ConfigurationError:
        """An error that names the file, and the line of a key such as `"hosts", "a100-01", "gpus"`."""
        return self.file.error(problem, *location)


def problem_of(values: Mapping[str, Any]) -> tuple[str | None, str] | None:
    """Why the settings of a host do not fit each other, and the key that is to blame (null: the host); else None."""
    foreign = next((key for key in OF_SSH if key in values), None)
    if values["connection"] is Connection.LOCAL:
        if foreign is not None:
            return foreign, f"connection local takes no {foreign}; remove it or write `connection: ssh`"
        return None
    if values["connection"] is Connection.RAY:
        if foreign == "python":
            return foreign, "connection ray takes no python: trials run where the node of Ray runs; remove it"
        if foreign is not None:
            return foreign, f"connection ray takes no {foreign}: its node of Ray is found by the host's name; remove it"
        return _engine_problem(values, "node of Ray")
    if "address" not in values and "ssh_alias" not in values:
        return None, (
            "connection ssh needs an address; add `address: name-or-ip`, or `ssh_alias:` with a Host of your SSH "
            "configuration"
        )
    if "address" in values and "ssh_alias" in values:
        return "ssh_alias", "address and ssh_alias exclude each other; keep one"
    if "ssh_alias" in values:
        foreign = next((key for key in ROUTE if key in values), None)
        if foreign is not None:
            return foreign, f"with ssh_alias your SSH configuration says the {foreign}; remove it, or give an address"
    if "python" in values:
        return _python_problem(values)
    return _engine_problem(values, "host that is reached over SSH")


def _python_problem(values: Mapping[str, Any]) -> tuple[str, str] | None:
    if "engine" in values:
        return "engine", "with python no engine is used there; keep one of the two"
    if values.get("executor") is ExecutorChoice.DOCKER:
        return "executor", "with python trials run without containers; write `executor: process`, or remove python"
    if values.get("exclusive") is Exclusive.GPU:
        return "exclusive", "with python one task runs there at a time; write `exclusive: host`, or remove python"
    return None


def _engine_problem(values: Mapping[str, Any], of: str) -> tuple[str, str] | None:
    engine = values.get("engine")
    if engine is not None and "://" in engine and not engine.startswith("unix:///"):
        return "engine", f"the engine of a {of} is docker, podman or a socket there, as unix:///path"
    return None


def local_engine(engine: str | None) -> str | None:
    """The address of an engine of this machine; null for DOCKER_HOST or the usual socket."""
    if engine == "podman":
        user = os.geteuid()
        return f"unix:///run/{'' if user == 0 else f'user/{user}/'}podman/podman.sock"
    return None if engine == "docker" else engine


def select_hosts(inventory: Inventory, limit: str | None) -> dict[str, Host]:
    """The hosts that a limit leaves over.

    Args:
        limit: names, groups and patterns joined by `:`, such as `ampere:!a100-07`; a leading `!` excludes, `&` keeps
            only those that are also there. None keeps every host.
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
        raise ConfigurationError(f"--limit {limit} leaves no host; known: {some_names(inventory.hosts)}")
    return left


def groups_of(name: str, inventory: Inventory) -> list[str]:
    """The groups of a host, in the order of the file."""
    return [group for group, hosts in inventory.groups.items() if name in hosts]


def active_hosts(hosts: Mapping[str, Host], say: Say) -> dict[str, Host]:
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
            f"no host takes new trials: the state of {some_names(hosts)} is drain; write `state: active` for one"
        )
    return active


def refuse_nodes(hosts: Mapping[str, Host], inventory: Inventory) -> None:
    """Refuses hosts that are nodes of somebody's Ray cluster, where a command reaches hosts in another way."""
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
        known = did_you_mean(term, [*inventory.groups, *inventory.hosts])
        raise ConfigurationError(f"--limit {limit}: no {what} is called {term}; {known}")
    return hosts.union(*(inventory.groups[group] for group in groups))
