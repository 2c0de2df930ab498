"""Has the recorded image of an environment on an engine: found there, or brought from where else it is."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

from docker import DockerClient

from orchestrator.environments.catalogue import EnvironmentEntry
from orchestrator.environments.engine import TRANSFER_TIMEOUT_S, attributes_of, connect, engine_address
from orchestrator.environments.expectation import recorded_differences
from orchestrator.environments.identity import identity_of
from orchestrator.environments.record import RECORD, BuiltImage
from orchestrator.environments.recording import LABEL_RECIPE
from orchestrator.environments.registry import pull_image
from orchestrator.environments.transfer import copy_image
from orchestrator.errors import ConfigurationError, InfrastructureError


def find_image(
    client: DockerClient, reference: str, recipe: str, recorded: BuiltImage | None, any_of_the_recipe: bool = False
) -> dict[str, Any] | None:
    """What the engine says about the image of a recipe; its tag may be gone while its labels still tell what it is.

    Args:
        client: a connection to the engine.
        reference: the name that the image has, or is given.
        recipe: the recipe's digest.
        recorded: the only image that is given the name if no image has it; if null, the newest of the recipe.
        any_of_the_recipe: another one than the recorded may be given the name too.
    """
    attributes = attributes_of(client, reference)
    if attributes is None:
        images = client.images.list(filters={"label": [f"{LABEL_RECIPE}={recipe}"]})
        fitting = [image for image in images if recorded is None or _is(recorded, image.attrs)]
        images = fitting or (images if any_of_the_recipe else [])
        if not images:
            return None
        max(images, key=lambda image: str(image.attrs["Created"])).tag(reference)
        attributes = attributes_of(client, reference)
    labels = ((attributes or {}).get("Config") or {}).get("Labels") or {}
    return attributes if labels.get(LABEL_RECIPE) == recipe else None


def bring_image(
    entry: EnvironmentEntry, recorded: BuiltImage, address: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Brings the recorded image of an environment onto the engine at `address`: from a registry, or another engine.

    Raises:
        InfrastructureError: it is nowhere to be had; the message says why for each place.
    """
    reasons = [f"the engine at {address} does not have it"]
    if recorded.identity is None:
        reasons.append("an earlier version recorded too little to know it elsewhere")
    else:
        for way in (_pulled, _copied):
            try:
                attributes = way(recorded, address, say)
            except (ConfigurationError, InfrastructureError) as error:
                reasons.append(str(error))
            else:
                if isinstance(attributes, dict):
                    return attributes
                reasons.append(attributes)
    raise InfrastructureError(
        f"the recorded image {recorded.image_id} of {entry.name} cannot be had: {'; '.join(reasons)}. Mend that, bring "
        f"it with `taxmeter images load`, or `taxmeter images build --from-scratch {entry.name}` makes another one in "
        "its place"
    )


def refuse_another(entry: EnvironmentEntry, recorded: BuiltImage, attributes: dict[str, Any], address: str) -> None:
    """Refuses what an engine has under the name of the recorded image, if it is another one.

    Raises:
        ConfigurationError: it is; the message says in what.
    """
    found = identity_of(attributes)
    wrong = recorded_differences(recorded, found)
    if wrong:
        raise ConfigurationError(
            f"the engine at {address} has another image as {recorded.reference}: recorded {recorded.image_id}, "
            f"found {found.image_id}; {'; '.join(wrong)}. Bring the recorded one back (`taxmeter images pull`, `load` "
            f"or `copy`), or take this one from now on: `taxmeter images build --accept {entry.name}`",
            file=entry.directory / RECORD,
            key=f"images.{entry.name}",
        )


def _is(recorded: BuiltImage, attributes: dict[str, Any]) -> bool:
    return not recorded_differences(recorded, identity_of(attributes))


def _pulled(recorded: BuiltImage, address: str, say: Callable[[str], None]) -> dict[str, Any] | str:
    """What the engine then says about the image, or why this way is none."""
    if recorded.repo_digest is None:
        return "it was never pushed to a registry"
    with closing(connect(address, TRANSFER_TIMEOUT_S)) as client:
        return pull_image(client, recorded, say)


def _copied(recorded: BuiltImage, address: str, say: Callable[[str], None]) -> dict[str, Any] | str:
    """What the engine then says about the image, or why this way is none."""
    home = engine_address()
    if home == address:
        return "there is no other engine to copy it from"
    with closing(connect(home, TRANSFER_TIMEOUT_S)) as source, closing(connect(address, TRANSFER_TIMEOUT_S)) as target:
        return copy_image(recorded, source, target, say)
