"""The full fingerprint of a host, however it can be read there, and a word about how that was."""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from orchestrator.config import Connection, Host
from orchestrator.environments import ENGINE_EXCEPTIONS, connect, engine_message
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.checking.container import Look, Seen, look
from orchestrator.hosts.checking.deadline import Deadline
from orchestrator.hosts.checking.engine import WantedImage, read_engine
from orchestrator.hosts.checking.probing import read_host, refusal, socket_problem
from orchestrator.hosts.checking.program import MARK, OLDEST_PYTHON, facts_program, this_python
from orchestrator.hosts.checking.reading import HostReading
from orchestrator.hosts.connection import Connections
from runners.contract import encode
from runners.system import collect, hw_id, read_conditions, system_id

FACTS_TIMEOUT_S = 120.0
_HOST_AT = "/host"
_PROGRAM_AT = "/taxmeter/facts.py"


@dataclass(frozen=True)
class Facts:
    """What a host is."""

    read: str
    """How it was read, and what that means for it."""
    document: Mapping[str, Any]
    """With `hw_id`, `system_id`, `fingerprint` and `conditions`."""


def local_facts() -> Facts:
    """Of this machine."""
    fingerprint = collect()
    document = {
        "hw_id": hw_id(fingerprint),
        "system_id": system_id(fingerprint),
        "fingerprint": encode(fingerprint),
        "conditions": read_conditions(),
    }
    return Facts(f"on this machine, by Python {this_python()}", document)


def host_facts(
    name: str,
    host: Host,
    connections: Connections,
    images: Mapping[str, WantedImage],
    timeout_s: float = FACTS_TIMEOUT_S,
) -> Facts:
    """Of a host of the inventory. Nothing is installed or written there.

    Args:
        name: of the host.
        host: as the inventory has it.
        connections: by which it is reached.
        images: in one of which the code runs where the host has no Python, by environment.
        timeout_s: for all of it.

    Raises:
        HostConnectionError: it was not reached.
        InfrastructureError: it has neither a Python nor an image of ours, or the code failed there.
    """
    if host.connection is Connection.LOCAL:
        return local_facts()
    deadline = Deadline(timeout_s)
    reading = read_host(name, host, connections, deadline)
    if is_new_enough(reading.python):
        argv = ["python3", "-"]
        done = connections.run(name, argv, deadline.left_s(), stdin=facts_program())
        document = parse_facts(name, Seen(done.exit_code, done.stdout, done.stderr))
        return Facts(f"over SSH, by the host's own Python {reading.python}", document)
    return _in_container(name, host, connections, images, reading, deadline)


def is_new_enough(python: str | None) -> bool:
    """Whether a version of Python runs the code."""
    return python is not None and tuple(map(int, python.split(".")[:2])) >= OLDEST_PYTHON


def parse_facts(name: str, seen: Seen) -> dict[str, Any]:
    """The document that the program printed.

    Raises:
        InfrastructureError: it printed none.
    """
    line = next((one for one in seen.stdout.splitlines() if one.startswith(MARK)), None)
    if line is None:
        last = (seen.stderr.strip().splitlines() or [f"exit code {seen.exit_code} without a message"])[-1]
        raise InfrastructureError(f"{name}: the fingerprint could not be read: {last}")
    document: dict[str, Any] = json.loads(line.removeprefix(MARK))
    return document


def _in_container(
    name: str,
    host: Host,
    connections: Connections,
    images: Mapping[str, WantedImage],
    reading: HostReading,
    deadline: Deadline,
) -> Facts:
    why = f"python3 is {reading.python or 'missing'} there"
    problem = socket_problem(host, reading, reading.socket)
    if problem is not None or reading.socket is None:
        raise InfrastructureError(f"{name}: {why}, and no container can be started: {problem}")
    release = connections.run(name, ["cat", "/etc/os-release"], deadline.left_s()).stdout
    files = {
        _PROGRAM_AT: facts_program(_HOST_AT, reading.host_name).encode(),
        f"{_HOST_AT}/etc/os-release": release.encode(),
    }
    with connections.forward_engine(name, deadline.left_s(), reading.socket.path) as forward:
        try:
            present = read_engine(forward.address, images, False, deadline).images
        except InfrastructureError as error:
            reason = refusal(reading.socket) if forward.is_refused() else str(error)
            raise InfrastructureError(f"{name}: {why}, and no container can be started: {reason}") from None
        if not present:
            raise InfrastructureError(
                f"{name}: {why}, and none of our images is there to run the code in: install python3 "
                f"{'.'.join(map(str, OLDEST_PYTHON))} or newer there, or bring an image"
            )
        environment, image = next(iter(present.items()))
        wanted = Look(image.image_id, ["python", "-I", _PROGRAM_AT], bool(reading.gpus), files, _HOST_AT)
        seen, without = _look(name, forward.address, wanted, deadline)
    read = f"in a container of the image {environment} ({why}): C library unknown, limits are the container's{without}"
    return Facts(read, parse_facts(name, seen))


def _look(name: str, address: str, wanted: Look, deadline: Deadline) -> tuple[Seen, str]:
    """What was seen, and what could not be."""
    with closing(connect(address, deadline.left_s())) as client:
        try:
            return look(client, wanted, deadline), ""
        except ENGINE_EXCEPTIONS as error:
            if not wanted.gpus:
                raise InfrastructureError(f"{name}: no container can be started: {engine_message(error)}") from None
        blind = Look(wanted.image, wanted.command, False, wanted.files, wanted.host_at)
        try:
            return look(client, blind, deadline), ", GPUs unknown, because containers do not see them"
        except ENGINE_EXCEPTIONS as error:
            raise InfrastructureError(f"{name}: no container can be started: {engine_message(error)}") from None
