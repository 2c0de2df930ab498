"""Has an image on an engine: the recorded one of an environment, found, brought or built; or that of stored trials."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.environments.build import Build, build_image
from orchestrator.environments.catalogue import DOCKERFILE, Catalogue, EnvironmentEntry, lock_sha256, recipe_sha256
from orchestrator.environments.engine import (
    TRANSFER_TIMEOUT_S,
    attributes_of,
    connect,
    engine_address,
    engine_errors,
)
from orchestrator.environments.identity import ImageIdentity, differences, identity_of
from orchestrator.environments.packages import ensure_wheels
from orchestrator.environments.record import (
    LABEL_ENVIRONMENT,
    LABEL_RECIPE,
    RECORD,
    BuiltImage,
    StoredImage,
    describe,
    image_lock,
    read_built_images,
    record_built_image,
)
from orchestrator.environments.registry import pull_digest, pull_image
from orchestrator.environments.transfer import copy_image, find_image
from orchestrator.errors import ConfigurationError, InfrastructureError, Say


@dataclass(frozen=True)
class BuildPolicy:
    """What may replace the recorded image of an environment."""

    accept: bool = False
    """Record what the engine has, although it is not what was recorded."""
    from_scratch: bool = False
    """Build again, without what the engine kept of earlier builds."""


KEEP_RECORDED = BuildPolicy()
"""Nothing may."""


@dataclass(frozen=True)
class ImageLookup:
    """What an engine has."""

    found: ImageIdentity | None
    """The image, with the id that this engine gives it; null if it does not have it."""
    nearest: ImageIdentity | None
    """Where it does not: the newest image of the same environment that it has."""


def prepare(
    names: Sequence[str], catalogue: Path, say: Say, policy: BuildPolicy = KEEP_RECORDED
) -> dict[str, BuiltImage]:
    """Makes sure that the engine has the images of these environments.

    Without names these are the environments of processors, but for those that are built only when they are named: any
    machine can use them, and they are built in minutes.
    """
    known = Catalogue.load(catalogue)
    entries = [known.entry(name) for name in names]
    if not names:
        for_processors = (
            entry
            for entry in known.entries.values()
            if entry.cuda is None and entry.unresolved is None and not entry.only_when_named
        )
        entries = sorted(for_processors, key=lambda entry: entry.name)
        left = sorted(known.entries.keys() - {entry.name for entry in entries})
        if left:
            say(f"built only when they are named: {', '.join(left)}")
    for entry in entries:
        if entry.unresolved is not None:
            raise ConfigurationError(f"{entry.name} cannot be built: {entry.unresolved}", file=known.path)
    with closing(connect()) as client:
        return {entry.name: ensure_image(entry, client, say, policy=policy) for entry in entries}


def ensure_image(
    entry: EnvironmentEntry,
    client: DockerClient,
    say: Say,
    engine: str | None = None,
    policy: BuildPolicy = KEEP_RECORDED,
) -> BuiltImage:
    """The image of `entry`, which the engine of `client` then has under its reference.

    An image that was recorded is never replaced unasked: it is taken from this engine, pulled from the registry that
    it was pushed to, or copied from the engine of this machine. One is built where none of this recipe is recorded.

    Args:
        engine: the address that `client` was made with; a build runs a command that needs it too.

    Raises:
        ConfigurationError: the engine has another image than the recorded one.
        InfrastructureError: the recorded image cannot be had; or there is none, and no client can build, the base or a
            package cannot be had, or the build fails.
    """
    recipe = recipe_sha256(entry)
    reference = f"taxmeter/{entry.name}:{recipe[:12]}"
    address = engine_address(engine)
    with image_lock(entry, say), engine_errors(f"the engine at {address} failed"):
        recorded = read_built_images(entry.directory / RECORD).get(entry.name)
        if recorded is not None and recorded.recipe_sha256 != recipe:
            recorded = None
        attributes = None
        if not policy.from_scratch:
            attributes = _find(client, reference, recipe, recorded, any_of_the_recipe=policy.accept)
            if attributes is None and recorded is not None:
                attributes = _bring(entry, recorded, address, say)
        if attributes is None:
            attributes = _make(entry, reference, client, say, address, policy.from_scratch)
        elif not policy.accept and recorded is not None:
            _refuse_another(entry, recorded, attributes, address)
        for line in differences(recorded.identity, identity_of(attributes)) if recorded is not None else ():
            say(f"{entry.name} is no longer the image that was recorded: {line}")
        image = describe(attributes, recorded, client, say)
        record_built_image(entry, image)
    return image


def look_for_image(stored: StoredImage, engine: str | None, timeout_s: float = 60.0) -> ImageLookup:
    """Looks for the image of stored trials on an engine, whatever it is called there; nothing is named or recorded.

    Each answer of the engine may take `timeout_s`.
    """
    with (
        closing(connect(engine, timeout_s)) as client,
        engine_errors(f"the engine at {engine_address(engine)} failed"),
    ):
        found = _find_stored(client, stored)
        return ImageLookup(found, None if found is not None else _nearest(client, stored))


def pull_stored_image(stored: StoredImage, engine: str | None, say: Say) -> ImageIdentity:
    """Pulls the image of stored trials by its digest and proves that it is the one; nothing is named or recorded."""
    digest = stored.registry_digest
    if digest is None:
        raise InfrastructureError("it was never pushed into a registry")
    with closing(connect(engine, TRANSFER_TIMEOUT_S)) as client:
        with engine_errors(f"{digest} cannot be pulled", about_a_registry=True):
            pull_digest(client, digest, f"pulling {digest}", say)
        with engine_errors(f"the engine at {engine_address(engine)} failed"):
            found = _find_stored(client, stored)
    if found is None:
        raise InfrastructureError(f"{digest} was pulled, but is not the image that the trials ran in")
    return found


def _find(
    client: DockerClient, reference: str, recipe: str, recorded: BuiltImage | None, any_of_the_recipe: bool = False
) -> dict[str, Any] | None:
    """What the engine says about the image of a recipe; its tag may be gone while its labels still tell what it is.

    Args:
        reference: the name that the image has, or is given.
        recorded: the only image that is given the name if no image has it; if null, the newest of the recipe.
        any_of_the_recipe: another one than the recorded may be given the name too.
    """
    attributes = attributes_of(client, reference)
    if attributes is None:
        images = client.images.list(filters={"label": [f"{LABEL_RECIPE}={recipe}"]})
        fitting = [
            image
            for image in images
            if recorded is None or not differences(recorded.identity, identity_of(image.attrs))
        ]
        images = fitting or (images if any_of_the_recipe else [])
        if not images:
            return None
        max(images, key=lambda image: str(image.attrs["Created"])).tag(reference)
        attributes = attributes_of(client, reference)
    labels = ((attributes or {}).get("Config") or {}).get("Labels") or {}
    return attributes if labels.get(LABEL_RECIPE) == recipe else None


def _bring(entry: EnvironmentEntry, recorded: BuiltImage, address: str, say: Say) -> dict[str, Any]:
    """Brings the recorded image onto the engine at `address`, from a registry or from this machine's engine."""
    reasons = [f"the engine at {address} does not have it"]
    home = engine_address()
    with closing(connect(address, TRANSFER_TIMEOUT_S)) as client:
        try:
            if recorded.repo_digest is not None:
                return pull_image(client, recorded, say)
            reasons.append("it was never pushed to a registry")
        except InfrastructureError as error:
            reasons.append(str(error))
        try:
            if home != address:
                with closing(connect(home, TRANSFER_TIMEOUT_S)) as source:
                    return copy_image(recorded.reference, recorded.identity, source, client, say)
            reasons.append("there is no other engine to copy it from")
        except InfrastructureError as error:
            reasons.append(str(error))
    raise InfrastructureError(
        f"the recorded image {recorded.image_id} of {entry.name} cannot be had: {'; '.join(reasons)}. Mend that, bring "
        f"it with `taxmeter images load`, or `taxmeter images build --from-scratch {entry.name}` makes another one in "
        "its place"
    )


