"""Makes what a lab consists of: a network, a volume for the stores of the engines, and a container for each host."""

from collections.abc import Mapping
from ipaddress import IPv4Network

from docker import DockerClient
from docker.types import LogConfig

from tests.lab.hardware import Hardware
from tests.lab.keys import give_host_key
from tests.lab.objects import LABEL_HOST, Labels, create_network

_FIRST_ADDRESS = 10


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
