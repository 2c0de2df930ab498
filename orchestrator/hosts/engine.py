"""The engine of a host as a campaign uses it: asked by this process, or by one on the host itself."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from docker.errors import APIError, ContainerError
from docker.types import Mount

from orchestrator.environments import (
    TRANSFER_TIMEOUT_S,
    UNLABELLED,
    BuiltImage,
    ImageIdentity,
    Looked,
    StoredImage,
    connect,
    copy_image,
    engine_errors,
    engine_message,
    identity_of,
    look_for_image,
    pull_stored_image,
)
from orchestrator.errors import InfrastructureError
from orchestrator.execution import remove_containers
from orchestrator.hosts.calls import Answer, Argument

PULL_S = 3600.0
_ANSWER_S = 120.0
_MARK_AT = "/taxmeter-shared"


@dataclass(frozen=True)
class EngineAt:
    """An engine that this process reaches; see `HostEngine`."""

    address: str | None
    """Null for DOCKER_HOST or the usual socket."""
    marked: Callable[[str], AbstractContextManager[str]]
    """A new file in a directory of the host, which is made, by its path there; it is removed after the block."""

    def look(self, image: StoredImage) -> Looked:
        """See `HostEngine.look`."""
        return look_for_image(image, self.address)

    def pull(self, image: StoredImage) -> ImageIdentity:
        """See `HostEngine.pull`."""
        return pull_stored_image(image, self.address, _say_nothing)

    def send(self, image: BuiltImage, say: Callable[[str], None]) -> ImageIdentity:
        """See `HostEngine.send`."""
        with (
            closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as source,
            closing(connect(self.address, TRANSFER_TIMEOUT_S)) as target,
        ):
            return identity_of(copy_image(image.reference, image.identity, source, target, say))

    def remove_containers(self, campaign_id: str) -> list[str]:
        """See `HostEngine.remove_containers`."""
        return remove_containers(self.address, campaign_id)

    def sharing_problem(self, directory: str, image: ImageIdentity) -> str | None:
        """See `HostEngine.sharing_problem`."""
        advice = (
            f"its engine does not see {directory} as this node does: where the node is a container itself, mount that "
            "directory of the engine's machine into it, under the same path"
        )
        with (
            self.marked(directory) as mark,
            engine_errors("its engine refused"),
            closing(connect(self.address)) as client,
        ):
            try:
                client.containers.run(
                    image.image_id,
                    ["test", "-e", _MARK_AT],
                    # A mount, not a volume: an engine makes a directory for a volume that is not there. And the file
                    # itself, because the directory may be closed for the image's user.
                    mounts=[Mount(target=_MARK_AT, source=mark, type="bind", read_only=True)],
                    network_mode="none",
                    cap_drop=["ALL"],
                    security_opt=["no-new-privileges", UNLABELLED],
                    remove=True,
                )
            except ContainerError:
                return advice
            except APIError as error:
                if "bind source path does not exist" in engine_message(error):
                    return advice
                raise
        return None


@contextmanager
def marked_here(directory: str) -> Iterator[str]:
    """A new file in a directory of this machine, which is made; see `EngineAt.marked`.

    Raises:
        InfrastructureError: it cannot be written.
    """
    mark = Path(directory) / mark_name()
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError as error:
        raise InfrastructureError(f"{directory} cannot be written: {error.strerror or error}") from error
    try:
        yield str(mark)
    finally:
        mark.unlink(missing_ok=True)


def mark_name() -> str:
    """Of a file that nobody else has."""
    return f".shared-{secrets.token_hex(8)}"


class Call(Protocol):
    """`HostAccess.call`."""

    def __call__(self, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer: ...


@dataclass(frozen=True)
class ImageQuestion:
    """An image that the engine of the host is asked for."""

    engine: str | None
    """Its address there."""
    image: StoredImage


@dataclass(frozen=True)
class ContainersQuestion:
    """A campaign whose containers are to go."""

    engine: str | None
    campaign_id: str


@dataclass(frozen=True)
class SharingQuestion:
    """A directory that containers are to see."""

    engine: str | None
    directory: str
    image: ImageIdentity


@dataclass(frozen=True)
class EngineThere:
    """An engine that only processes on its host reach; see `HostEngine`."""

    address: str | None
    """As they have it."""
    call: Call
    send_image: Callable[[BuiltImage, Callable[[str], None]], ImageIdentity]

    def look(self, image: StoredImage) -> Looked:
        """See `HostEngine.look`."""
        return self.call(look_here, ImageQuestion(self.address, image), _ANSWER_S)

    def pull(self, image: StoredImage) -> ImageIdentity:
        """See `HostEngine.pull`."""
        return self.call(pull_image, ImageQuestion(self.address, image), PULL_S)

    def send(self, image: BuiltImage, say: Callable[[str], None]) -> ImageIdentity:
        """See `HostEngine.send`."""
        return self.send_image(image, say)

    def remove_containers(self, campaign_id: str) -> list[str]:
        """See `HostEngine.remove_containers`."""
        return self.call(remove_campaign, ContainersQuestion(self.address, campaign_id), _ANSWER_S)

    def sharing_problem(self, directory: str, image: ImageIdentity) -> str | None:
        """See `HostEngine.sharing_problem`."""
        return self.call(find_sharing_problem, SharingQuestion(self.address, directory, image), _ANSWER_S)


def look_here(question: ImageQuestion) -> Looked:
    """`HostEngine.look` on the host."""
    return EngineAt(question.engine, marked_here).look(question.image)


def pull_image(question: ImageQuestion) -> ImageIdentity:
    """`HostEngine.pull` on the host."""
    return EngineAt(question.engine, marked_here).pull(question.image)


def remove_campaign(question: ContainersQuestion) -> list[str]:
    """`HostEngine.remove_containers` on the host."""
    return EngineAt(question.engine, marked_here).remove_containers(question.campaign_id)


def find_sharing_problem(question: SharingQuestion) -> str | None:
    """`HostEngine.sharing_problem` on the host."""
    return EngineAt(question.engine, marked_here).sharing_problem(question.directory, question.image)


def _say_nothing(_: str) -> None:
    pass
