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
    ImageLookup,
    StoredImage,
    connect,
    copy_image,
    engine_errors,
    engine_message,
    identity_of,
    look_for_image,
    pull_stored_image,
)
from orchestrator.errors import InfrastructureError, Say
from orchestrator.execution import remove_containers
from orchestrator.hosts.calls import Answer, Argument

PULL_S = 3600.0
_ANSWER_S = 120.0
_MARK_AT = "/taxmeter-shared"


class Call(Protocol):
    """`HostAccess.call`."""

    def __call__(self, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer: ...


@dataclass(frozen=True)
class HostEngine:
    """The engine of a host, as far as a campaign needs it.

    What is said of it raises an InfrastructureError if it does not answer, or fails.
    """

    address: str | None
    """As those reach it who ask it; null for DOCKER_HOST or the usual socket."""
    call: Call
    """Runs a function where the engine is reached."""
    send: Callable[[BuiltImage, Say], ImageIdentity]
    """Sends an image from this machine's engine, and says so. Raises an InfrastructureError if either engine failed, or
    another image arrived."""

    def look(self, image: StoredImage) -> ImageLookup:
        """The image as the engine has it, under whatever name; and the nearest to it, if it does not have it."""
        return self.call(look_here, ImageQuestion(self.address, image), _ANSWER_S)

    def pull(self, image: StoredImage) -> ImageIdentity:
        """Has the engine pull the image by its digest."""
        return self.call(pull_here, ImageQuestion(self.address, image), PULL_S)

    def remove_containers(self, campaign_id: str) -> list[str]:
        """Removes the containers of trials that a campaign left, and returns their names."""
        return self.call(remove_here, ContainersQuestion(self.address, campaign_id), _ANSWER_S)

    def sharing_problem(self, directory: str, image: ImageIdentity) -> str | None:
        """Why containers do not see a directory as the host does, in one line; null if they do."""
        return self.call(sharing_problem_here, SharingQuestion(self.address, directory, image), _ANSWER_S)


@dataclass(frozen=True)
class ForwardedEngine(HostEngine):
    """An engine that this process reaches, while the files beside it are out of its reach."""

    marked: Callable[[str], AbstractContextManager[str]]
    """A new file in a directory of the host, which is made, by its path there; it is removed after the block."""

    def sharing_problem(self, directory: str, image: ImageIdentity) -> str | None:
        return sharing_problem_here(SharingQuestion(self.address, directory, image), self.marked)


@dataclass(frozen=True)
class ImageQuestion:
    """An image that an engine is asked for."""

    engine: str | None
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


def directly(function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:  # noqa: ARG001
    """Runs a function in this process; see `HostEngine.call`."""
    return function(argument)


def look_here(question: ImageQuestion) -> ImageLookup:
    """See `HostEngine.look`."""
    return look_for_image(question.image, question.engine)


def pull_here(question: ImageQuestion) -> ImageIdentity:
    """See `HostEngine.pull`."""
    return pull_stored_image(question.image, question.engine, lambda _: None)


def remove_here(question: ContainersQuestion) -> list[str]:
    """See `HostEngine.remove_containers`."""
    return remove_containers(question.engine, question.campaign_id)


def send_to(address: str | None) -> Callable[[BuiltImage, Say], ImageIdentity]:
    """Sends images to an engine that this process reaches; see `HostEngine.send`."""

    def send(image: BuiltImage, say: Say) -> ImageIdentity:
        with (
            closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as source,
            closing(connect(address, TRANSFER_TIMEOUT_S)) as target,
        ):
            return identity_of(copy_image(image.reference, image.identity, source, target, say))

    return send


@contextmanager
def marked_here(directory: str) -> Iterator[str]:
    """A new file in a directory of this machine, which is made; see `ForwardedEngine.marked`."""
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


def sharing_problem_here(
    question: SharingQuestion, marked: Callable[[str], AbstractContextManager[str]] = marked_here
) -> str | None:
    """See `HostEngine.sharing_problem`."""
    advice = (
        f"its engine does not see {question.directory} as this node does: where the node is a container itself, mount "
        "that directory of the engine's machine into it, under the same path"
    )
    with (
        marked(question.directory) as mark,
        engine_errors("its engine refused"),
        closing(connect(question.engine)) as client,
    ):
        try:
            client.containers.run(
                question.image.image_id,
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
