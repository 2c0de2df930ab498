"""The file as people write it: every setting may stand in the defaults, in a group or at the host."""

from typing import Literal

from pydantic import ConfigDict, Field

from orchestrator.config.documents import Document, StrictModel
from orchestrator.config.inventory.model import Connection, Exclusive, ExecutorChoice, Expectation, Faults, HostState
from orchestrator.config.inventory.values import (
    Address,
    Alias,
    Engine,
    GpuPattern,
    GroupName,
    HostKey,
    HostName,
    Jump,
    LocalPath,
    Pattern,
    Port,
    RayAddress,
    RemotePath,
    UserName,
)

OF_VERSION_1 = frozenset({"connection", "address", "executor", "engine", "labels", "reserved_cores"})
"""What a host could have in version 1, which knew hosts alone."""


class _Settings(StrictModel):
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
    work_directory: RemotePath | None = None
    """Where that host keeps our files; by default /var/lib/taxmeter."""
    reserved_cores: int | None = Field(default=None, ge=0)
    """Cores kept for the agent; the trials run on the others. By default none."""
    exclusive: Exclusive | None = None
    """What runs one benchmark at a time: the `host` (default), or each `gpu` with cores of its own."""
    gpus: tuple[GpuPattern, ...] | None = None
    """GPUs that trials may use, by default all: UUIDs as `nvidia-smi -L` prints them, patterns such as `GPU-1f*`,
    its numbers, or ranges such as `0-3`. An empty list: none."""
    labels: dict[str, str | None] | None = None
    """Names and values by which a sweep's `targets` select hosts; merged by name, null removes one."""
    state: HostState | None = None
    """`active` (default), or `drain`: the host takes no new trials."""
    expect: Expectation | None = None
    """What must be found on the host; merged by key, null removes one."""


class Defaults(_Settings):
    """Settings of every host, unless a group or the host says otherwise."""


class Group(_Settings):
    """Hosts that share settings, and are selected by the group's name."""

    hosts: tuple[Pattern, ...] = Field(min_length=1)
    """Names of hosts, or patterns such as `a100-*`."""


class HostEntry(_Settings):
    """One machine. What can be detected (processors, memory, GPUs) does not stand here."""

    address: Address | None = None
    """Name or IP address."""
    ssh_alias: Alias | None = None
    """Instead of an address: a Host of your SSH configuration, which then says how it is reached."""
    host_key: HostKey | None = None
    """The key by which the host is known, from `taxmeter hosts key NAME`. Without it your known_hosts decides."""


class InventoryDocument(Document):
    """The machines of a lab. A setting of a host wins over its groups, a later group over an earlier one, and any
    of them over the defaults."""

    model_config = ConfigDict(use_attribute_docstrings=True, title="taxmeter host inventory")

    version: Literal[1, 2]
    """Of this format: 2. Version 1 had hosts alone."""
    defaults: Defaults = Defaults()
    faults: Faults = Faults()
    """How long hosts are waited for that do not answer."""
    ray_address: RayAddress | None = None
    """HOST:PORT of a Ray cluster that is kept by somebody else, or `auto`. All hosts are then nodes of it: each the one
    whose label `taxmeter-host` is the host's name."""
    groups: dict[GroupName, Group] = Field(default_factory=dict)
    hosts: dict[HostName, HostEntry] = Field(min_length=1)
