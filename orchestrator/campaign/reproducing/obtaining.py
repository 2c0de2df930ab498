"""Gets hosts the images that stored trials ran in. Nothing is built and nothing is recorded."""

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.campaign.preparing.preparation import Provided, Say, container
from orchestrator.campaign.reproducing.identical import Identity, image_identity, lacking
from orchestrator.config.inventory import Host
from orchestrator.environments import (
    BuiltImage,
    ImageIdentity,
    Looked,
    StoredImage,
    engine_address,
    look_for_image,
    pull_stored_image,
)
from orchestrator.errors import InfrastructureError
from orchestrator.planning import EnvironmentPin


def stored_image(pin: EnvironmentPin, recorded: Mapping[str, BuiltImage]) -> StoredImage:
    """The image of a stored trial.

    Args:
        pin: of the trial.
        recorded: images of this machine; one of them may tell the content of an image of which the store has the id.
    """
    digest = pin.image_digest if pin.image_digest is not None and "@" in pin.image_digest else None
    known = image_identity(pin)
    for image in recorded.values():
        is_it = image.image_id == pin.image_id or (digest is not None and image.repo_digest == digest)
        known = known or (image.identity if is_it else None)
    return StoredImage(pin.name, pin.image_id, digest, known)


def at_hand(pin: EnvironmentPin, host: Host, recorded: Mapping[str, BuiltImage]) -> Identity:
    """Whether the host's engine has the image of a stored trial, or may pull it: in what it differs, if neither.

    Raises:
        InfrastructureError: the engine does not answer.
    """
    stored = stored_image(pin, recorded)
    looked = look_for_image(stored, host.engine)
    if looked.found is not None or stored.registry_digest is not None:
        return Identity((), "image")
    return _lacking(pin, host, looked, "it was never pushed into a registry")


def obtain(
    pin: EnvironmentPin,
    host: Host,
    cores: tuple[int, ...],
    reason: str,
    recorded: Mapping[str, BuiltImage],
    say: Say,
) -> Provided | Identity:
    """The environment of a stored trial, from the engine or the registry; else in what the engine's differs.

    Args:
        pin: of the trial.
        host: where it is to run.
        cores: that trials may use there.
        reason: why it runs in a container.
        recorded: images of this machine.
        say: told about long steps.

    Raises:
        InfrastructureError: the engine does not answer.
    """
    stored = stored_image(pin, recorded)
    looked = look_for_image(stored, host.engine)
    found = looked.found
    if found is None:
        try:
            found = pull_stored_image(stored, host.engine, say)
        except InfrastructureError as error:
            return _lacking(pin, host, looked, str(error))
    return _pin(pin, found, reason), container(found, host, cores)


def _pin(stored: EnvironmentPin, found: ImageIdentity, reason: str) -> EnvironmentPin:
    """What is identical keeps its lock and its names: what the engine calls it stands in the settings."""
    return replace(stored, reason=reason, image_layers=found.layers, image_config_sha256=found.config_sha256)


def _lacking(pin: EnvironmentPin, host: Host, looked: Looked, why: str) -> Identity:
    return lacking(pin, looked.nearest, f"the engine at {engine_address(host.engine)}", why)
