"""The very image that stored trials ran in: found on an engine by what it is, else pulled by its digest.

Nothing is built, named or recorded.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any

from docker import DockerClient

from orchestrator.environments.engine import TRANSFER_TIMEOUT_S, attributes_of, connect, engine_address
from orchestrator.environments.identity import ImageIdentity, differences, identity_of
from orchestrator.environments.messages import engine_errors
from orchestrator.environments.progress import LayerProgress
from orchestrator.environments.recording import LABEL_ENVIRONMENT
from orchestrator.environments.registry import follow
from orchestrator.errors import InfrastructureError


@dataclass(frozen=True)
class StoredImage:
    """What is known of an image that trials ran in."""

    environment: str
    image_id: str | None
    """By which one engine knows it."""
    registry_digest: str | None
    """Where a registry has it, as HOST/NAME@sha256:…; null if it was never pushed."""
    identity: ImageIdentity | None
    """Null for trials from before layers and settings were stored: then the id or the digest must find it."""


@dataclass(frozen=True)
class Looked:
    """What an engine has."""

    found: ImageIdentity | None
    """The image, with the id that this engine gives it; null if it does not have it."""
    nearest: ImageIdentity | None
    """Where it does not: the newest image of the same environment that it has."""


def look_for_image(stored: StoredImage, engine: str | None, timeout_s: float = 60.0) -> Looked:
    """Looks for an image on an engine, whatever it is called there; each answer may take `timeout_s`.

    Raises:
        InfrastructureError: the engine does not answer.
    """
    with closing(connect(engine, timeout_s)) as client, _engine(engine):
        found = _find(client, stored)
        return Looked(found, None if found is not None else _nearest(client, stored))


def pull_stored_image(stored: StoredImage, engine: str | None, say: Callable[[str], None]) -> ImageIdentity:
    """Pulls an image by its digest and proves that it is the one.

    Raises:
        InfrastructureError: it was never pushed, the registry cannot be reached, or it gives another image.
    """
    digest = stored.registry_digest
    if digest is None:
        raise InfrastructureError("it was never pushed into a registry")
    repository, _, tag = digest.partition("@")
    with closing(connect(engine, TRANSFER_TIMEOUT_S)) as client:
        with engine_errors(f"{digest} cannot be pulled", about_a_registry=True):
            events = client.api.pull(repository, tag=tag, stream=True, decode=True)
            follow(events, LayerProgress(f"pulling {digest}", say))
        with _engine(engine):
            found = _find(client, stored)
    if found is None:
        raise InfrastructureError(f"{digest} was pulled, but is not the image that the trials ran in")
    return found


def _find(client: DockerClient, stored: StoredImage) -> ImageIdentity | None:
    for name in (stored.image_id, stored.registry_digest):
        attributes = None if name is None else attributes_of(client, name)
        if attributes is not None and _is(stored, attributes):
            return identity_of(attributes)
    # By its content: engines may name it differently, and another image may have taken its name.
    others = () if stored.identity is None else _of_environment(client, stored.environment)
    return next((identity_of(attributes) for attributes in others if _is(stored, attributes)), None)


def _is(stored: StoredImage, attributes: Mapping[str, Any]) -> bool:
    return stored.identity is None or not differences(stored.identity, identity_of(attributes))


def _nearest(client: DockerClient, stored: StoredImage) -> ImageIdentity | None:
    images = _of_environment(client, stored.environment)
    newest = max(images, key=lambda one: (bool(one.get("RepoTags")), str(one.get("Created"))), default=None)
    return None if newest is None else identity_of(newest)


def _of_environment(client: DockerClient, environment: str) -> list[dict[str, Any]]:
    """Also those that lost their name to another one."""
    found = client.images.list(filters={"label": [f"{LABEL_ENVIRONMENT}={environment}"]})
    return [image.attrs for image in found]


def _engine(engine: str | None) -> AbstractContextManager[None]:
    return engine_errors(f"the engine at {engine_address(engine)} failed")
