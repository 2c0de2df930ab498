"""What a host's engine says: its version, which of our images it has, and whether its containers see the GPUs."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from orchestrator.environments import (
    ENGINE_EXCEPTIONS,
    BuiltImage,
    ImageIdentity,
    StoredImage,
    connect,
    engine_message,
    host_network_problem,
    look_for_image,
)
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.checking.container import Look, look
from orchestrator.hosts.checking.deadline import Deadline
from orchestrator.planning import Demands

OLDEST_ENGINE = (20, 10)
"""Docker of December 2020: version 2 of control groups, GPUs by request."""
OLDEST_PODMAN = (4, 0)

_ANSWER_S = 20.0
# One line for each GPU, also where the toolkit mounts devices but no tools.
_LIST_GPUS = "nvidia-smi -L 2>/dev/null || ls /dev/nvidia[0-9]* 2>/dev/null"


@dataclass(frozen=True)
class WantedImage:
    """An image that is recorded as built, and what it needs of a host."""

    built: BuiltImage
    demands: Demands


@dataclass(frozen=True)
class GpusInside:
    """What a container sees of the GPUs."""

    count: int | None
    """Null if none could be started."""
    image: str | None
    """The environment whose image was used; null without any."""
    problem: str | None
    """Why none could be started, or what went wrong in it."""


@dataclass(frozen=True)
class EngineReading:
    """An engine that answered."""

    version: str
    is_podman: bool
    root: str | None
    """Where it keeps images and containers on its host."""
    images: Mapping[str, ImageIdentity] = field(default_factory=dict)
    """The wanted images that it has, by environment, under whatever name."""
    gpus: GpusInside | None = None
    """Null if nobody looked."""
    network_problem: str | None = None
    """Why its containers cannot have the host's network, as agents must."""

    @property
    def is_too_old(self) -> bool:
        """Whether it lacks what trials need; a version that is no number is taken for new."""
        found = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        return bool(found) and found < (OLDEST_PODMAN if self.is_podman else OLDEST_ENGINE)


def read_engine(
    address: str | None, wanted: Mapping[str, WantedImage], with_gpus: bool, deadline: Deadline
) -> EngineReading:
    """Asks an engine.

    Args:
        address: of the engine.
        wanted: the images, by environment.
        with_gpus: whether containers must see GPUs.
        deadline: for all of it.

    Raises:
        InfrastructureError: it does not answer, or not in time.
    """
    with closing(connect(address, deadline.left_s(_ANSWER_S))) as client:
        try:
            version, information = client.version(), client.info()
        except ENGINE_EXCEPTIONS as error:
            raise InfrastructureError(f"the engine does not answer: {engine_message(error)}") from None
        components = " ".join(str(one.get("Name")) for one in version.get("Components") or ())
        root = information.get("DockerRootDir")
        images = _images(wanted, address, deadline)
        return EngineReading(
            version=str(version["Version"]),
            is_podman="podman" in components.lower(),
            root=str(root) if root else None,
            images=images,
            gpus=_gpus(client, images, wanted, deadline) if with_gpus else None,
            network_problem=host_network_problem(information),
        )


def _images(wanted: Mapping[str, WantedImage], address: str | None, deadline: Deadline) -> dict[str, ImageIdentity]:
    found = {}
    for name, image in wanted.items():
        built = image.built
        stored = StoredImage(name, built.image_id, built.repo_digest, built.identity)
        identity = look_for_image(stored, address, deadline.left_s(_ANSWER_S)).found
        if identity is not None:
            found[name] = identity
    return found


def _gpus(
    client: Any, images: Mapping[str, ImageIdentity], wanted: Mapping[str, WantedImage], deadline: Deadline
) -> GpusInside:
    """Any image does: what shows the GPUs comes from the host."""
    by_cuda: Sequence[str] = sorted(images, key=lambda name: wanted[name].demands.cuda is None)
    if not by_cuda:
        return GpusInside(None, None, "no image is there to look from inside")
    name = by_cuda[0]
    try:
        seen = look(client, Look(images[name].image_id, ["sh", "-c", _LIST_GPUS], gpus=True), deadline)
    except ENGINE_EXCEPTIONS as error:
        return GpusInside(None, name, engine_message(error))
    count = sum(1 for line in seen.stdout.splitlines() if re.match(r"GPU \d+:|/dev/nvidia\d+$", line.strip()))
    return GpusInside(count, name, None if count else " ".join(seen.stderr.split()) or None)
