"""What a lab owns on the engine: containers, a network and a volume, all of which carry its label. Nothing else is touched."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from docker.models.networks import Network
from docker.models.volumes import Volume
from docker.types import IPAMConfig, IPAMPool

from orchestrator.environments import engine_address
from orchestrator.errors import InfrastructureError

LABEL = "org.taxmeter.lab"
"""Its value is the name of the lab."""
LABEL_HOST = "org.taxmeter.lab.host"
LABEL_PLAN = "org.taxmeter.lab.plan"
"""Digest of what the lab was made from; another one means another lab."""
LABEL_OWNER = "org.taxmeter.lab.owner"
"""The process without which the lab is of no use to anybody; absent if it is to stay."""
LABEL_DIRECTORY = "org.taxmeter.lab.directory"
"""Where the keys of the lab are."""
_SUBNETS = tuple(IPv4Network(f"10.231.{third}.0/24") for third in range(77, 110))
_NARROW = 20
_ROUTES = Path("/proc/net/route")

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Objects:
    """What the engine has of labs."""

    containers: tuple[Container, ...]
    networks: tuple[Network, ...]
    volumes: tuple[Volume, ...]

    def labels(self) -> Iterator[Labels]:
        """The labels of each object."""
        for container in self.containers:
            yield container.labels
        for other in (*self.networks, *self.volumes):
            yield other.attrs.get("Labels") or {}

    def any(self) -> bool:
        """Whether there is anything."""
        return bool(self.containers or self.networks or self.volumes)


def find_objects(client: DockerClient, wanted: Callable[[Labels], bool]) -> Objects:
    """The objects of labs whose labels are `wanted`; containers in any state."""
    selected = {"label": LABEL}
    containers = client.containers.list(all=True, filters=selected, ignore_removed=True)
    return Objects(
        tuple(one for one in containers if wanted(one.labels)),
        tuple(one for one in client.networks.list(filters=selected) if wanted(one.attrs.get("Labels") or {})),
        tuple(one for one in client.volumes.list(filters=selected) if wanted(one.attrs.get("Labels") or {})),
    )


def remove_objects(objects: Objects) -> None:
    """Removes them; what is gone already is no error.

    Raises:
        InfrastructureError: somebody else's container uses a network or volume of the lab.
    """
    for container in objects.containers:
        _ignore_missing(partial(container.remove, force=True, v=True))
    for other in (*objects.networks, *objects.volumes):
        try:
            _ignore_missing(other.remove)
        except APIError as error:
            raise InfrastructureError(
                f"{other.name} cannot be removed: {error.explanation}; disconnect what uses it, then repeat"
            ) from error


def create_network(client: DockerClient, name: str, labels: Labels) -> tuple[Network, IPv4Network]:
    """A network with a subnet that neither the engine nor this machine's routes use.

    With a subnet of our choice a container keeps its address when it is disconnected and connected again.

    Raises:
        InfrastructureError: no subnet is free.
    """
    routed = list(routed_networks(_ROUTES.read_text(encoding="ascii") if _ROUTES.exists() else ""))
    for subnet in _SUBNETS:
        # a broader route is a site's or a VPN's; that of the bridge is narrower, so it wins
        if any(subnet.overlaps(other) and other.prefixlen >= _NARROW for other in routed):
            continue
        pool = IPAMPool(subnet=str(subnet), gateway=str(subnet[1]))
        try:
            network = client.networks.create(
                name, driver="bridge", labels=dict(labels), ipam=IPAMConfig(pool_configs=[pool]), check_duplicate=True
            )
        except APIError as error:
            if "overlap" in str(error.explanation).lower():
                continue
            raise
        return network, subnet
    raise InfrastructureError(f"no network from {_SUBNETS[0]} to {_SUBNETS[-1]} is free for a lab")


def routed_networks(table: str) -> Iterator[IPv4Network]:
    """The networks in a table of the form of /proc/net/route, without the default route."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        destination, mask = (IPv4Address(bytes.fromhex(fields[at])[::-1]) for at in (1, 7))
        if int(mask) != 0:
            yield IPv4Network(f"{destination}/{mask}", strict=False)


def unsuitable(client: DockerClient) -> str | None:
    """Why not, with what to do; None if it can."""
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "there is no ssh client: apt-get install openssh-client"
    if not engine_address().startswith("unix://"):
        return f"the engine at {engine_address()} is on another machine, whose containers have no address here"
    information = client.info()
    if information.get("OperatingSystem") == "Docker Desktop" or os.uname().sysname != "Linux":
        return "this machine does not reach the addresses of Docker Desktop's containers; use Linux"
    security = " ".join(information.get("SecurityOptions") or ())
    if "rootless" in security or "userns" in security:
        return "an engine in a container needs one outside that runs as root, neither rootless nor with userns-remap"
    components = {str(one.get("Name")) for one in client.version().get("Components") or ()}
    if any("podman" in name.lower() for name in components):
        return "Podman's containers have no place for another engine; use Docker"
    return None


def owner_of(process: int) -> str:
    """Names a process so that a later one with the same number is not taken for it.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        # the name, in parentheses, may hold anything
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        raise ProcessLookupError(f"no process {process}") from None
    return f"{process}:{fields[19]}"


def is_abandoned(labels: Labels) -> bool:
    """Whether a lab belonged to a process that has ended."""
    owner = labels.get(LABEL_OWNER)
    if owner is None:
        return False
    match = re.fullmatch(r"(\d+):\d+", owner)
    if match is None:
        return True
    try:
        return owner_of(int(match[1])) != owner
    except ProcessLookupError:
        return True


def current_owner() -> str:
    """The name of this process as an owner."""
    return owner_of(os.getpid())


def _ignore_missing(remove: Callable[[], object]) -> None:
    try:
        remove()
    except NotFound:
        return
    except APIError as error:
        # another process removes it at this moment
        if error.status_code != 409 or "already in progress" not in str(error.explanation):
            raise
