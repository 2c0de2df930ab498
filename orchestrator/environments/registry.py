"""A registry of the lab: images are pushed by name and pulled by digest."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from docker import DockerClient

from orchestrator.environments.engine import attributes_of
from orchestrator.environments.expectation import expected_of, insist
from orchestrator.environments.identity import differences, identity_of
from orchestrator.environments.messages import engine_errors, explain_registry
from orchestrator.environments.progress import LayerProgress
from orchestrator.environments.record import BuiltImage
from orchestrator.errors import ConfigurationError, InfrastructureError

_REGISTRY = re.compile(r"(?P<host>[A-Za-z0-9.-]+)(?P<port>:\d{1,5})?(?P<prefix>(/[a-z0-9]+([._-][a-z0-9]+)*)*)")


def check_registry(registry: str) -> str:
    """A registry as it is written in front of an image's name.

    Raises:
        ConfigurationError: it is no HOST[:PORT][/PREFIX].
    """
    match = _REGISTRY.fullmatch(registry.removesuffix("/"))
    # Without a dot or a port engines take the first word for a user of Docker Hub.
    if match is None or ("." not in match["host"] and not match["port"] and match["host"] != "localhost"):
        raise ConfigurationError(
            f"--registry {registry} is no registry: expected HOST[:PORT][/PREFIX], such as registry.lab:5000/bench"
        )
    return match[0]


def push_image(client: DockerClient, image: BuiltImage, registry: str, say: Callable[[str], None]) -> str:
    """Pushes an image and returns the digest by which the registry has it, as HOST/NAME@sha256:….

    Args:
        client: a connection to an engine that has the image.
        image: the image as it is recorded.
        registry: HOST[:PORT][/PREFIX], checked.
        say: told about progress.

    Raises:
        ConfigurationError: too little is recorded about the image.
        InfrastructureError: the engine has not this image, or the registry cannot be reached or refuses.
    """
    expected = expected_of(image)
    repository, _, tag = f"{registry}/{image.reference}".rpartition(":")
    with engine_errors(f"{image.reference} cannot be pushed to {registry}", about_a_registry=True):
        attributes = attributes_of(client, image.reference)
        if attributes is None:
            raise InfrastructureError(f"the engine does not have {image.reference}; `taxmeter images build` makes it")
        insist(expected, identity_of(attributes), image.reference, "it was not pushed")
        client.images.get(attributes["Id"]).tag(repository, tag)
        events = client.api.push(repository, tag=tag, stream=True, decode=True)
        digest = follow(events, LayerProgress(f"pushing {image.reference}", say))
    if digest is None:
        raise InfrastructureError(f"{registry} took {image.reference}, but told no digest; push it again")
    return f"{repository}@{digest}"


def pull_image(client: DockerClient, image: BuiltImage, say: Callable[[str], None]) -> dict[str, Any]:
    """Pulls a recorded image by its digest, proves that it is the recorded one, and only then names it.

    Returns what the engine's `inspect` says about it. Where the engine has the identical image nothing is pulled.

    Raises:
        ConfigurationError: the image was never pushed, or too little is recorded about it.
        InfrastructureError: the registry cannot be reached or refuses, or gives something else.
    """
    expected = expected_of(image)
    if image.repo_digest is None:
        raise ConfigurationError(
            f"{image.reference} was never pushed: `taxmeter images push --registry HOST` where it is does so"
        )
    with engine_errors(f"{image.reference} cannot be pulled from {image.repo_digest}", about_a_registry=True):
        present = attributes_of(client, image.reference)
        if present is not None and not differences(expected, identity_of(present)):
            say(f"the engine has {image.reference} already")
            return present
        repository, _, digest = image.repo_digest.partition("@")
        events = client.api.pull(repository, tag=digest, stream=True, decode=True)
        follow(events, LayerProgress(f"pulling {image.reference}", say))
        attributes = attributes_of(client, image.repo_digest)
        if attributes is None:
            raise InfrastructureError(f"{image.repo_digest} was pulled, but the engine does not have it")
        insist(expected, identity_of(attributes), f"what {repository} gave", "it is not used")
        client.images.get(attributes["Id"]).tag(image.reference)
    return attributes


def follow(events: Iterable[Mapping[str, Any]], progress: LayerProgress) -> str | None:
    """Reads the events of a push or pull to their end. Returns the digest that a push ends with.

    Raises:
        InfrastructureError: one of them is an error.
    """
    digest: str | None = None
    for event in events:
        if "error" in event:
            raise InfrastructureError(f"{progress.what} failed: {explain_registry(str(event['error']))}")
        progress.event(event)
        digest = (event.get("aux") or {}).get("Digest", digest)
    return digest
