"""A host that is told what it is, for tests of what is built on hosts."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from orchestrator.config import Host
from orchestrator.environments import BuiltImage, ImageIdentity, ImageLookup, StoredImage
from orchestrator.errors import InfrastructureError
from orchestrator.hosts import HostFacts
from orchestrator.hosts.local import LocalHost
from orchestrator.planning import GpuFacts, Isolation
from runners.system import GpuPlace, Topology

NO_ENGINE = "no Docker engine answers"


class FakeEngine:
    """What it has, by the id that it is recorded with; and the ids of what a registry has."""

    def __init__(self, *images: ImageIdentity, shares: bool = True) -> None:
        self.images = {image.image_id: image for image in images}
        self.containers: dict[str, list[str]] = {}
        """Names by campaign."""
        self.pulls: set[str] = set()
        self.shares = shares

    def look(self, image: StoredImage) -> ImageLookup:
        return ImageLookup(self.images.get(image.image_id or ""), next(iter(self.images.values()), None))

    def pull(self, image: StoredImage) -> ImageIdentity:
        if image.image_id not in self.pulls:
            raise InfrastructureError(f"{image.registry_digest} cannot be pulled: no registry has it")
        self.images[image.image_id] = image.identity
        return image.identity

    def send(self, image: BuiltImage, say: Callable[[str], None]) -> ImageIdentity:
        self.images[image.image_id] = image.identity
        return image.identity

    def remove_containers(self, campaign_id: str) -> list[str]:
        return self.containers.pop(campaign_id, [])

    def sharing_problem(self, directory: str, image: ImageIdentity) -> str | None:
        if image not in self.images.values():
            raise InfrastructureError(f"its engine refused: no such image: {image.image_id}")
        return None if self.shares else f"its engine does not see {directory} as this node does"


class FakeHost(LocalHost):
    """Its facts, or why it cannot be used; its engine; and by function what it answers instead of running it."""

    def __init__(
        self, name: str, settings: Host, told: HostFacts | InfrastructureError, engine: FakeEngine | None = None
    ) -> None:
        super().__init__(name, settings, "/nowhere")
        self.told, self.fake_engine = told, engine
        self.answers: Mapping[Callable[..., Any], Any] = {}
        self.offered: int | None = None

    def facts(self) -> HostFacts:
        return told(self.told)

    def call(self, function: Callable[..., Any], argument: object, timeout_s: float) -> Any:
        return told(self.answers[function]) if function in self.answers else super().call(function, argument, timeout_s)

    @contextmanager
    def engine(self) -> Iterator[FakeEngine]:
        yield told(self.fake_engine or InfrastructureError(NO_ENGINE))

    def slots(self) -> int | None:
        return self.offered


def told(answer: Any) -> Any:
    if isinstance(answer, InfrastructureError):
        raise answer
    return answer


def host_facts(host: str, *gpus: GpuFacts, **changes: Any) -> HostFacts:
    """What a machine of two cores with these GPUs and without an engine tells of itself."""
    driver, reason = ("535.183.01", None) if gpus else (None, "NVML does not start")
    topology = Topology(gpus=tuple(GpuPlace(f"GPU-{number}", None) for number in range(len(gpus))))
    rest = ("x86_64", None, gpus, driver, reason, topology, Isolation.PROCESS, NO_ENGINE, None, "/nowhere")
    return replace(HostFacts(host, (0, 1), 10**10, *rest), **changes)
