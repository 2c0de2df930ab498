"""The engines of the hosts, and the containers of ours on them: found, observed, asked, and removed."""

import io
import json
import signal
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import IO, Any

from docker import DockerClient
from docker.errors import NotFound, create_api_error_from_http_exception
from requests.exceptions import HTTPError

from orchestrator.config import Connection, Host, local_engine
from orchestrator.environments import connect, engine_address, engine_errors, remove_container
from orchestrator.errors import InfrastructureError
from orchestrator.execution import INSTALLED, pack, tar_of
from orchestrator.hosts.cluster.model import Cluster
from orchestrator.hosts.cluster.plan import LABEL, LABEL_NODE, LABEL_PLAN, MISSING, RUNNING, Observed, Versions
from orchestrator.hosts.cluster.settings import DIRECTORY
from orchestrator.hosts.connection import Connections
from runners.contract import ContractError, decode
from runners.system import Fingerprint

ANSWER_S = 60.0
"""For each answer of an engine."""

_CONNECT_S = 30.0
_STOP_S = 5
_HEADER = struct.Struct(">BxxxL")
_STDERR = 2
_KILLED = 128 + signal.SIGKILL
_VERSIONS = """
import hashlib, json, os, pathlib, platform
from importlib import metadata
file = pathlib.Path(os.environ["RAY_AUTH_TOKEN_PATH"])
token = hashlib.sha256(file.read_bytes().strip()).hexdigest() if file.is_file() else "none"
print(json.dumps({"python": platform.python_version(), "ray": metadata.version("ray"), "token": token}))
"""
_MARK = b"taxmeter-fingerprint:"
_FINGERPRINT = f"""
import json
from runners.contract import encode
from runners.system import collect
print("{_MARK.decode()}" + json.dumps(encode(collect())))
"""


@dataclass(frozen=True)
class HostEngine:
    """A host's engine, connected."""

    client: DockerClient
    address: str
    """As this machine reaches it."""
    socket: str
    """Its path on the host."""


@contextmanager
def host_engine(name: str, host: Host, connections: Connections) -> Iterator[HostEngine]:
    """The engine of a host, for as long as the block lasts.

    Raises:
        HostConnectionError: the host was not reached.
        InfrastructureError: no engine answers.
    """
    if host.connection is Connection.LOCAL:
        address = engine_address(local_engine(host.engine))
        with closing(connect(address, ANSWER_S)) as client:
            yield HostEngine(client, address, address.removeprefix("unix://"))
        return
    socket = connections.engine_socket(name, _CONNECT_S)
    with (
        connections.forward_engine(name, _CONNECT_S, socket) as forward,
        closing(connect(forward.address, ANSWER_S)) as client,
    ):
        yield HostEngine(client, forward.address, socket)


def our_containers(client: DockerClient, cluster: str) -> list[Any]:
    """All containers of a cluster on an engine, in any state."""
    selected = {"label": f"{LABEL}={cluster}"}
    found: list[Any] = client.containers.list(all=True, filters=selected, ignore_removed=True)
    return found


def remove(container: Any) -> None:
    """Ends a container of ours, so that Ray hears of it, and removes it. What is gone already is no error."""
    try:
        container.reload()
        if container.status == "paused":
            container.unpause()
        if container.status in ("running", "paused"):
            container.stop(timeout=_STOP_S)
    except NotFound:
        return
    remove_container(container)


def find(client: DockerClient, name: str, cluster: str) -> Any | None:
    """The container of ours that has this name; null if there is none, whoever else has one."""
    return next((found for found in our_containers(client, cluster) if found.name == name), None)


def observed(client: DockerClient, name: str, cluster: str, living: tuple[str, ...] = ()) -> Observed:
    """A container of ours as it is now.

    Args:
        client: a connection to its engine.
        name: of the container.
        cluster: id of ours.
        living: labels of the nodes of its host that live, as Ray says.

    Raises:
        docker.errors.DockerException, requests.RequestException: the engine failed.
    """
    container = find(client, name, cluster)
    if container is None:
        return Observed(MISSING, living=living)
    state = str(container.status)
    is_running = state == RUNNING
    return Observed(
        state=state,
        id=str(container.id),
        since=str(container.attrs["State"]["StartedAt"])[:19] + "Z" if is_running else None,
        plan=container.labels.get(LABEL_PLAN),
        node=container.labels.get(LABEL_NODE),
        versions=_versions(container) if is_running else None,
        living=living,
    )


