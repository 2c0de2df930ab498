"""Images without a registry: saved as a file, loaded from one, or streamed from one engine to another."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.environments.catalogue import Catalogue, recipe_sha256
from orchestrator.environments.engine import (
    ENGINE_EXCEPTIONS,
    TRANSFER_TIMEOUT_S,
    attributes_of,
    connect,
    engine_errors,
    explain,
)
from orchestrator.environments.identity import ImageIdentity, differences, identity_of, insist, read_archive
from orchestrator.environments.record import (
    LABEL_ENVIRONMENT,
    LABEL_RECIPE,
    BuiltImage,
    describe,
    image_lock,
    labels_of,
    read_built_images,
    record_built_image,
    recorded_images,
    reference_of,
)
from orchestrator.errors import ConfigurationError, InfrastructureError, Say
from orchestrator.files import exclusive

INTERVAL_S = 5.0
"""Between two lines about progress: enough to see that something moves."""

MEGABYTE = 1_000_000

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Awaited:
    """An image that an engine is to get."""

    reference: str
    expected: ImageIdentity
    engine: str | None
    """Its address, as the machine has it on which the engine is."""


def save_environment(name: str, file: Path, catalogue: Path, say: Say) -> BuiltImage:
    """Writes the recorded image of an environment as a file."""
    [image] = recorded_images([name], catalogue).values()
    with closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as client:
        save_image(client, image, file, say)
    return image


def load_environment(file: Path, catalogue: Path, engine: str | None, say: Say, *, accept: bool = False) -> str:
    """Brings a saved image onto an engine, and records it if it is made from the catalogue's recipe.

    Returns its reference.
    """
    archived = read_archive(file)
    labels = labels_of(archived)
    name, reference = labels[LABEL_ENVIRONMENT], reference_of(archived)
    entry = Catalogue.load(catalogue).entries.get(name)
    with image_lock(entry, say) if entry is not None else nullcontext():
        recorded = read_built_images(catalogue).get(name)
        if recorded is not None and recorded.recipe_sha256 != labels[LABEL_RECIPE]:
            recorded = None
        wrong = differences(recorded.identity, identity_of(archived)) if recorded is not None and not accept else ()
        if recorded is not None and wrong:
            raise ConfigurationError(
                f"it holds another image of {name} than the recorded {recorded.image_id}: {'; '.join(wrong)}; "
                "--accept takes this one from now on",
                file=file,
            )
        with closing(connect(engine, TRANSFER_TIMEOUT_S)) as client:
            attributes = load_image(client, file, say)
            if entry is not None and entry.unresolved is None and recipe_sha256(entry) == labels[LABEL_RECIPE]:
                with engine_errors(f"{reference} cannot be looked into"):
                    record_built_image(entry, describe(attributes, recorded, client, say))
            else:
                say(f"{reference} is of another recipe than {catalogue.name} has now, so it is not recorded")
    return reference


def copy_environment(name: str, catalogue: Path, target: str, source: str | None, say: Say) -> BuiltImage:
    """Streams the recorded image of an environment to another engine, unless that has it."""
    [image] = recorded_images([name], catalogue).values()
    with (
        closing(connect(source, TRANSFER_TIMEOUT_S)) as origin,
        closing(connect(target, TRANSFER_TIMEOUT_S)) as destination,
    ):
        # Two commands must not send the same gigabytes to one engine, whatever address each of them knows it by.
        with engine_errors(f"the engine at {target} failed"):
            known_as = str(destination.info().get("ID") or target)
        engine_id = "".join(letter for letter in known_as if letter.isalnum() or letter in "-_")
        lock = catalogue.absolute().parents[1] / ".taxmeter" / "locks" / f"copy-{name}-{engine_id}"
        with exclusive(lock, lambda: say(f"waiting for another command that copies {name} to {target}")):
            copy_image(image.reference, image.identity, origin, destination, say)
    return image


def save_image(client: DockerClient, image: BuiltImage, file: Path, say: Say) -> None:
    """Writes an image as a file that is either whole or not there."""
    partial = file.with_name(f".{file.name}.partial-{os.getpid()}")
    try:
        with engine_errors(f"{image.reference} cannot be saved"), partial.open("xb") as stream:
            for chunk in _saved(client, image.reference, image.identity, f"saving {file.name}", say):
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
        insist(image.identity, identity_of(read_archive(partial)), "what the engine gave", f"{file} was not written")
        partial.replace(file)
    except OSError as error:
        raise InfrastructureError(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def load_image(client: DockerClient, file: Path, say: Say) -> dict[str, Any]:
    """Brings a saved image onto an engine, proves that it is what the file says, and only then names it.

    Returns what the engine's `inspect` says about it.
    """
    archived = read_archive(file)
    reference, expected = reference_of(archived), identity_of(archived)
    with engine_errors(f"{file} cannot be loaded"):
        present = image_present(client, reference, expected, say)
        if present is not None:
            return present
        return _load_identical(client, counted(_chunks(file), f"loading {file.name}", say), expected, reference)


def copy_image(
    reference: str, expected: ImageIdentity, source: DockerClient, target: DockerClient, say: Say
) -> dict[str, Any]:
    """Streams an image from one engine to another, without a file in between.

    Nothing is sent to an engine that has the identical image. What is interrupted leaves no image behind.
    Returns what the target's `inspect` says about it.
    """
    with engine_errors(f"{reference} cannot be copied"):
        present = image_present(target, reference, expected, say)
        if present is not None:
            return present
        chunks = _saved(source, reference, expected, f"copying {reference}", say)
        return _load_identical(target, chunks, expected, reference)


def saved_image(image: BuiltImage, say: Say) -> Iterator[bytes]:
    """The bytes of a recorded image, as this machine's engine saves it."""
    with (
        engine_errors(f"{image.reference} cannot be sent"),
        closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as client,
    ):
        yield from _saved(client, image.reference, image.identity, f"sending {image.reference}", say)


