"""One host of a lab: a container with sshd and an engine, and what it pretends to be."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError
from docker.models.containers import Container
from docker.models.networks import Network

from orchestrator.config import Connection, Host
from orchestrator.environments import connect
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.commands import run_in
from orchestrator.hosts.connection import CommandOutput, Connections, HostConnectionError
from tests.lab.keys import IDENTITY, USER, read_host_keys

READY_TIMEOUT_S = 60.0
"""How long a host may take until its sshd and its engine answer; usually two seconds."""
_POLL_S = 0.1
_STORAGE_DRIVER = "overlay2"

_GIB = 1 << 30
MAX_HOSTS = 16
"""As many addresses as a lab hands out."""


@dataclass(frozen=True)
class Hardware:
    """The simulated hardware of one host."""

    cpu_model: str
    """What /proc/cpuinfo says there; the instructions are those of this machine."""
    memory_bytes: int
    """A real limit, and what /proc/meminfo says there."""
    gpu_generation: str
    """Only a label: no lab host has a GPU."""


_KINDS = (
    Hardware("Simulated Amber 7 CPU", 8 * _GIB, "ampere"),
    Hardware("Simulated Heron 9 CPU", 6 * _GIB, "hopper"),
    Hardware("Simulated Plain 1 CPU", 4 * _GIB, "none"),
)


def simulated_hardware(hosts: int) -> dict[str, Hardware]:
    """The hosts of a lab by name: `h1`, `h2`, …; from the fourth on the kinds repeat.

    Raises:
        ValueError: there are none, or more than `MAX_HOSTS`.
    """
    if not 1 <= hosts <= MAX_HOSTS:
        raise ValueError(f"a lab has 1 to {MAX_HOSTS} hosts, not {hosts}")
    return {f"h{number}": kind for number, kind in enumerate(islice(cycle(_KINDS), hosts), start=1)}


@dataclass(frozen=True)
class LabHost:
    """A host and what can be done to it. Nothing here waits for a host to notice, except where it says so."""

    name: str
    address: str
    hardware: Hardware
    directory: Path
    """With the keys of the lab."""
    container: Container
    network: Network

    def run(self, *argv: str, timeout_s: float = 30.0) -> CommandOutput:
        """Runs a command on the host over ssh, with the pinned key.

        Raises:
            HostConnectionError: ssh does not get there, or the time is up.
        """
        with self._connections() as connections:
            return connections.run(self.name, argv, timeout_s)

    @contextmanager
    def engine(self, timeout_s: float = 60.0) -> Iterator[DockerClient]:
        """A client of the host's engine, whose socket ssh forwards; `timeout_s` is for each answer.

        Raises:
            InfrastructureError: ssh or the engine does not answer.
        """
        with (
            self._connections() as connections,
            connections.forward_engine(self.name, 30, "/var/run/docker.sock") as forward,
            closing(connect(forward.address, timeout_s)) as client,
        ):
            yield client

    def pause(self) -> None:
        """Freezes the whole host; its connections stay open and say nothing."""
        self.container.pause()

    def unpause(self) -> None:
        """Lets a frozen host go on."""
        self.container.unpause()

    def kill(self) -> None:
        """Cuts the host's power: all that runs on it ends at once."""
        self.container.kill()

    def start(self) -> None:
        """Switches a killed host on, and waits until it is ready. Its address and its disk are as before."""
        self.container.start()
        self.wait_ready()

    def disconnect(self) -> None:
        """Pulls the network cable; the host goes on."""
        self.network.disconnect(self.container)

    def connect(self) -> None:
        """Plugs the network cable in again, with the same address."""
        self.network.connect(self.container, ipv4_address=self.address)

    def kill_engine(self) -> None:
        """Kills the engine; its containers go on, and the host starts it again by itself, which ends them."""
        self.sh("kill -KILL $(cat /run/docker.pid)")

    def stop_engine(self) -> None:
        """Ends the engine with its containers and waits for that; the host does not start it again."""
        self.sh("touch /run/lab/engine-off; kill $(cat /run/docker.pid) && while pidof dockerd; do sleep 0.05; done")

    def start_engine(self) -> None:
        """Starts a stopped engine, and waits until it answers."""
        self.sh("rm -f /run/lab/engine-off")
        self.wait_ready()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Returns when sshd takes the pinned key and the engine answers.

        Raises:
            InfrastructureError: that took too long, or the engine cannot use layers that share files.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            said = self._ready()
            if said == _STORAGE_DRIVER:
                return
            if said in ("vfs", "fuse-overlayfs", "btrfs", "zfs", "devicemapper"):
                raise InfrastructureError(
                    f"the engine in a lab host keeps images with {said}, not {_STORAGE_DRIVER}: put the store of this "
                    "machine's engine onto ext4 or xfs"
                )
            if time.monotonic() > deadline:
                log = self.container.logs(tail=15).decode(errors="replace")
                raise InfrastructureError(f"{self.name} is not ready after {timeout_s:.0f} s: {said}\n{log}")
            time.sleep(_POLL_S)

    def _ready(self) -> str:
        """The storage driver of the host's engine, or what went wrong."""
        try:
            done = self.run("docker", "info", "--format", "{{.Driver}}", timeout_s=10)
        except HostConnectionError as error:
            return str(error)
        return done.stdout.strip() if done.exit_code == 0 else done.stderr.strip()

    def _connections(self) -> Connections:
        entry = Host(
            connection=Connection.SSH,
            address=self.address,
            user=USER,
            identity_file=str(self.directory / IDENTITY),
            host_key=read_host_keys(self.directory)[self.name],
        )
        return Connections({self.name: entry})

    def sh(self, script: str) -> str:
        """Runs a script as root on the host, not over ssh."""
        done = run_in(self.container, ["sh", "-c", script])
        if done.exit_code != 0:
            called = f"{self.name}: {script.partition(';')[0]} …"
            raise InfrastructureError(f"{called}: exit code {done.exit_code}: {done.stderr.strip()}")
        return done.stdout


def state_of(container: Container, network: Network) -> str:
    """`running` if it also has its network, `disconnected` if not; else what the engine calls its state."""
    container.reload()
    if container.status != "running":
        return str(container.status)
    connected = container.attrs["NetworkSettings"]["Networks"]
    return "running" if network.name in connected else "disconnected"


def recover(host: LabHost) -> None:
    """Brings a host back that was paused, killed or disconnected, and waits until it is ready.

    Raises:
        InfrastructureError: it does not come back.
    """
    try:
        host.container.reload()
        if host.container.status == "paused":
            host.unpause()
        elif host.container.status != "running":
            host.container.start()
        if state_of(host.container, host.network) == "disconnected":
            host.connect()
    except APIError as error:
        raise InfrastructureError(f"{host.name}: {error.explanation}") from error
    host.wait_ready()
