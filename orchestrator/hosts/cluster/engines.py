"""What there is of a cluster: the engines of the hosts, the containers of ours on them, and the nodes of Ray."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from docker import DockerClient
from docker.errors import NotFound

from orchestrator.boundary import load_json, validated
from orchestrator.config import Connection, Host, local_engine
from orchestrator.environments import connect, engine_address, engine_errors, remove_container
from orchestrator.errors import ForeignDataError, InfrastructureError
from orchestrator.files import tar_of
from orchestrator.hosts.calls import answer_of_program, call_program
from orchestrator.hosts.cluster.commands import Execution, execution, run_in
from orchestrator.hosts.cluster.plan import LABEL, LABEL_NODE, LABEL_PLAN, NODE_LABEL
from orchestrator.hosts.cluster.settings import DIRECTORY, HOST_LABEL
from orchestrator.hosts.cluster.state import Cluster
from orchestrator.hosts.connection import Connections
from runners.system import Fingerprint, SystemRoot, fingerprint_of_system

ANSWER_S = 60.0
"""For each answer of an engine."""

MENDS: Final = "`taxmeter cluster up` mends it"
MISSING: Final = "missing"
RUNNING: Final = "running"

_CONNECT_S = 30.0
_STOP_S = 5
_STDOUT = 1
_FIRST_ANSWER_S = 60.0
_VERSIONS = """
import hashlib, json, os, pathlib, platform
from importlib import metadata
file = pathlib.Path(os.environ["RAY_AUTH_TOKEN_PATH"])
token = hashlib.sha256(file.read_bytes().strip()).hexdigest() if file.is_file() else "none"
print(json.dumps({"python": platform.python_version(), "ray": metadata.version("ray"), "token": token}))
"""
_FINGERPRINT = f"{DIRECTORY}/fingerprint.py"
# Runs in the head's container until it is told to end: at once, and whenever something has changed, a line with the
# living nodes of each host. Ray prints lines of its own between them, such as that a node has died.
_NODES_MARK = b"taxmeter-nodes:"
_NODES = f"""
import collections, json, logging, os, ray, time
ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level=logging.ERROR)
said = None
while True:
    living = collections.defaultdict(list)
    for node in ray.nodes():
        labels = node.get("Labels") or {{}}
        if node["Alive"] and "{HOST_LABEL}" in labels:
            living[labels["{HOST_LABEL}"]].append(labels.get("{NODE_LABEL}", ""))
    text = json.dumps(living)
    if text != said:
        print("\\n{_NODES_MARK.decode()}" + text, flush=True)
        said = text
    time.sleep(0.2)
"""


@dataclass(frozen=True)
class ConnectedEngine:
    """A host's engine, connected."""

    client: DockerClient
    address: str
    """As this machine reaches it."""
    socket: str
    """Its path on the host."""


@contextmanager
def host_engine(name: str, host: Host, connections: Connections) -> Iterator[ConnectedEngine]:
    """The engine of a host, for as long as the block lasts."""
    if host.connection is Connection.LOCAL:
        address = engine_address(local_engine(host.engine))
        with closing(connect(address, ANSWER_S)) as client:
            yield ConnectedEngine(client, address, address.removeprefix("unix://"))
        return
    socket = connections.engine_socket(name, _CONNECT_S)
    with (
        connections.forward_engine(name, _CONNECT_S, socket) as forward,
        closing(connect(forward.address, ANSWER_S)) as client,
    ):
        yield ConnectedEngine(client, forward.address, socket)


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


def remove_all(client: DockerClient, cluster: str) -> None:
    """Removes all containers of a cluster from an engine."""
    for container in our_containers(client, cluster):
        remove(container)


@dataclass(frozen=True)
class Versions:
    """What a running container tells of itself."""

    python: str
    ray: str
    token: str
    """Its digest."""


@dataclass(frozen=True)
class Observed:
    """A container as it was found."""

    state: str = MISSING
    """What its engine says."""
    container: Any = None
    """Of the SDK; null if it is missing."""
    since: str | None = None
    """When it started, as ISO 8601; null if it does not run."""
    plan: str | None = None
    node: str | None = None
    versions: Versions | None = None
    living: tuple[str, ...] = ()
    """Labels of the nodes that Ray counts among the living ones of its host."""


