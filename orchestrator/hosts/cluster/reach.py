"""Before an agent is started: is a host fit, do this machine and it reach each other, and what will an agent see there?

First by the shell of the host, then by a short container like the agent's.
"""

import ipaddress
import json
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError

from orchestrator.boundary import load_json
from orchestrator.config import WORK_DIRECTORY, Connection, Host
from orchestrator.environments import engine_message, short_container
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.check.engine import ALL_GPUS
from orchestrator.hosts.check.preflight import SCRIPT, PreflightQuestion, filesystem_problem, parse, preflight_here
from orchestrator.hosts.cluster.plan import LABEL, LABEL_ROLE, Site, refuse_unfit
from orchestrator.hosts.cluster.settings import Ports
from orchestrator.hosts.cluster.state import Cluster, Project
from orchestrator.hosts.connection import Connections

_ANSWER_S = 60.0
_LISTENS = "0A"
_CONNECT_S = 5
_LISTEN_S = 60
_SAY_S = 60.0
_POLL_S = 0.1
# Connects to what it is told, listens on what it is told, says what it saw, and waits to be spoken to.
_PROGRAM = f"""
import json, os, re, socket, subprocess, sys, time
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
}}), flush=True)
time.sleep({_LISTEN_S})
"""
_MARK = b"taxmeter-probe:"


def survey(name: str, host: Host, connections: Connections, project: Project) -> Site:
    """What the shell of a host tells.

    Raises:
        HostConnectionError: it was not reached.
        InfrastructureError: it cannot be part by what the inventory says, its answer cannot be understood, or its
            address or its work directory cannot be used.
    """
    refuse_unfit(host)
    is_here = host.connection is Connection.LOCAL
    directory = host.work_directory or (str(project.state.absolute()) if is_here else WORK_DIRECTORY)
    question = PreflightQuestion(host.engine, (directory,), _ANSWER_S)
    if is_here:
        seen = preflight_here(question)
        return Site(name, host, directory, "", None, bool(seen.gpus), seen.has_os_release, seen.listened)
    seen = parse(connections.run(name, question.command, question.limit_s, stdin=SCRIPT).stdout)
    for address in seen.connection or ():
        try:
            version = ipaddress.ip_address(address.partition("%")[0]).version
        except ValueError:
            raise InfrastructureError(
                f"its sshd was reached without TCP ({address}), which a cluster cannot use: give it IPv4"
            ) from None
        if version != 4:
            raise InfrastructureError(f"it was reached by IPv6 ({address}), which a cluster cannot use: give it IPv4")
    problem = filesystem_problem(directory, seen.filesystems.get(directory))
    if problem is not None:
        raise InfrastructureError(problem)
    ours, own = seen.connection or (None, host.address or "")
    return Site(name, host, directory, own, ours, bool(seen.gpus), seen.has_os_release, seen.listened)


def listened_here() -> frozenset[int]:
    """TCP ports on which somebody listens on this machine."""
    tables = [path for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if path.exists()]
    lines = [line.split() for path in tables for line in path.read_text().splitlines()]
    return frozenset(int(fields[1].rpartition(":")[2], 16) for fields in lines if fields[3] == _LISTENS)


def choose_address(sites: Iterable[Site], before: str | None) -> str:
    """This machine's address as the hosts are to call it: the one that most of them see.

    Args:
        before: the address that the cluster has; it is kept where it still can be.
    """
    found = [address for site in sites if (address := _of_this_machine(site)) is not None]
    if before is not None and is_own_address(before) and (before in found or not found):
        return before
    return Counter(found).most_common(1)[0][0] if found else (_towards("192.0.2.1") or "127.0.0.1")


def is_own_address(address: str) -> bool:
    """Whether this machine has an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _of_this_machine(site: Site) -> str | None:
    """What the host sees, unless that is a jump host or a router in between; then what leads to the host from here."""
    if site.ours is None:
        return None
    return site.ours if is_own_address(site.ours) else _towards(site.address)


def _towards(address: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # sends nothing: the kernel only chooses a way
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return None


@dataclass(frozen=True)
class Probe:
    """What came of it."""

    cores: tuple[int, ...]
    gpu_uuids: tuple[str, ...]
    with_gpus: bool
    """Whether the engine gives GPUs to containers."""


@contextmanager
def listening(ports: Ports) -> Iterator[None]:
    """Takes connections where the driver's last process will, unless somebody does: nobody does between campaigns."""
    with ExitStack() as stack:
        with suppress(OSError):
            # The kernel answers for us; nobody needs to accept.
            stack.enter_context(socket.create_server(("", ports.driver_workers[1]), backlog=128))
        yield


def probe(client: DockerClient, image: str, cluster: Cluster, site: Site) -> Probe:
    """Looks from a short container. The head listens, and somebody does as `listening` says.

    Args:
        image: the agents', by its id there.

    Raises:
        InfrastructureError: one side does not reach the other, or a port is taken; the message says which.
        docker.errors.DockerException, requests.RequestException: the engine failed.
    """
    ports, ours, gpus = cluster.ports, cluster.head_address, site.has_gpus
    # this machine reaches itself
    outward = [] if site.is_here else [(ours, port) for port in (ports.head, ports.driver_workers[1])]
    inward = [ports.node_manager, ports.agent_workers[1]]
    command = ["python", "-c", _PROGRAM, json.dumps(outward), json.dumps(inward)]
    labels = {LABEL: cluster.id, LABEL_ROLE: "probe"}
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
        unreached = [] if site.is_here else [port for port in inward if not _answers(site.address, port)]
    if said["failed"]:
        listed = ", ".join(str(port) for port, _ in said["failed"])
        raise InfrastructureError(
            f"it does not reach this machine at {ours}, port {listed} ({said['failed'][0][1]}): let a firewall of this "
            "machine pass it, or name another address of this machine with --address"
        )
    if said["busy"]:
        port, why = said["busy"][0]
        raise InfrastructureError(
            f"port {port} is taken there ({why}): end what has it, or take other ports with --first-port"
        )
    if unreached:
        raise InfrastructureError(
            f"this machine does not reach it at {site.address}, port {', '.join(map(str, unreached))}: let a firewall "
            "of that host pass it"
        )
    return Probe(tuple(said["cores"]), tuple(said["gpus"]), gpus)


def _started(client: DockerClient, settings: Mapping[str, Any], gpus: bool) -> AbstractContextManager[Any]:
    return short_container(client, {**settings, "device_requests": [ALL_GPUS] if gpus else None}, {})


def _first_line(container: Any) -> dict[str, Any]:
    deadline = time.monotonic() + _SAY_S
    while True:
        container.reload()
        seen = container.logs()
        for line in seen.splitlines(keepends=True):
            if line.startswith(_MARK) and line.endswith(b"\n"):
                found: dict[str, Any] = load_json(line.removeprefix(_MARK), "what a container there says")
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
