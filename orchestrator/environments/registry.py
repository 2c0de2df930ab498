"""A registry of the lab: images are pushed by name and pulled by digest."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.environments.catalogue import Catalogue, EnvironmentEntry
from orchestrator.environments.engine import TRANSFER_TIMEOUT_S, attributes_of, connect, engine_errors, explain
from orchestrator.environments.identity import identity_of, insist
from orchestrator.environments.record import (
    RECORD,
    BuiltImage,
    image_lock,
    read_built_images,
    record_built_image,
    recorded_images,
)
from orchestrator.environments.transfer import INTERVAL_S, MEGABYTE, image_present
from orchestrator.errors import ConfigurationError, InfrastructureError, Say

_REGISTRY = re.compile(r"(?P<host>[A-Za-z0-9.-]+)(?P<port>:\d{1,5})?(?P<prefix>(/[a-z0-9]+([._-][a-z0-9]+)*)*)")


def push_images(names: Sequence[str], catalogue: Path, registry: str, say: Say) -> dict[str, str]:
    """Pushes the images of these environments, or all that are recorded, and records their digests."""
    place = check_registry(registry)
    known = Catalogue.load(catalogue)
    entries = [known.entry(name) for name in recorded_images(names, catalogue)]
    digests: dict[str, str] = {}
    with closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as client:
        for entry in entries:
            with image_lock(entry, say):
                [image] = recorded_images([entry.name], catalogue).values()
                digests[entry.name] = push_image(client, image, place, say)
                _record_digest(entry, image, digests[entry.name], say)
    return digests


def pull_images(names: Sequence[str], catalogue: Path, engine: str | None, say: Say) -> dict[str, BuiltImage]:
    """Pulls the images of these environments by their recorded digests, or all that were pushed."""
    images = recorded_images(names, catalogue)
    if not names:
        images = {name: image for name, image in images.items() if image.repo_digest is not None} or images
    with closing(connect(engine, TRANSFER_TIMEOUT_S)) as client:
        for image in images.values():
            pull_image(client, image, say)
    return images


def check_registry(registry: str) -> str:
    """A registry as it is written in front of an image's name."""
    match = _REGISTRY.fullmatch(registry.removesuffix("/"))
    # Without a dot or a port engines take the first word for a user of Docker Hub.
    if match is None or ("." not in match["host"] and not match["port"] and match["host"] != "localhost"):
        raise ConfigurationError(
            f"--registry {registry} is no registry: expected HOST[:PORT][/PREFIX], such as registry.lab:5000/bench"
        )
    return match[0]


def push_image(client: DockerClient, image: BuiltImage, registry: str, say: Say) -> str:
    """Pushes an image and returns the digest by which the registry has it, as HOST/NAME@sha256:…."""
    repository, _, tag = f"{registry}/{image.reference}".rpartition(":")
    with engine_errors(f"{image.reference} cannot be pushed to {registry}", about_a_registry=True):
        attributes = attributes_of(client, image.reference)
        if attributes is None:
            raise InfrastructureError(f"the engine does not have {image.reference}; `taxmeter images build` makes it")
        insist(image.identity, identity_of(attributes), image.reference, "it was not pushed")
        client.images.get(attributes["Id"]).tag(repository, tag)
        events = client.api.push(repository, tag=tag, stream=True, decode=True)
        digest = follow(events, f"pushing {image.reference}", say)
    if digest is None:
        raise InfrastructureError(f"{registry} took {image.reference}, but told no digest; push it again")
    return f"{repository}@{digest}"


def pull_image(client: DockerClient, image: BuiltImage, say: Say) -> dict[str, Any]:
    """Pulls a recorded image by its digest, proves that it is the recorded one, and only then names it.

    Returns what the engine's `inspect` says about it. Where the engine has the identical image nothing is pulled.
    """
    if image.repo_digest is None:
        raise ConfigurationError(
            f"{image.reference} was never pushed: `taxmeter images push --registry HOST` where it is does so"
        )
    with engine_errors(f"{image.reference} cannot be pulled from {image.repo_digest}", about_a_registry=True):
        present = image_present(client, image.reference, image.identity, say)
        if present is not None:
            return present
        pull_digest(client, image.repo_digest, f"pulling {image.reference}", say)
        attributes = attributes_of(client, image.repo_digest)
        if attributes is None:
            raise InfrastructureError(f"{image.repo_digest} was pulled, but the engine does not have it")
        insist(
            image.identity,
            identity_of(attributes),
            f"what {image.repo_digest.partition('@')[0]} gave",
            "it is not used",
        )
        client.images.get(attributes["Id"]).tag(image.reference)
    return attributes


def pull_digest(client: DockerClient, digest: str, what: str, say: Say) -> None:
    """Has an engine pull HOST/NAME@sha256:…; `what` is said with the progress.

    Raises:
        docker.errors.DockerException: the engine failed.
        InfrastructureError: the registry refuses.
    """
    repository, _, tag = digest.partition("@")
    follow(client.api.pull(repository, tag=tag, stream=True, decode=True), what, say)


def follow(
    events: Iterable[Mapping[str, Any]], what: str, say: Say, clock: Callable[[], float] = time.monotonic
) -> str | None:
    """Reads the events of a push or pull to their end, and says every few seconds how far all layers are.

    Returns the digest that a push ends with.
    """
    digest: str | None = None
    sizes: dict[str, tuple[int, int]] = {}
    last = clock()
    for event in events:
        if "error" in event:
            raise InfrastructureError(f"{what} failed: {explain(str(event['error']), about_a_registry=True)}")
        digest = (event.get("aux") or {}).get("Digest", digest)
        layer, detail = str(event.get("id")), event.get("progressDetail") or {}
        # Unpacking counts again from nothing: only the transfer itself is told.
        if detail.get("total") and event.get("status") in ("Pushing", "Downloading"):
            sizes[layer] = int(detail.get("current") or 0), int(detail["total"])
        elif layer in sizes and event.get("status") in ("Pushed", "Download complete"):
            sizes[layer] = sizes[layer][1], sizes[layer][1]
        if sizes and clock() - last >= INTERVAL_S:
            last = clock()
            done = sum(min(current, total) for current, total in sizes.values())
            of = sum(total for _, total in sizes.values())
            say(f"{what}: {done // MEGABYTE} of {of // MEGABYTE} MB")
    return digest


def _record_digest(entry: EnvironmentEntry, pushed: BuiltImage, digest: str, say: Say) -> None:
    # Minutes have passed, and the lock keeps commands out, but no editor.
    recorded = read_built_images(entry.directory / RECORD).get(entry.name)
    if recorded is None or recorded.layers != pushed.layers:
        say(f"{entry.name} is another image in {RECORD} meanwhile, so the digest {digest} is not recorded")
    else:
        record_built_image(entry, recorded.model_copy(update={"repo_digest": digest}))
