"""A host that is a node of somebody else's Ray cluster."""

import platform
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from orchestrator.config import WORK_DIRECTORY, Host
from orchestrator.environments import Awaited, BuiltImage, ImageIdentity, receive_image, saved_image
from orchestrator.errors import InfrastructureError, Say
from orchestrator.hosts.access import HostFacts, Way
from orchestrator.hosts.calls import Answer, Argument
from orchestrator.hosts.check.clock import Skew, clock_here, measure_skew_of
from orchestrator.hosts.cluster.settings import HOST_LABEL
from orchestrator.hosts.connection import Deadline
from orchestrator.hosts.engine import HostEngine
from orchestrator.hosts.external_cluster import ClusterInfo, ExternalCluster, answered, is_there, node_of
from orchestrator.hosts.local import CalledHost, FactsQuestion, facts_here, refuse_directory
from orchestrator.planning import Isolation

_ANSWER_S = 120.0
"""For the first answer Ray brings our code to a node, and starts a process there."""
_LOAD_S = 900.0
"""That an engine may unpack an image of gigabytes after its last byte has come."""
_PIECE_BYTES: Final = 8 * 2**20
_PIECES_AHEAD: Final = 3
"""On their way to a node; an object store of Ray has 75 MB at the least."""
_PIECE_S: Final = 120.0
"""A node that takes nothing for so long is given up."""
_HELD: Final = 2
_POLL_S: Final = 0.5


