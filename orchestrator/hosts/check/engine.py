"""What a host's engine says: its version, which of our images it has, and whether its containers see the GPUs."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orchestrator.environments import (
    ENGINE_EXCEPTIONS,
    BuiltImage,
    Catalogue,
    ImageIdentity,
    connect,
    end_of,
    engine_message,
    engine_problem,
    host_network_problem,
    look_for_image,
    read_built_images,
    remove_forgotten,
    short_container,
)
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.check.preflight import EngineSocket
from orchestrator.hosts.connection import CommandOutput, Deadline
from orchestrator.planning import Demands

OLDEST_ENGINE = (20, 10)
"""Docker of December 2020: version 2 of control groups, GPUs by request."""
OLDEST_PODMAN = (4, 0)

ALL_GPUS: Final = {"count": -1, "capabilities": [["gpu", "compute", "utility"]]}
"""What the containers of trials ask their engine for."""

CHECK_LABEL: Final = "org.taxmeter.check"
"""Every container of a check carries it; no other is touched."""

_INSIDE_S = 60
_FORGOTTEN_S = 600
_SHOWN = ("proc", "sys")

_ANSWER_S = 20.0
# One line for each GPU, also where the toolkit mounts devices but no tools.
_LIST_GPUS = "nvidia-smi -L 2>/dev/null || ls /dev/nvidia[0-9]* 2>/dev/null"


@dataclass(frozen=True)
class WantedImage:
    """An image that is recorded as built, and what it needs of a host."""

    built: BuiltImage
    demands: Demands


@dataclass(frozen=True)
class Requirements:
    """What hosts are compared with."""

    images: Mapping[str, WantedImage] = field(default_factory=dict)
    """Those that are recorded as built, by environment."""
    demands: Mapping[str, Demands] = field(default_factory=dict)
    """Of every environment of the catalogue."""
    here: frozenset[str] = frozenset()
    """Environments whose image can be brought from this machine or a registry."""


def read_requirements(catalogue: Path) -> Requirements:
    """What hosts are compared with, by a catalogue and the record beside it."""
    entries = Catalogue.load(catalogue).entries
    built = {name: image for name, image in read_built_images(catalogue).items() if name in entries}
    wanted = {name: WantedImage(image, entries[name].demands) for name, image in built.items()}
    pushed = {name for name, image in built.items() if image.repo_digest is not None}
    others = {name: image for name, image in wanted.items() if name not in pushed}
    here = images_on(None, others, Deadline(_ANSWER_S)) if others and engine_problem() is None else {}
    return Requirements(wanted, {name: entry.demands for name, entry in entries.items()}, frozenset(pushed | set(here)))


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
class EngineFacts:
    """An engine that answered."""

    version: str
    is_podman: bool
    root: str | None
    """Where it keeps images and containers on its host."""
    images: Mapping[str, ImageIdentity] = field(default_factory=dict)
    """The wanted images that it has, by environment, under whatever name."""
    gpus: GpusInside | None = None
    network_problem: str | None = None
    """Why its containers cannot have the host's network, as agents must."""

    @property
    def is_too_old(self) -> bool:
        """Whether it lacks what trials need; a version that is no number is taken for new."""
        found = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        return bool(found) and found < (OLDEST_PODMAN if self.is_podman else OLDEST_ENGINE)


@dataclass(frozen=True)
class EngineQuestion:
    """What an engine is asked."""

    address: str | None
    """As the process that asks reaches it; null for the usual one."""
    wanted: Mapping[str, WantedImage]
    """By environment."""
    with_gpus: bool
    limit_s: float


