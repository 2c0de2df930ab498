"""The machines of a lab: `hostinventory.yaml`.

The inventory holds what cannot be detected. What a host is made of (CPU, memory, GPU, driver) is read from the
host itself whenever it is used.
"""

import fnmatch
import re
import subprocess
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from orchestrator.documents import StrictModel, line_of_key, load_yaml
from orchestrator.errors import ConfigurationError


class Connection(Enum):
    """How a host is reached."""

    LOCAL = "local"
    """The machine on which the command runs."""
    SSH = "ssh"


class ExecutorChoice(Enum):
    """What isolates the trials of a host."""

    AUTO = "auto"
    """A Docker engine if one answers, else virtual environments; the choice stands in every row."""
    DOCKER = "docker"
    PROCESS = "process"


def _host_name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name):
        raise ValueError(f"a host name consists of a-z, 0-9, '-' and '.', not {name!r}")
    return name


HostName = Annotated[str, AfterValidator(_host_name)]


class Host(StrictModel):
    """One machine."""

    connection: Connection
    address: str | None = None
    """Name or address for `ssh`."""
    executor: ExecutorChoice = ExecutorChoice.AUTO
    engine: str | None = None
    """Address of the engine, such as `unix:///run/docker.sock`; by default DOCKER_HOST, or the usual socket."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Names and values by which a sweep's `targets` select hosts."""
    reserved_cores: int = Field(default=0, ge=0)
    """Cores kept for the agent; the trials run on the others."""

    @model_validator(mode="after")
    def _address_fits_connection(self) -> "Host":
        if self.connection is Connection.SSH and self.address is None:
            raise ValueError("connection ssh needs an address; add `address: name-or-ip`")
        if self.connection is Connection.LOCAL and self.address is not None:
            raise ValueError("connection local takes no address; remove it or write `connection: ssh`")
        return self


class Inventory(StrictModel):
    """The fleet."""

    version: int = Field(ge=1, le=1)
    hosts: dict[HostName, Host] = Field(min_length=1)


def load_inventory(path: Path) -> Inventory:
    """Reads an inventory.

    Raises:
        ConfigurationError: the file is missing or wrong, or two of its hosts are this machine.
    """
    inventory = load_yaml(path, Inventory)
    local = [name for name, host in inventory.hosts.items() if host.connection is Connection.LOCAL]
    if len(local) > 1:
        raise ConfigurationError(
            f"{' and '.join(local)} are both this machine; two benchmarks at once would disturb each other, keep one",
            file=path,
            line=line_of_key(path, ("hosts", local[1])),
            key=f"hosts.{local[1]}.connection",
        )
    return inventory


def select_hosts(inventory: Inventory, limit: str | None) -> dict[str, Host]:
    """The hosts that a limit leaves over.

    Args:
        inventory: the fleet.
        limit: patterns joined by `:`, such as `a100-*:!a100-07`; a leading `!` excludes. None keeps every host.

    Raises:
        ConfigurationError: a pattern matches no host, or none is left.
    """
    if limit is None:
        return dict(inventory.hosts)
    chosen: set[str] = set()
    dropped: set[str] = set()
    patterns = [part for part in re.split(r"[:,]", limit) if part]
    for pattern in patterns:
        matched = set(fnmatch.filter(inventory.hosts, pattern.removeprefix("!")))
        if not matched:
            raise ConfigurationError(
                f"--limit {limit}: no host is called {pattern.removeprefix('!')}; known: {', '.join(inventory.hosts)}"
            )
        (dropped if pattern.startswith("!") else chosen).update(matched)
    if all(pattern.startswith("!") for pattern in patterns):
        chosen = set(inventory.hosts)
    left = {name: host for name, host in inventory.hosts.items() if name in chosen - dropped}
    if not left:
        raise ConfigurationError(f"--limit {limit} leaves no host; known: {', '.join(inventory.hosts)}")
    return left


def unreachable_reason(host: Host) -> str | None:
    """Why a host cannot be reached, in one line; None if it can. Tries for five seconds at most."""
    if host.connection is Connection.LOCAL:
        return None
    assert host.address is not None
    command = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", host.address, "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        return "no ssh client on this machine; install one (Debian: openssh-client)"
    except subprocess.TimeoutExpired:
        return "ssh gave no answer within 10 s"
    return None if done.returncode == 0 else " ".join(done.stderr.split()) or f"ssh exit code {done.returncode}"