class RayHost(CalledHost):
    """A node of an external cluster; see `HostAccess`."""

    way = Way.RAY
    where = "on its node of Ray"

    def __init__(self, name: str, settings: Host, seen: ClusterInfo, cluster: ExternalCluster) -> None:
        """Asks nothing yet."""
        super().__init__(name, settings, WORK_DIRECTORY)
        self._seen = seen
        self._cluster = cluster
        self._fits = False

    def read_facts(self) -> HostFacts:
        return self.call(facts_of_node, FactsQuestion(self.name, self.settings, self.work_directory), _ANSWER_S)

    def call(self, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:
        """See `HostAccess.call`. It is a task of Ray that claims nothing."""
        # Ray would wait for a node for ever
        node_of(self.name, self._seen)
        if not self._fits:
            refuse_other_packages(self.name, self._cluster)
            refuse_unheard(self.name, self._cluster)
            self._fits = True
        return self._cluster.call(self.name, function, argument, timeout_s)

    @contextmanager
    def engine(self) -> Iterator[HostEngine]:
        facts = self.facts()
        if facts.isolation is Isolation.PROCESS:
            raise InfrastructureError(facts.isolation_reason)
        yield HostEngine(facts.engine, self.call, self._send)

    def slots(self) -> int | None:
        return int(node_of(self.name, self._seen).slots)

    def skew(self, deadline: Deadline, /) -> Skew | None:
        return measure_skew_of(lambda: self.call(clock_here, None, deadline.left_s()))

    def _send(self, image: BuiltImage, say: Say) -> ImageIdentity:
        say(f"sending {image.reference}")
        awaited = Awaited(image.reference, image.identity, self.facts().engine)
        try:
            return send(saved_image(image, say), receive_image, awaited, self.name, self._cluster)
        except InfrastructureError as error:
            raise InfrastructureError(f"it could not be sent {image.reference}: {error}") from error


def facts_of_node(question: FactsQuestion) -> HostFacts:
    """What a node is; it runs there. Nothing is changed."""
    refuse_directory(Path(question.work_directory))
    return facts_here(question)


def refuse_other_packages(host: str, cluster: ExternalCluster) -> None:
    """Refuses a node that does not have the packages of this process."""
    needed = metadata.requires("taxmeter") or []
    versions_there = _versions(sorted({requirement.partition(";")[0].strip() for requirement in needed}))
    ours, theirs = versions_there(""), cluster.run(host, versions_there, "", _ANSWER_S)
    wrong = [
        f"{name} is {theirs.get(name) or 'missing'} there, and {version} here"
        for name, version in ours.items()
        if theirs.get(name) != version
    ]
    if wrong:
        raise InfrastructureError(
            f"{', '.join(wrong)}: install requirements/base.lock with this Python there (the agents' image has it)"
        )


def refuse_unheard(host: str, cluster: ExternalCluster) -> None:
    """Refuses a node that cannot stream results to this process: tasks there would hang without a word."""
    ray = cluster.join()
    streaming = ray.remote(num_cpus=0, max_retries=0)(_count)
    stream = streaming.options(num_returns="streaming", label_selector={HOST_LABEL: host}).remote()
    try:
        for _ in range(2):
            if not is_there(ray, stream, _ANSWER_S, fetch_local=False):
                break
            ray.get(next(stream))
        else:
            return
    except ray.exceptions.RayError as error:
        said = " ".join(str(error).split())[:300]
        raise InfrastructureError(f"Ray runs no task there: {said}") from error
    ray.cancel(stream, force=True)
    raise InfrastructureError(
        f"its results do not arrive here within {_ANSWER_S:.0f} s: the ports of Ray's drivers and workers "
        f"(--min-worker-port to --max-worker-port) must be open between {ray.util.get_node_ip_address()} and it"
    )


def _versions(names: Sequence[str]) -> Callable[[str], dict[str, str | None]]:
    """A function that Ray sends as it is: where a package is missing, ours cannot be imported."""

    def here(_: str) -> dict[str, str | None]:
        found: dict[str, str | None] = {"python": platform.python_version()}
        for name in names:
            found[name] = None
            with suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
        return found

    return here


def _count() -> Iterator[int]:
    yield 1
    yield 2


class Inbox:
    """A node's end, in a process of its own there: hands what comes to a function that runs meanwhile."""

    def __init__(self, receive: Callable[[Argument, Iterator[bytes]], Any], asked: Argument) -> None:
        self._pieces: queue.Queue[bytes | None] = queue.Queue(_HELD)
        self._answer: Future[Any] = Future()
        # a daemon: what waits for the next piece must not keep the process
        threading.Thread(target=self._run, args=(receive, asked), name="receive", daemon=True).start()

    def put(self, piece: bytes | None) -> bool:
        """Takes a piece, null after the last one, when there is room. Returns whether any more is wanted."""
        while not self._answer.done():
            try:
                self._pieces.put(piece, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def answer(self) -> Any:
        """What the function returned, once it has."""
        return self._answer.result()

    def _run(self, receive: Callable[[Argument, Iterator[bytes]], Any], asked: Argument) -> None:
        try:
            self._answer.set_result(receive(asked, iter(self._pieces.get, None)))
        except BaseException as error:  # noqa: BLE001 - raised again by `answer`
            self._answer.set_exception(error)


def send(
    pieces: Iterable[bytes],
    receive: Callable[[Argument, Iterator[bytes]], Answer],
    asked: Argument,
    host: str,
    cluster: ExternalCluster,
) -> Answer:
    """Has a function on a node read bytes as this process reads them, through Ray's object store.

    Args:
        pieces: the bytes, as they come; whatever their lengths.
        receive: the function, of an installed module. It says what went wrong by an InfrastructureError.

    Raises:
        InfrastructureError: what the function raised, or why there is no answer. Whatever reading the pieces raises
            is raised too; nothing is then left running.
    """
    ray = cluster.join()
    remote = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(Inbox)
    inbox = remote.options(label_selector={HOST_LABEL: host}).remote(receive, asked)
    taken: deque[Any] = deque()
    try:
        for piece in rechunked(pieces, _PIECE_BYTES):
            taken.append(inbox.put.remote(piece))
            if len(taken) > _PIECES_AHEAD and not answered(ray, taken.popleft(), _PIECE_S):
                break  # it wants no more: its answer is ready
        inbox.put.remote(None)
        answer: Answer = answered(ray, inbox.answer.remote(), _LOAD_S)
        return answer
    finally:
        with suppress(ray.exceptions.RayError):  # its node is gone, and it with it
            ray.kill(inbox)


def rechunked(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of one size, but for the last."""
    pending = bytearray()
    for piece in pieces:
        pending += piece
        while len(pending) >= size:
            yield bytes(pending[:size])
            del pending[:size]
    if pending:
        yield bytes(pending)
