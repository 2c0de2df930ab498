"""What is recorded about an image that an engine has."""

from collections.abc import Callable, Mapping
from typing import Any

from docker import DockerClient

from orchestrator.environments.engine import attributes_of
from orchestrator.environments.expectation import recorded_differences
from orchestrator.environments.identity import ImageIdentity, identity_of
from orchestrator.environments.observation import observe
from orchestrator.environments.record import BuiltImage
from orchestrator.errors import InfrastructureError

LABEL_ENVIRONMENT = "org.taxmeter.environment"
LABEL_BASE = "org.taxmeter.base"
LABEL_BASE_ID = "org.taxmeter.base-id"
LABEL_LOCK = "org.taxmeter.lock-sha256"
LABEL_RECIPE = "org.taxmeter.recipe-sha256"


def describe(
    reference: str,
    attributes: Mapping[str, Any],
    recorded: BuiltImage | None,
    client: DockerClient,
    say: Callable[[str], None],
) -> BuiltImage:
    """The record of an image, with what is observed inside unless that is recorded already.

    Args:
        reference: its name on the engine.
        attributes: what the engine's `inspect` says.
        recorded: what is known of this environment's image so far; kept as far as it is the same image.
        client: a connection to the engine.
        say: told before the image is looked into.

    Raises:
        InfrastructureError: the image is none of ours, or its frameworks cannot be imported.
    """
    labels = labels_of(attributes)
    found = identity_of(attributes)
    known = recorded if recorded is not None and not recorded_differences(recorded, found) else None
    versions = known.versions if known else None
    facts = known.facts if known else None
    if versions is None or facts is None:
        say(f"looking at what is installed in {reference}")
        seen = observe(client, found.image_id)
        versions, facts = dict(seen.versions), dict(seen.facts)
    return BuiltImage(
        # The id of the first engine: others may call the same content differently, which is then no other image.
        image_id=known.image_id if known else found.image_id,
        reference=reference,
        repo_digest=known.repo_digest if known else None,
        layers=found.layers,
        lock_sha256=labels[LABEL_LOCK],
        recipe_sha256=labels[LABEL_RECIPE],
        base=labels[LABEL_BASE],
        base_image_id=labels.get(LABEL_BASE_ID),
        config_sha256=found.config_sha256,
        size_bytes=known.size_bytes if known and known.size_bytes else attributes.get("Size"),
        versions=versions,
        facts=facts,
    )


def identity_on(client: DockerClient, image: BuiltImage) -> ImageIdentity:
    """The identity of an image as this engine has it: with its own id, under which it must be started.

    Raises:
        InfrastructureError: the engine does not have it.
    """
    attributes = attributes_of(client, image.reference)
    if attributes is None:
        raise InfrastructureError(f"the engine does not have {image.reference}; `taxmeter images build` makes it")
    return identity_of(attributes)


def labels_of(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The labels by which an image of an environment is known.

    Raises:
        InfrastructureError: it has none of them.
    """
    labels = (attributes.get("Config") or {}).get("Labels") or {}
    missing = [name for name in (LABEL_ENVIRONMENT, LABEL_LOCK, LABEL_RECIPE, LABEL_BASE) if name not in labels]
    if missing:
        raise InfrastructureError(f"{attributes['Id']} is no image of an environment: it has no label {missing[0]}")
    return dict(labels)


def reference_of(attributes: Mapping[str, Any]) -> str:
    """The name that an image of an environment has on every engine.

    Raises:
        InfrastructureError: it is no image of an environment.
    """
    labels = labels_of(attributes)
    return f"taxmeter/{labels[LABEL_ENVIRONMENT]}:{labels[LABEL_RECIPE][:12]}"
