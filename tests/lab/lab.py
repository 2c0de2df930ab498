"""A lab on one machine: hosts as containers, each with an engine, sshd, an address and simulated hardware of its own.

lab = Lab()                      # the lab of `make lab`; it stays until `make lab-down`
with Lab.of_this_process(directory) as lab:    # one of a test, reaped by the next lab if the test is killed
    lab.up(hosts=3)
    lab.host("h2").pause()
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path

from docker import DockerClient
from docker.models.networks import Network
from docker.types import LogConfig

from orchestrator.environments import TRANSFER_TIMEOUT_S, connect, engine_errors
from orchestrator.errors import InfrastructureError
from tests.lab.host import Hardware, LabHost, recover, simulated_hardware, state_of
from tests.lab.image import DIRECTORY, PROJECT, ensure_lab_image
from tests.lab.inventory import inventory_text
from tests.lab.keys import IDENTITY, give_host_key, make_key, read_host_keys, write_keys
from tests.lab.objects import (
    LABEL,
    LABEL_DIRECTORY,
    LABEL_HOST,
    LABEL_OWNER,
    LABEL_PLAN,
    Labels,
    create_network,
    current_owner,
    find_objects,
    is_abandoned,
    remove_objects,
    unsuitable,
)
from tests.lab.stores import seed_hosts

DEFAULT_NAME = "lab"
DEFAULT_DIRECTORY = PROJECT / ".taxmeter" / "lab"
DEFAULT_INVENTORY = DIRECTORY / "hostinventory.yaml"
_FIRST_ADDRESS = 10


@dataclass(frozen=True)
class HostStatus:
    """How a host is."""

    name: str
    address: str
    state: str
    """`running`, `disconnected`, `paused`, `exited`, …"""
    labels: str
    """Of the simulated hardware."""


class Lab:
    """A lab of this machine. At most one of a name exists, whoever made it."""

    def __init__(
        self,
        name: str = DEFAULT_NAME,
        directory: Path = DEFAULT_DIRECTORY,
        inventory: Path = DEFAULT_INVENTORY,
        owner: str | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """A lab that may be up already or not; nothing happens yet.

        Args:
            name: tells labs of one machine apart.
            directory: gets the keys; nobody else may read it, and it goes with the lab.
            inventory: the file that `up` writes.
            owner: the process whose end makes the lab waste, of the form of `objects.owner_of`; None if it stays.
            say: told about long steps.
        """
        self.name = name
        self.directory = directory.absolute()
        self._inventory = inventory.absolute()
        self._owner = owner
        self._say = say

    @classmethod
    def of_this_process(cls, directory: Path, say: Callable[[str], None] = print) -> "Lab":
        """A lab beside all others that is useless once this process has ended; its files are below `directory`."""
        name = f"test-{os.getpid()}-{hashlib.sha256(str(directory.absolute()).encode()).hexdigest()[:6]}"
        return cls(name, directory / "lab", directory / "hostinventory.yaml", current_owner(), say)

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self, hosts: int = 3) -> None:
        """Brings the lab up, or back to what it was; returns when every host answers over ssh.

        A lab of the same making is kept with its images, and hosts of it that were paused, killed or disconnected come
        back. Anything else of that name, and labs whose process has ended, are removed first.

        Raises:
            InfrastructureError: the engine of this machine cannot carry a lab, or the lab does not come up.
            ValueError: `hosts` is not a number of hosts that a lab can have.
        """
        hardware = simulated_hardware(hosts)
        with self._engine() as client:
            problem = unsuitable(client)
            if problem is not None:
                raise InfrastructureError(f"no lab is possible here: {problem}")
            image = ensure_lab_image(client, self._say)
            with self._locked():
                self._refuse_foreign_directory(client)
                remove_objects(find_objects(client, is_abandoned))
                plan = _digest([image, {name: asdict(kind) for name, kind in hardware.items()}])
                if not self._come_back(client, plan, hardware):
                    self._remove(client)
                    self._create(client, image, plan, hardware)
                partial = self._inventory.with_name(f".{self._inventory.name}.partial")
                text = inventory_text(self._hosts(client), read_host_keys(self.directory), self.directory)
                partial.write_text(text, encoding="utf-8")
                partial.replace(self._inventory)

    def down(self) -> None:
        """Removes all of the lab: containers in any state, network, stores, keys, inventory. The image stays.

        Raises:
            InfrastructureError: something of it cannot be removed.
        """
        with self._engine() as client, self._locked():
            self._remove(client)

    def status(self) -> tuple[HostStatus, ...]:
        """How each host is; empty if the lab is down."""
        with self._engine() as client:
            return tuple(
                HostStatus(
                    host.name,
                    host.address,
                    state_of(host.container, host.network),
                    f"{host.hardware.gpu_generation}, {host.hardware.memory_bytes >> 30} GiB, {host.hardware.cpu_model}",
                )
                for host in self._hosts(client)
            )

    def hosts(self) -> tuple[LabHost, ...]:
        """The hosts that are there, in the order of their names; empty if the lab is down."""
        client = connect()
        try:
            return self._hosts(client)
        finally:
            # its pool only; a host opens a new connection when it needs one
            client.close()

    def host(self, name: str) -> LabHost:
        """One host.

        Raises:
            KeyError: there is none of that name.
        """
        return {host.name: host for host in self.hosts()}[name]

    def inventory(self) -> Path:
        """The inventory of the lab that is up."""
        return self._inventory

    def seed(self, images: Sequence[str]) -> None:
        """Gives images of this machine's engine to all hosts.

        Raises:
            InfrastructureError: this machine lacks one, or a host is not ready.
        """
        with self._engine() as client, self._locked():
            volume = client.volumes.get(self._object_name())
            stores = (ensure_lab_image(client, self._say), Path(volume.attrs["Mountpoint"]))
            seed_hosts(client, self._hosts(client), images, stores, {LABEL: self.name, **self._labels("")})

    def _create(self, client: DockerClient, image: str, plan: str, hardware: Mapping[str, Hardware]) -> None:
        self._say(f"starting {len(hardware)} lab hosts")
        labels = self._labels(plan)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        client_key = make_key(self.directory / IDENTITY, f"taxmeter-{self.name}")
        addresses, keys = start_hosts(client, self._object_name(), image, hardware, labels, client_key)
        write_keys(self.directory, addresses, keys)
        for host in self._hosts(client):
            host.wait_ready()

    def _come_back(self, client: DockerClient, plan: str, hardware: Mapping[str, Hardware]) -> bool:
        """Whether the lab of this plan is there and every host of it answers, after what it takes."""
        hosts = self._hosts(client)
        if {host.name for host in hosts} != set(hardware) or not read_host_keys(self.directory):
            return False
        if any(host.container.labels.get(LABEL_PLAN) != plan for host in hosts):
            return False
        try:
            for host in hosts:
                recover(host)
        except InfrastructureError as error:
            self._say(f"the lab is made anew: {error}")
            return False
        return True

    def _hosts(self, client: DockerClient) -> tuple[LabHost, ...]:
        found = find_objects(client, self._is_ours)
        containers = {c.labels[LABEL_HOST]: c for c in found.containers if LABEL_HOST in c.labels}
        if not found.networks:
            return ()
        network: Network = found.networks[0]
        hardware = simulated_hardware(max(len(containers), 1))
        names = sorted(containers.keys() & hardware.keys(), key=lambda name: int(name.removeprefix("h")))
        subnet = IPv4Network(network.attrs["IPAM"]["Config"][0]["Subnet"])
        return tuple(
            LabHost(name, address_of(subnet, name), hardware[name], self.directory, containers[name], network)
            for name in names
        )

    def _remove(self, client: DockerClient) -> None:
        remove_objects(find_objects(client, self._is_ours))
        self._inventory.unlink(missing_ok=True)
        if self.directory.exists():
            shutil.rmtree(self.directory)

    def _refuse_foreign_directory(self, client: DockerClient) -> None:
        for labels in find_objects(client, self._is_ours).labels():
            other = labels.get(LABEL_DIRECTORY, str(self.directory))
            if other != str(self.directory) and Path(other).exists():
                raise InfrastructureError(f"the lab {self.name!r} of {other} is up on this machine; take it down first")

    def _is_ours(self, labels: Labels) -> bool:
        return labels.get(LABEL) == self.name

    def _labels(self, plan: str) -> dict[str, str]:
        labels = {LABEL: self.name, LABEL_PLAN: plan, LABEL_DIRECTORY: str(self.directory)}
        return labels if self._owner is None else labels | {LABEL_OWNER: self._owner}

    def _object_name(self) -> str:
        return f"taxmeter-{self.name}"

    @contextmanager
    def _engine(self) -> Iterator[DockerClient]:
        # with a host go gigabytes of layers, which takes minutes on a busy machine
        patient = closing(connect(timeout_s=TRANSFER_TIMEOUT_S))
        with engine_errors(f"the engine failed under the lab {self.name!r}"), patient as client:
            yield client

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lets one process at a time change the lab."""
        lock = self.directory.with_name(f"{self.directory.name}.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("a") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def start_hosts(
    client: DockerClient, name: str, image: str, hardware: Mapping[str, Hardware], labels: Labels, client_key: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Starts the hosts, which are not ready yet then. Returns their addresses and the public halves of their host keys.

    Args:
        client: this machine's engine.
        name: of network and volume; the names of the containers begin with it.
        image: what the containers run.
        hardware: of each host, by name.
        labels: of everything that is created.
        client_key: the public key that the hosts let in.

    Raises:
        InfrastructureError: no subnet is free, or ssh-keygen fails.
        docker.errors.APIError: the engine refuses.
    """
    network, subnet = create_network(client, name, labels)
    volume = client.volumes.create(name, labels=dict(labels))
    addresses = {host: address_of(subnet, host) for host in hardware}
    keys: dict[str, str] = {}
    for host, kind in hardware.items():
        container = client.containers.create(
            image,
            name=f"{name}-{host}",
            hostname=host,
            labels={**labels, LABEL_HOST: host},
            init=True,
            # Not privileged: that would ask for a capability which not every engine may pass on.
            cap_add=["ALL"],
            cap_drop=["SYS_RESOURCE"],
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            environment={"LAB_CPU_MODEL": kind.cpu_model, "LAB_MEMORY_KIB": str(kind.memory_bytes >> 10)},
            mem_limit=kind.memory_bytes,
            # Below one directory, because files of different mounts cannot be linked.
            volumes={f"{volume.attrs['Mountpoint']}/{host}": {"bind": "/var/lib/docker", "mode": "rw"}},
            log_config=LogConfig(type="json-file", config={"max-size": "10m"}),
            network=network.name,
            networking_config={network.name: client.api.create_endpoint_config(ipv4_address=addresses[host])},
        )
        keys[host] = give_host_key(container, host, client_key)
        container.start()
    return addresses, keys


def address_of(subnet: IPv4Network, host: str) -> str:
    """The address of a host of a lab: the same whenever it is started."""
    return str(subnet[_FIRST_ADDRESS - 1 + int(host.removeprefix("h"))])
