"""An image on its way from this machine's engine to others that no connection of ours leads to."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from orchestrator.environments.engine import TRANSFER_TIMEOUT_S, connect, engine_address
from orchestrator.environments.expectation import expected_of
from orchestrator.environments.identity import ImageIdentity, identity_of
from orchestrator.environments.messages import engine_errors
from orchestrator.environments.progress import counted
from orchestrator.environments.record import BuiltImage
from orchestrator.environments.transfer import image_present, load_identical
from orchestrator.errors import InfrastructureError

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Awaited:
    """An image that an engine is to get."""

    reference: str
    expected: ImageIdentity
    engine: str | None
    """Its address, as the machine has it on which the engine is."""


def saved_image(image: BuiltImage, say: Callable[[str], None]) -> Iterator[bytes]:
    """The bytes of a recorded image, as this machine's engine saves it.

    Raises:
        ConfigurationError: too little is recorded about the image.
        InfrastructureError: the engine has another image or none, or fails.
    """
    expected = expected_of(image)
    what = f"{image.reference} cannot be sent"
    with engine_errors(what), closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as client:
        found = image_present(client, image.reference, expected)
        if found is None:
            raise InfrastructureError(f"the engine at {engine_address()} does not have {image.reference} as recorded")
        yield from counted(client.api.get_image(found["Id"], _CHUNK_BYTES), f"sending {image.reference}", say)


def receive_image(awaited: Awaited, chunks: Iterator[bytes]) -> ImageIdentity:
    """Loads what `saved_image` gave, and proves that it is what is awaited. What is cut leaves no image behind.

    Raises:
        InfrastructureError: what came is another image, or the engine refuses it.
    """
    what = f"{awaited.reference} cannot be loaded"
    with engine_errors(what), closing(connect(awaited.engine, TRANSFER_TIMEOUT_S)) as client:
        return identity_of(load_identical(client, chunks, awaited.expected, awaited.reference))