def engine_facts(question: EngineQuestion) -> EngineFacts:
    """Asks an engine."""
    deadline, address, wanted = Deadline(question.limit_s), question.address, question.wanted
    with closing(connect(address, deadline.left_s(_ANSWER_S))) as client:
        try:
            version, information = client.version(), client.info()
        except ENGINE_EXCEPTIONS as error:
            raise InfrastructureError(f"the engine does not answer: {engine_message(error)}") from None
        components = " ".join(str(component.get("Name")) for component in version.get("Components") or ())
        root = information.get("DockerRootDir")
        images = images_on(address, wanted, deadline)
        return EngineFacts(
            version=str(version["Version"]),
            is_podman="podman" in components.lower(),
            root=str(root) if root else None,
            images=images,
            gpus=_gpus(client, images, wanted, deadline) if question.with_gpus else None,
            network_problem=host_network_problem(information),
        )


def images_on(address: str | None, wanted: Mapping[str, WantedImage], deadline: Deadline) -> dict[str, ImageIdentity]:
    """Those of the wanted images that an engine has, by environment, as it has them."""
    stored = [image.built.stored(name) for name, image in wanted.items()]
    found = {image.environment: look_for_image(image, address, deadline.left_s(_ANSWER_S)).found for image in stored}
    return {name: identity for name, identity in found.items() if identity is not None}


def _gpus(
    client: Any, images: Mapping[str, ImageIdentity], wanted: Mapping[str, WantedImage], deadline: Deadline
) -> GpusInside:
    """Any image does: what shows the GPUs comes from the host."""
    by_cuda: Sequence[str] = sorted(images, key=lambda name: wanted[name].demands.cuda is None)
    if not by_cuda:
        return GpusInside(None, None, "no image is there to look from inside")
    name = by_cuda[0]
    try:
        command = ContainerCommand(images[name].image_id, ["sh", "-c", _LIST_GPUS], gpus=True)
        seen = run_in_container(client, command, deadline)
    except ENGINE_EXCEPTIONS as error:
        return GpusInside(None, name, engine_message(error))
    count = sum(1 for line in seen.stdout.splitlines() if re.match(r"GPU \d+:|/dev/nvidia\d+$", line.strip()))
    return GpusInside(count, name, None if count else " ".join(seen.stderr.split()) or None)


@dataclass(frozen=True)
class ContainerCommand:
    """What is to be run."""

    image: str
    """Its id; nothing is ever pulled."""
    command: Sequence[str]
    gpus: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Put into the container before it starts, by absolute path."""
    host_at: str | None = None
    """Below which the host's own /proc and /sys are to be seen, read-only; null: nowhere."""


def run_in_container(client: Any, wanted: ContainerCommand, deadline: Deadline) -> CommandOutput:
    """Runs a command in a container.

    Raises:
        DockerException, RequestException: the engine refused, or gave no answer in time.
    """
    client.api.timeout = deadline.left_s()
    remove_forgotten(client, f"{CHECK_LABEL}=1", _FORGOTTEN_S)
    settings = {
        "image": wanted.image,
        # The limit is inside too: nobody might be there any more to end it.
        "command": ["timeout", "-k", "2", str(_INSIDE_S), *wanted.command],
        "network_mode": "none",
        "labels": {CHECK_LABEL: "1"},
        "device_requests": [ALL_GPUS] if wanted.gpus else None,
        # No more of the host than what a fingerprint is read from.
        "volumes": {f"/{top}": {"bind": f"{wanted.host_at}/{top}", "mode": "ro"} for top in _SHOWN}
        if wanted.host_at is not None
        else None,
    }
    with short_container(client, settings, wanted.files) as container:
        try:
            client.api.timeout = deadline.left_s()
            return CommandOutput(*end_of(container, deadline.left_s(_INSIDE_S + 5)))
        finally:
            client.api.timeout = deadline.left_s() + 10


def refusal(socket: EngineSocket) -> str:
    """Why nobody answered behind a socket that is there and that we may use."""
    if socket.state == "silent":
        return f"the engine is down: nobody answers behind {socket.path}; `sudo systemctl start docker` there"
    return (
        f"its sshd does not forward to {socket.path}: allow it there with `AllowStreamLocalForwarding yes` in "
        "/etc/ssh/sshd_config, and no DisableForwarding"
    )