def problems(
    found: Observed, *, plan: str | None = None, node: str | None = None, versions: Versions | None = None
) -> tuple[str, ...]:
    """What is wrong with a container, each in a line that says what mends it. One with none is left alone.

    Args:
        plan: digest of what it should be made from; null if that makes no difference.
        node: the label of the node that it should be, if it is one.
        versions: those it should have; null if they are not known.
    """
    if found.state != RUNNING:
        # Ray hears of its end a moment later, so that its word counts for nothing
        return (f"its container is {found.state}; {MENDS}",)
    wrong = []
    if found.versions is None:
        wrong.append("it does not tell its versions")
    elif versions is not None:
        if found.versions.token != versions.token:
            wrong.append("its token is not that of the cluster")
        if found.versions.ray != versions.ray:
            wrong.append(f"it has Ray {found.versions.ray}, and the head has {versions.ray}")
        if found.versions.python != versions.python:
            wrong.append(f"it has Python {found.versions.python}, and the head has {versions.python}")
    if plan is not None and found.plan != plan:
        wrong.append("its image, its settings or its token have changed")
    if node is not None and found.node != node:
        wrong.append("its container is not the one that `up` started")
    if node is not None and node not in found.living:
        wrong.append("its container runs, but Ray does not count it among the living nodes")
    return tuple(f"{problem}; {MENDS}" for problem in wrong)


def observed(client: DockerClient, name: str, cluster: str, living: tuple[str, ...] = ()) -> Observed:
    """A container of ours as it is now.

    Args:
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
        container=container,
        since=str(container.attrs["State"]["StartedAt"])[:19] + "Z" if is_running else None,
        plan=container.labels.get(LABEL_PLAN),
        node=container.labels.get(LABEL_NODE),
        versions=_versions(container) if is_running else None,
        living=living,
    )


def _versions(container: Any) -> Versions | None:
    done = run_in(container, ["python", "-c", _VERSIONS])
    return validated(Versions, done.stdout, "what its Python says") if done.exit_code == 0 else None


def fingerprint_on(engine: ConnectedEngine, cluster: Cluster) -> Fingerprint:
    """The fingerprint of a host, read where the rows of its trials are made, so that it is the same as theirs."""
    program = call_program(fingerprint_of_system, SystemRoot())
    with engine_errors("its engine failed"):
        container = find(engine.client, cluster.agent_container, cluster.id)
        if container is None:
            raise InfrastructureError(f"there is no container {cluster.agent_container} any more")
        container.put_archive("/", tar_of({_FINGERPRINT: program.text.encode()}, (0, 0)))
        done = run_in(container, ["python", "-I", _FINGERPRINT])
    fingerprint = answer_of_program(fingerprint_of_system, done.stdout)
    if fingerprint is None:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise InfrastructureError(f"its agent does not tell its fingerprint: {said}")
    return fingerprint


class Watch:
    """What is known about the nodes, as of now."""

    def __init__(self, running: Execution) -> None:
        self._running = running
        self._changed = threading.Condition()
        self._living: Mapping[str, list[str]] | None = None
        self._errors = bytearray()
        self._is_over = False
        self._thread = threading.Thread(target=self._listen, name="nodes", daemon=True)
        self._thread.start()

    def living(self, host: str) -> tuple[str, ...]:
        """Labels of the nodes that serve a host and live.

        One that came before another may still count as alive for a moment.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._living is not None or self._is_over, _FIRST_ANSWER_S):
                raise InfrastructureError(
                    f"the head of the cluster says nothing about its nodes for {_FIRST_ANSWER_S:g} s"
                )
            if self._is_over or self._living is None:
                said = " ".join(self._errors.decode("utf-8", "replace").split())[-500:]
                raise InfrastructureError(f"the head of the cluster does not tell its nodes: {said or 'it ended'}")
            return tuple(self._living.get(host, ()))

    def wait(self, timeout_s: float) -> None:
        """Returns when something may have changed."""
        with self._changed:
            self._changed.wait(timeout_s)

    def join(self) -> None:
        """Returns when the listening is over, as it is soon after its command was left."""
        self._thread.join()

    def _listen(self) -> None:
        pending = b""
        try:
            for stream, data in self._running.frames():
                if stream != _STDOUT:
                    self._errors += data
                    continue
                pending += data
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    if not line.startswith(_NODES_MARK):
                        self._errors += line
                        continue
                    with self._changed:
                        self._living = load_json(line.removeprefix(_NODES_MARK), "its nodes")
                        self._changed.notify_all()
        except (OSError, ValueError, ForeignDataError) as error:
            # closed at our end, or the engine was lost: whoever asks next is told
            self._errors += str(error).encode()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


@contextmanager
def watching(cluster: Cluster) -> Iterator[Watch]:
    """Listens while the block lasts."""
    # in this order: the command is left, then the thread hears of it
    with (
        ExitStack() as after,
        execution(cluster, ["python", "-W", "ignore", "-c", _NODES]) as running,
    ):
        watch = Watch(running)
        after.callback(watch.join)
        yield watch
