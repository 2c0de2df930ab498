"""A short container on a host, like the agent's: do both sides reach each other, and what will an agent see there?"""

import json
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from docker import DockerClient
from docker.errors import APIError

from orchestrator.environments import engine_message
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.plan import LABEL, LABEL_ROLE
from orchestrator.hosts.cluster.settings import Ports
from orchestrator.hosts.containers import ALL_GPUS, short_container

_CONNECT_S = 5
_LISTEN_S = 60
_SAY_S = 60.0
_POLL_S = 0.1
# Connects to what it is told, listens on what it is told, says what it saw, and waits to be spoken to.
_PROGRAM = f"""
import json, os, platform, re, socket, subprocess, sys, time
from importlib import metadata
calls, ports = json.loads(sys.argv[1]), json.loads(sys.argv[2])
failed, busy, servers = [], [], []
for address, port in calls:
    try:
        socket.create_connection((address, port), {_CONNECT_S}).close()
    except OSError as error:
        failed.append([port, str(error)])
for port in ports:
    try:
        servers.append(socket.create_server(("", port)))
    except OSError as error:
        busy.append([port, str(error)])
try:
    gpus = re.findall(r"UUID: (GPU-[^)]*)", subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)
except OSError:
    gpus = []
print("taxmeter-probe:" + json.dumps({{
    "failed": failed, "busy": busy, "gpus": gpus, "cores": sorted(os.sched_getaffinity(0)),
    "python": platform.python_version(), "ray": metadata.version("ray"),
}}), flush=True)
time.sleep({_LISTEN_S})
"""
_MARK = b"taxmeter-probe:"


@dataclass(frozen=True)
class Probe:
    """What came of it."""

    cores: tuple[int, ...]
    gpu_uuids: tuple[str, ...]
    with_gpus: bool
    """Whether the engine gives GPUs to containers."""


class Listener:
    """Takes connections on ports of this machine on which nothing listens yet."""

    def __init__(self, ports: Sequence[int]) -> None:
        """Starts at once; ports that are taken are left to those who have them."""
        self._servers = []
        for port in ports:
            with suppress(OSError):
                # The kernel answers for us; nobody needs to accept.
                self._servers.append(socket.create_server(("", port), backlog=128))

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()


def listened_ports(ports: Ports) -> tuple[int, ...]:
    """Ports of this machine that must be reached besides the head's, and on which nobody listens between campaigns."""
    return (ports.driver_workers[1],)


def probe(
    client: DockerClient, image: str, cluster: str, ours: str, theirs: str, ports: Ports, gpus: bool, local: bool
) -> Probe:
    """Looks.

    Args:
        client: a connection to the host's engine.
        image: the agents', by its id there.
        cluster: the id of ours.
        ours: this machine's address.
        theirs: the host's address.
        ports: of the cluster; the head listens, and a `Listener` on those of `listened_ports`.
        gpus: whether the host has any.
        local: whether the host is this machine, which reaches itself.

    Raises:
        InfrastructureError: one side does not reach the other, or a port is taken; the message says which.
        docker.errors.DockerException, requests.RequestException: the engine failed.
    """
    outward = [] if local else [(ours, port) for port in (ports.head, *listened_ports(ports))]
    inward = [ports.node_manager, ports.agent_workers[1]]
    command = ["python", "-c", _PROGRAM, json.dumps(outward), json.dumps(inward)]
    labels = {LABEL: cluster, LABEL_ROLE: "probe"}
    settings = {"image": image, "command": command, "network_mode": "host", "labels": labels}
    with ExitStack() as stack:
        try:
            container = stack.enter_context(_started(client, settings, gpus))
        except APIError as error:
            if not gpus or "device driver" not in engine_message(error):
                raise
            gpus = False  # the engine gives none to containers, which leaves a host for processors
            container = stack.enter_context(_started(client, settings, gpus))
        said = _first_line(container)
        unreached = [] if local else [port for port in inward if not _answers(theirs, port)]
    _judge(said, unreached, ours, theirs)
    return Probe(tuple(said["cores"]), tuple(said["gpus"]), gpus)


def _judge(said: dict[str, Any], unreached: Sequence[int], ours: str, theirs: str) -> None:
    if said["failed"]:
        ports = ", ".join(str(port) for port, _ in said["failed"])
        raise InfrastructureError(
            f"it does not reach this machine at {ours}, port {ports} ({said['failed'][0][1]}): let a firewall of this "
            "machine pass it, or name another address of this machine with --address"
        )
    if said["busy"]:
        port, why = said["busy"][0]
        raise InfrastructureError(
            f"port {port} is taken there ({why}): end what has it, or take other ports with --first-port"
        )
    if unreached:
        raise InfrastructureError(
            f"this machine does not reach it at {theirs}, port {', '.join(map(str, unreached))}: let a firewall of "
            "that host pass it"
        )


def _started(client: DockerClient, settings: Mapping[str, Any], gpus: bool) -> AbstractContextManager[Any]:
    return short_container(client, {**settings, "device_requests": [ALL_GPUS] if gpus else None}, {})


def _first_line(container: Any) -> dict[str, Any]:
    deadline = time.monotonic() + _SAY_S
    while True:
        container.reload()
        seen = container.logs()
        for line in seen.splitlines(keepends=True):
            if line.startswith(_MARK) and line.endswith(b"\n"):
                found: dict[str, Any] = json.loads(line.removeprefix(_MARK))
                return found
        if container.status != "running" or time.monotonic() > deadline:
            said = seen.decode("utf-8", "replace").strip()[-500:]
            raise InfrastructureError(f"a container there failed: {said or 'it said nothing'}")
        time.sleep(_POLL_S)


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), _CONNECT_S).close()
    except OSError:
        return False
    return True