def receive_image(awaited: Awaited, chunks: Iterator[bytes]) -> ImageIdentity:
    """Loads what `saved_image` gave, and proves that it is what is awaited. What is cut leaves no image behind."""
    what = f"{awaited.reference} cannot be loaded"
    with engine_errors(what), closing(connect(awaited.engine, TRANSFER_TIMEOUT_S)) as client:
        return identity_of(_load_identical(client, chunks, awaited.expected, awaited.reference))


def find_image(
    client: DockerClient, names: Iterable[str | None], expected: ImageIdentity | None
) -> dict[str, Any] | None:
    """What an engine says about an image under one of its names or ids; null if it has none that is as expected."""
    for name in filter(None, names):
        attributes = attributes_of(client, name)
        if attributes is not None and (expected is None or not differences(expected, identity_of(attributes))):
            return attributes
    return None


def image_present(client: DockerClient, reference: str, expected: ImageIdentity, say: Say) -> dict[str, Any] | None:
    """What an engine says about the expected image, which then has its name; null if the engine does not have it."""
    present = find_image(client, (reference, expected.image_id), expected)
    if present is not None:
        client.images.get(present["Id"]).tag(reference)
        say(f"the engine has {reference} already")
    return present


def counted(
    chunks: Iterable[bytes],
    what: str,
    say: Say,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """The same chunks; every few seconds it is said how much has passed."""
    last, passed = clock(), 0
    for chunk in chunks:
        passed += len(chunk)
        if clock() - last >= INTERVAL_S:
            last = clock()
            say(f"{what}: {passed // MEGABYTE} MB")
        yield chunk


def _saved(client: DockerClient, reference: str, expected: ImageIdentity, what: str, say: Say) -> Iterator[bytes]:
    """The expected image as an engine saves it, by its id: an archive with a name would rename what another has."""
    found = find_image(client, (reference, expected.image_id), expected)
    if found is None:
        raise InfrastructureError(f"the engine does not have {reference} as it is recorded")
    yield from counted(client.api.get_image(found["Id"], _CHUNK_BYTES), what, say)


def _load_identical(
    client: DockerClient, chunks: Iterator[bytes], expected: ImageIdentity, reference: str
) -> dict[str, Any]:
    """Has an engine load an image, proves that it is the expected one, and only then names it."""
    before = {image["Id"] for image in client.api.images(all=True)}
    loaded = [name for event in client.api.load_image(chunks) for name in _loaded(event)]
    found = next(filter(None, (attributes_of(client, name) for name in loaded)), None)
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