def _refuse_another(entry: EnvironmentEntry, recorded: BuiltImage, attributes: Mapping[str, Any], address: str) -> None:
    found = identity_of(attributes)
    wrong = differences(recorded.identity, found)
    if wrong:
        raise ConfigurationError(
            f"the engine at {address} has another image as {recorded.reference}: recorded {recorded.image_id}, "
            f"found {found.image_id}; {'; '.join(wrong)}. Bring the recorded one back (`taxmeter images pull`, `load` "
            f"or `copy`), or take this one from now on: `taxmeter images build --accept {entry.name}`",
            file=entry.directory / RECORD,
            key=f"images.{entry.name}",
        )


def _make(
    entry: EnvironmentEntry, reference: str, client: DockerClient, say: Say, address: str, from_scratch: bool
) -> dict[str, Any]:
    ensure_wheels(entry, say)
    build = Build(
        what=f"the image {entry.name}",
        duration="a few minutes",
        reference=reference,
        base=entry.base,
        debian_suite=entry.debian_suite,
        dockerfile=entry.directory / DOCKERFILE,
        context=entry.directory,
        arguments={
            "PYTHON": f"python{entry.python}",
            "LOCK": entry.lock,
            "ENVIRONMENT": entry.name,
            "LOCK_SHA256": lock_sha256(entry),
            "RECIPE_SHA256": recipe_sha256(entry),
        },
        log=entry.state_directory / "logs" / f"build-{entry.name}.log",
        from_scratch=from_scratch,
    )
    return build_image(build, client, address, say)


def _find_stored(client: DockerClient, stored: StoredImage) -> ImageIdentity | None:
    found = find_image(client, (stored.image_id, stored.registry_digest), stored.identity)
    if found is None and stored.identity is not None:
        # By its content: engines may name it differently, and another image may have taken its name.
        images = _of_environment(client, stored.environment)
        found = next((image for image in images if not differences(stored.identity, identity_of(image))), None)
    return None if found is None else identity_of(found)


def _nearest(client: DockerClient, stored: StoredImage) -> ImageIdentity | None:
    images = _of_environment(client, stored.environment)
    newest = max(images, key=lambda image: (bool(image.get("RepoTags")), str(image.get("Created"))), default=None)
    return None if newest is None else identity_of(newest)


def _of_environment(client: DockerClient, environment: str) -> list[dict[str, Any]]:
    """Also those that lost their name to another one."""
    found = client.images.list(filters={"label": [f"{LABEL_ENVIRONMENT}={environment}"]})
    return [image.attrs for image in found]
