"""A host that is a node of somebody else's Ray cluster."""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from orchestrator.config import WORK_DIRECTORY, Host, local_engine
from orchestrator.environments import Awaited, BuiltImage, ImageIdentity, receive_image, saved_image
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.access import Answer, Argument, HostFacts, SystemDescription
from orchestrator.hosts.broadcast import send
from orchestrator.hosts.check import (
    EngineFacts,
    EngineQuestion,
    HostReport,
    Preflight,
    PreflightQuestion,
    Requirements,
    Skew,
    WantedImage,
    Way,
    check_host,
    clock_here,
    engine_facts,
    measure_skew_of,
    preflight_here,
)
from orchestrator.hosts.cluster_info import ClusterInfo, node_of
from orchestrator.hosts.connection import Deadline
from orchestrator.hosts.engine import EngineThere
from orchestrator.hosts.external_cluster import ExternalCluster
from orchestrator.hosts.local import FactsQuestion, facts_here, refuse_directory, this_python, write_files
from orchestrator.planning import Isolation
from runners.system import SystemRoot, describe_system

_ANSWER_S = 120.0
"""For the first answer Ray brings our code to a node, and starts a process there."""
_PLACE_S = 600.0
_LOAD_S = 900.0
"""That an engine may unpack an image of gigabytes after its last byte has come."""


class RayHost:
    """A node of an external cluster; see `HostAccess`."""

    way = Way.RAY

    def __init__(self, name: str, settings: Host, seen: ClusterInfo, cluster: ExternalCluster) -> None:
        """Asks nothing yet.

        Args:
            name: of the host.
            settings: as the inventory has it.
            seen: of its cluster.
            cluster: the same, to be joined.
        """
        self.name = name
        self.settings = settings
        self.work_directory = settings.work_directory or WORK_DIRECTORY
        self._seen = seen
        self._cluster = cluster
        self._fits = False
        self._facts: HostFacts | None = None

    def facts(self) -> HostFacts:
        """See `HostAccess.facts`."""
        if self._facts is None:
            question = FactsQuestion(self.name, self.settings, self.work_directory)
            self._facts = self.call(facts_of_node, question, _ANSWER_S)
        return self._facts

    def call(self, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:
        """See `HostAccess.call`. It is a task of Ray that claims nothing."""
        # Ray would wait for a node for ever
        node_of(self.name, self._seen)
        if not self._fits:
            self._cluster.refuse_other_packages(self.name, _ANSWER_S)
            self._cluster.refuse_unheard(self.name, _ANSWER_S)
            self._fits = True
        return self._cluster.call(self.name, function, argument, timeout_s)

    @contextmanager
    def engine(self) -> Iterator[EngineThere]:
        """See `HostAccess.engine`."""
        facts = self.facts()
        if facts.isolation is Isolation.PROCESS:
            raise InfrastructureError(facts.isolation_reason)
        yield EngineThere(facts.engine, self.call, self._send)

    def place(self, files: Mapping[str, bytes], directory: PurePosixPath) -> None:
        """See `HostAccess.place`."""
        encoded = {name: base64.b64encode(content).decode("ascii") for name, content in files.items()}
        self.call(write_placed, PlacedFiles(str(directory), encoded), _PLACE_S)

    def slots(self) -> int | None:
        """See `HostAccess.slots`."""
        return int(node_of(self.name, self._seen).slots)

    def check(self, wanted: Requirements, timeout_s: float) -> HostReport:
        """See `HostAccess.check`."""
        return check_host(self, wanted, timeout_s)

    def describe(self, timeout_s: float) -> SystemDescription:
        """See `HostAccess.describe`."""
        document = self.call(describe_system, SystemRoot(), timeout_s)
        return SystemDescription(f"on its node of Ray, by Python {this_python()}", document)

    def preflight(self, deadline: Deadline, directories: tuple[str, ...]) -> Preflight:
        """See `Probes.preflight`."""
        limit_s = deadline.left_s()
        return self.call(preflight_here, PreflightQuestion(self.settings.engine, directories, limit_s), limit_s)

    def engine_facts(
        self, _: Preflight, wanted: Mapping[str, WantedImage], with_gpus: bool, deadline: Deadline
    ) -> EngineFacts:
        """See `Probes.engine_facts`."""
        limit_s = deadline.left_s()
        question = EngineQuestion(local_engine(self.settings.engine), wanted, with_gpus, limit_s)
        return self.call(engine_facts, question, limit_s)

    def skew(self, deadline: Deadline) -> Skew | None:
        """See `Probes.skew`."""
        return measure_skew_of(lambda: self.call(clock_here, None, deadline.left_s()))

    def _send(self, image: BuiltImage, say: Callable[[str], None]) -> ImageIdentity:
        say(f"sending {image.reference}")
        awaited = {self.name: Awaited(image.reference, image.identity, self.facts().engine)}
        answer = send(saved_image(image, say), receive_image, awaited, _LOAD_S)[self.name]
        if isinstance(answer, InfrastructureError):
            raise InfrastructureError(f"it could not be sent {image.reference}: {answer}") from answer
        return answer


def facts_of_node(question: FactsQuestion) -> HostFacts:
    """What a node is; it runs there. Nothing is changed.

    Raises:
        InfrastructureError: it cannot be used; says why.
    """
    refuse_directory(Path(question.work_directory))
    return facts_here(question)


@dataclass(frozen=True)
class PlacedFiles:
    """Files on their way to a node."""

    directory: str
    files: Mapping[str, str] = field(repr=False)
    """Contents as base64, by path below the directory."""


def write_placed(placed: PlacedFiles) -> int:
    """Writes them on this machine, and returns how many; see `HostAccess.place`.

    Raises:
        InfrastructureError: they cannot be written.
    """
    files = {name: base64.b64decode(content) for name, content in placed.files.items()}
    write_files(files, PurePosixPath(placed.directory))
    return len(files)