def _versions(container: Any) -> Versions | None:
    done = run_in(container, ["python", "-c", _VERSIONS])
    return Versions(**json.loads(done.output)) if done.exit_code == 0 else None


def fingerprint_on(engine: HostEngine, cluster: Cluster) -> Fingerprint:
    """The fingerprint of a host, read where the rows of its trials are made, so that it is the same as theirs.

    Raises:
        InfrastructureError: there is no agent, or it does not tell.
    """
    code = pack(INSTALLED)
    with engine_errors("its engine failed"):
        container = find(engine.client, cluster.agent_container, cluster.id)
        if container is None:
            raise InfrastructureError(f"there is no container {cluster.agent_container} any more")
        place = f"{DIRECTORY}/runners-{code.name}"
        container.put_archive("/", tar_of({f"{place}.tar.gz": code.archive}, (0, 0)))
        script = f'mkdir -p {place} && tar -xzf {place}.tar.gz -C {place} && PYTHONPATH={place} exec python -c "$1"'
        done = run_in(container, ["sh", "-c", script, "sh", _FINGERPRINT])
    line = next((line for line in done.output.splitlines() if line.startswith(_MARK)), None)
    if done.exit_code != 0 or line is None:
        raise InfrastructureError(f"its agent does not tell its fingerprint: {done.last_words or 'it said nothing'}")
    try:
        return decode(Fingerprint, json.loads(line.removeprefix(_MARK)), "fingerprint")
    except ContractError as error:
        raise InfrastructureError(f"its agent tells a fingerprint of another version: {error}") from error


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    exit_code: int
    """As if killed where its container ended under it."""
    output: bytes
    errors: bytes

    @property
    def last_words(self) -> str:
        """The last line that it wrote, errors first; empty if it wrote nothing."""
        lines = (self.errors.strip() or self.output.strip()).splitlines()
        return lines[-1].decode("utf-8", "replace") if lines else ""


def run_in(container: Any, argv: Sequence[str]) -> Ended:
    """Runs a command in a container until it ends.

    Not with the SDK's `exec_run`: that turns the connection into a bare socket and loses what came together with the
    answer's header, the whole output of a short command (docker-py, issue 3332): through a tunnel from a busy machine
    that of 16 commands in 200. The answer to a plain request is read through the buffer that has the header.

    Args:
        container: of the SDK, and running.
        argv: the command.

    Raises:
        docker.errors.DockerException, requests.RequestException: the engine failed, or says nothing for longer than
            its client waits.
    """
    api = container.client.api
    number = api.exec_create(container.id, list(argv))["Id"]
    address = f"{api.base_url}/v{api.api_version}/exec/{number}/start"
    with api.post(address, json={"Detach": False, "Tty": False}, timeout=api.timeout) as answer:
        try:
            answer.raise_for_status()
        except HTTPError as error:
            raise create_api_error_from_http_exception(error) from error
        written = list(frames(io.BytesIO(answer.content)))
    output, errors = (
        b"".join(data for stream, data in written if (stream == _STDERR) is wanted) for wanted in (False, True)
    )
    code = api.exec_inspect(number)["ExitCode"]
    return Ended(_KILLED if code is None else int(code), output, errors)


def frames(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Takes apart what an engine sends of a command without a terminal, until the stream ends.

    The form is that of `attach` in the engine's interface: a byte for the stream, three of nothing, the length in four,
    and the data.

    Args:
        stream: blocks until there are as many bytes as are asked for.

    Returns:
        1 or 2, for standard output or error, and what was written there.
    """
    while len(header := stream.read(_HEADER.size)) == _HEADER.size:
        number, size = _HEADER.unpack(header)
        if data := stream.read(size):
            yield number, data
