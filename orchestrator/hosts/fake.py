"""A host that is none: told what it is, for tests of what is built on hosts."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.config import Host, HostState
from orchestrator.environments import BuiltImage, ImageIdentity, Looked, StoredImage
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.access import Answer, Argument, HostFacts, SystemDescription
from orchestrator.hosts.check import Check, Finding, HostReport, Level, Requirements
from orchestrator.hosts.local import call_here
from runners.system import SystemRoot, describe_system


@dataclass
class FakeEngine:
    """An engine of which is told what it has; see `HostEngine`."""

    images: dict[str, ImageIdentity] = field(default_factory=dict)
    """By the id that they are recorded with."""
    containers: dict[str, list[str]] = field(default_factory=dict)
    """Names of containers by campaign."""
    pulls: set[str] = field(default_factory=set)
    """Ids of the images that a registry has."""
    shares: bool = True
    """Whether containers see the directories of the host."""

    def look(self, image: StoredImage) -> Looked:
        """See `HostEngine.look`."""
        return Looked(self.images.get(image.image_id or ""), next(iter(self.images.values()), None))

    def pull(self, image: StoredImage) -> ImageIdentity:
        """See `HostEngine.pull`."""
        if image.image_id not in self.pulls:
            raise InfrastructureError(f"{image.registry_digest} cannot be pulled: no registry has it")
        return self._take(image.environment, image.image_id, image.identity)

    def send(self, image: BuiltImage, say: Callable[[str], None]) -> ImageIdentity:
        """See `HostEngine.send`."""
        say(f"sending {image.reference}")
        return self._take(image.reference, image.image_id, image.identity)

    def remove_containers(self, campaign_id: str) -> list[str]:
        """See `HostEngine.remove_containers`."""
        return self.containers.pop(campaign_id, [])

    def sharing_problem(self, directory: str, image: ImageIdentity) -> str | None:
        """See `HostEngine.sharing_problem`."""
        if image not in self.images.values():
            raise InfrastructureError(f"its engine refused: no such image: {image.image_id}")
        return None if self.shares else f"its engine does not see {directory} as this node does"

    def _take(self, name: str, image_id: str, identity: ImageIdentity | None) -> ImageIdentity:
        if identity is None:
            raise InfrastructureError(f"too little is recorded about {name}")
        self.images[image_id] = identity
        return identity


@dataclass
class FakeHost:
    """A host of which is told what it is; see `HostAccess`."""

    name: str
    settings: Host
    told: HostFacts | InfrastructureError
    """Its facts, or why it cannot be used."""
    fake_engine: FakeEngine | None = None
    """Null for a host without an engine."""
    answers: Mapping[Callable[..., Any], Any] = field(default_factory=dict)
    """By function, what it answers instead of running here; an InfrastructureError is raised."""
    offered: int | None = None
    """Its slots."""
    looks: int = 0
    """How often its facts were asked for."""

    def facts(self) -> HostFacts:
        """See `HostAccess.facts`."""
        self.looks += 1
        if isinstance(self.told, InfrastructureError):
            raise self.told
        return self.told

    def call(self, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:
        """See `HostAccess.call`."""
        if function not in self.answers:
            return call_here(function, argument, timeout_s)
        answer = self.answers[function]
        if isinstance(answer, InfrastructureError):
            raise answer
        known: Answer = answer
        return known

    @contextmanager
    def engine(self) -> Iterator[FakeEngine]:
        """See `HostAccess.engine`."""
        if self.fake_engine is None:
            raise InfrastructureError("no Docker engine answers")
        yield self.fake_engine

    def slots(self) -> int | None:
        """See `HostAccess.slots`."""
        return self.offered

    def check(self, wanted: Requirements, timeout_s: float) -> HostReport:  # noqa: ARG002 - the interface
        """See `HostAccess.check`."""
        problem = str(self.told) if isinstance(self.told, InfrastructureError) else None
        reached = Finding(Level.OK, "ok") if problem is None else Finding(Level.FAILURE, "no", problem)
        findings = dict.fromkeys(Check, Finding(Level.NONE, "-")) | {Check.SSH: reached}
        return HostReport(self.name, self.settings.state is HostState.ACTIVE, findings)

    def describe(self, timeout_s: float) -> SystemDescription:  # noqa: ARG002 - the interface
        """See `HostAccess.describe`."""
        if isinstance(self.told, InfrastructureError):
            raise self.told
        return SystemDescription("as it was told", describe_system(SystemRoot()))


@dataclass(frozen=True)
class Exercise:
    """A call of `exercise`."""

    words: tuple[str, ...]
    path: Path | None = None
    wait_s: float = 0.0
    problem: str | None = None
    """With which it fails."""
    bug: str | None = None
    """The same, as if the function were wrong."""


def exercise(told: Exercise) -> Exercise:
    """Does on a host what it is told, and answers with its argument: for tests of calls.

    Raises:
        InfrastructureError: it is told to.
    """
    time.sleep(told.wait_s)
    if told.problem is not None:
        raise InfrastructureError(told.problem)
    if told.bug is not None:
        raise ValueError(told.bug)
    return told
