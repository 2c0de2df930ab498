"""The machines of a lab, merged: what everything but the reading of the file works with."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from orchestrator.config.documents import Source, StrictModel
from orchestrator.config.inventory.values import (
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
)
from orchestrator.errors import ConfigurationError

WORK_DIRECTORY = "/var/lib/taxmeter"
"""Where a host that is reached over SSH keeps our files, unless the inventory names another place."""

ROUTE = ("user", "port", "identity_file", "jump")
"""How an address is reached. For an alias the user's SSH configuration says all of it."""
OF_SSH = ("address", "ssh_alias", "host_key", *ROUTE)


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


class Faults(StrictModel):
    """How long a campaign waits for hosts that do not answer, in seconds."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    silence_s: int = Field(default=10, ge=3)
    """A task's host says every second that it lives; if it says nothing for so many seconds, it is lost."""
    return_s: int = Field(default=300, gt=0)
    """Once nothing else is left to do, a lost host has been waited for so many seconds, and is given up."""
    queue_s: int = Field(default=120, gt=0)
    """A host on which a task has not begun after so many seconds is lost."""


class Host(StrictModel):
    """One machine."""

    connection: Connection
    address: Address | None = None
    """Name or address for `ssh`."""
    ssh_alias: Alias | None = None
    """Instead of an address: a Host of the user's SSH configuration, which then says how it is reached."""
    user: UserName | None = None
    port: Port | None = None
    identity_file: LocalPath | None = None
    jump: Jump | None = None
    host_key: HostKey | None = None
    """The key by which the host is known; null leaves it to the user's known_hosts."""
    executor: ExecutorChoice = ExecutorChoice.AUTO
    engine: Engine | None = None
    """`local`: its address, null for DOCKER_HOST or the usual socket. `ssh`: docker (also if null), podman or a socket
    as `unix:///path` on that host."""
    work_directory: RemotePath | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    """Names and values by which a sweep's `targets` select hosts."""
    reserved_cores: int = Field(default=0, ge=0)
    """Cores kept for the agent; the trials run on the others."""
    exclusive: Exclusive = Exclusive.HOST
    gpus: tuple[GpuPattern, ...] | None = None
    """The GPUs that trials may use: patterns of UUIDs, numbers or ranges of them; null for all, empty for none."""
    state: HostState = HostState.ACTIVE
    expect: Expectation = Expectation()

    @model_validator(mode="after")
    def _keys_fit_connection(self) -> "Host":
        values = {name: getattr(self, name) for name in type(self).model_fields}
        problem = problem_of({name: value for name, value in values.items() if value is not None})
        if problem is not None:
            raise ValueError(problem[1])
        return self


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
    """Why the settings of a host do not fit each other, and the key that is to blame (null: the host); else None.

    Args:
        values: by key, without those that are null.
    """
    if values["connection"] is Connection.LOCAL:
        foreign = next((key for key in OF_SSH if key in values), None)
        if foreign is not None:
            return foreign, f"connection local takes no {foreign}; remove it or write `connection: ssh`"
        return None
    if values["connection"] is Connection.RAY:
        foreign = next((key for key in OF_SSH if key in values), None)
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
    return _engine_problem(values, "host that is reached over SSH")


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
