"""Images without a registry: saved as a file, loaded from one, or streamed from one engine to another."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.environments.archive import read_archive
from orchestrator.environments.engine import attributes_of
from orchestrator.environments.expectation import expected_of, insist
from orchestrator.environments.identity import ImageIdentity, differences, identity_of
from orchestrator.environments.messages import ENGINE_EXCEPTIONS, engine_errors, explain
from orchestrator.environments.progress import counted
from orchestrator.environments.record import BuiltImage
from orchestrator.environments.recording import reference_of
from orchestrator.errors import InfrastructureError

_CHUNK_BYTES = 1 << 20


def save_image(client: DockerClient, image: BuiltImage, file: Path, say: Callable[[str], None]) -> None:
    """Writes an image as a file that is either whole or not there.

    Raises:
        ConfigurationError: too little is recorded about the image.
        InfrastructureError: the engine has another image or none, or the file cannot be written.
    """
    expected = expected_of(image)
    partial = file.with_name(f".{file.name}.partial-{os.getpid()}")
    try:
        with engine_errors(f"{image.reference} cannot be saved"):
            source = image_present(client, image.reference, expected)
            if source is None:
                raise InfrastructureError(f"the engine does not have {image.reference} as it is recorded")
            with partial.open("xb") as stream:
                # By its id: an archive with a name would rename what an engine has before it could be checked.
                for chunk in counted(client.api.get_image(source["Id"], _CHUNK_BYTES), f"saving {file.name}", say):
                    stream.write(chunk)
                stream.flush()
                os.fsync(stream.fileno())
        insist(expected, identity_of(read_archive(partial)), "what the engine gave", f"{file} was not written")
        partial.replace(file)
    except OSError as error:
        raise InfrastructureError(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def load_image(client: DockerClient, file: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Brings a saved image onto an engine, proves that it is what the file says, and only then names it.

    Returns what the engine's `inspect` says about it.

    Raises:
        ConfigurationError: the file is no saved image.
        InfrastructureError: the image is none of an environment, or the engine refuses it.
    """
    archived = read_archive(file)
    reference, expected = reference_of(archived), identity_of(archived)
    with engine_errors(f"{file} cannot be loaded"):
        present = attributes_of(client, reference)
        if present is not None and not differences(expected, identity_of(present)):
            say(f"the engine has {reference} already")
            return present
        return load_identical(client, counted(_chunks(file), f"loading {file.name}", say), expected, reference)


def copy_image(
    image: BuiltImage, source: DockerClient, target: DockerClient, say: Callable[[str], None]
) -> dict[str, Any]:
    """Streams a recorded image from one engine to another, without a file in between.

    Nothing is sent to an engine that has the identical image. What is interrupted leaves no image behind.
    Returns what the target's `inspect` says about it.

    Raises:
        ConfigurationError: too little is recorded about the image.
        InfrastructureError: the source has another image or none, or an engine fails.
    """
    return copy_identical(image.reference, expected_of(image), source, target, say)


def copy_identical(
    reference: str,
    expected: ImageIdentity,
    source: DockerClient,
    target: DockerClient,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """As `copy_image`, for any image that is known well enough.

    Raises:
        InfrastructureError: the source has another image or none, or an engine fails.
    """
    with engine_errors(f"{reference} cannot be copied"):
        present = image_present(target, reference, expected)
        if present is not None:
            target.images.get(present["Id"]).tag(reference)
            say(f"the engine has {reference} already")
            return present
        origin = image_present(source, reference, expected)
        if origin is None:
            raise InfrastructureError(f"the engine to copy from does not have {reference} as it is recorded")
        chunks = source.api.get_image(origin["Id"], _CHUNK_BYTES)
        return load_identical(target, counted(chunks, f"copying {reference}", say), expected, reference)


def image_present(client: DockerClient, reference: str, expected: ImageIdentity) -> dict[str, Any] | None:
    """What an engine says about the expected image, under its name or its id; null if it does not have it."""
    for name in (reference, expected.image_id):
        attributes = attributes_of(client, name)
        if attributes is not None and not differences(expected, identity_of(attributes)):
            return attributes
    return None


def load_identical(
    client: DockerClient, chunks: Iterator[bytes], expected: ImageIdentity, reference: str
) -> dict[str, Any]:
    """Has an engine load an image, proves that it is the expected one, and only then names it.

    Raises:
        InfrastructureError: it is another one, or the engine refuses it.
    """
    before = {one["Id"] for one in client.api.images(all=True)}
    loaded = [name for event in client.api.load_image(chunks) for name in _loaded(event)]
    found = next((one for one in (attributes_of(client, name) for name in loaded) if one is not None), None)
    if found is None:
        raise InfrastructureError("the engine took the archive, but has no new image")
    try:
        insist(expected, identity_of(found), "what arrived", "it is not used")
    except InfrastructureError:
        # What the engine had before is somebody's, whatever the archive said.
        if found["Id"] not in before:
            with suppress(*ENGINE_EXCEPTIONS):
                client.images.remove(found["Id"])
        raise
    client.images.get(found["Id"]).tag(reference)
    return found


def _loaded(event: dict[str, Any]) -> Iterable[str]:
    if "error" in event:
        raise InfrastructureError(f"the engine refuses the image: {explain(str(event['error']))}")
    for line in str(event.get("stream", "")).splitlines():
        if line.startswith("Loaded image"):
            yield line.partition(": ")[2].strip()


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk
