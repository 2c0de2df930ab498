"""The image of an environment: the recorded one where it can be had, else built."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.environments.base import ensure_base
from orchestrator.environments.builder import Builder, find_builder
from orchestrator.environments.catalogue import DOCKERFILE, EnvironmentEntry, lock_sha256, recipe_sha256
from orchestrator.environments.command import Build, run_build
from orchestrator.environments.engine import attributes_of, engine_address
from orchestrator.environments.expectation import recorded_differences
from orchestrator.environments.identity import identity_of
from orchestrator.environments.messages import engine_errors
from orchestrator.environments.record import RECORD, BuiltImage, image_lock, read_built_images, record_built_image
from orchestrator.environments.recorded import bring_image, find_image, refuse_another
from orchestrator.environments.recording import LABEL_BASE_ID, describe
from orchestrator.environments.wheels import ensure_wheels
from orchestrator.errors import InfrastructureError


@dataclass(frozen=True)
class BuildPolicy:
    """What may replace the recorded image of an environment."""

    accept: bool = False
    """Record what the engine has, although it is not what was recorded."""
    from_scratch: bool = False
    """Build again, without what the engine kept of earlier builds."""


KEEP_RECORDED = BuildPolicy()
"""Nothing may."""


def ensure_image(
    entry: EnvironmentEntry,
    client: DockerClient,
    say: Callable[[str], None],
    engine: str | None = None,
    policy: BuildPolicy = KEEP_RECORDED,
) -> BuiltImage:
    """The image of `entry`, which the engine of `client` then has under its reference.

    An image that was recorded is never replaced unasked: it is taken from this engine, pulled from the registry that
    it was pushed to, or copied from the engine of this machine. One is built where none of this recipe is recorded.

    Args:
        entry: the environment.
        client: a connection to the engine.
        say: told, in a line each, about choices and long steps.
        engine: the address that `client` was made with; a build runs a command that needs it too.
        policy: what may replace the recorded image.

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
            attributes = find_image(client, reference, recipe, recorded, any_of_the_recipe=policy.accept)
            if attributes is None and recorded is not None:
                attributes = bring_image(entry, recorded, address, say)
        if attributes is None:
            attributes = _make(entry, reference, client, say, address, policy.from_scratch)
            _tell_change(entry, recorded, attributes, say)
            recorded = None
        elif policy.accept:
            _tell_change(entry, recorded, attributes, say)
        elif recorded is not None:
            refuse_another(entry, recorded, attributes, address)
        image = describe(reference, attributes, recorded, client, say)
        record_built_image(entry, image)
    return image


def _tell_change(
    entry: EnvironmentEntry, recorded: BuiltImage | None, attributes: dict[str, Any], say: Callable[[str], None]
) -> None:
    if recorded is None:
        return
    for line in recorded_differences(recorded, identity_of(attributes)):
        say(f"{entry.name} is no longer the image that was recorded: {line}")


def _make(
    entry: EnvironmentEntry,
    reference: str,
    client: DockerClient,
    say: Callable[[str], None],
    address: str,
    from_scratch: bool,
) -> dict[str, Any]:
    builder = find_builder()
    ensure_wheels(entry, say)
    base = ensure_base(entry, client, say)
    say(f"building the image {entry.name} on {base} (a few minutes; log: {_log(entry)})")
    base_id = (attributes_of(client, base) or {}).get("Id")
    _run_build(builder, entry, reference, (base, base_id), address, from_scratch)
    attributes = find_image(client, reference, recipe_sha256(entry), None)
    if attributes is None:
        raise InfrastructureError(f"the build of {reference} succeeded, but the engine at {address} does not have it")
    return attributes


def _run_build(
    builder: Builder,
    entry: EnvironmentEntry,
    reference: str,
    base: tuple[str, str | None],
    address: str,
    from_scratch: bool,
) -> None:
    """`base` is its name and its id on the engine."""
    name, base_id = base
    arguments = {
        "BASE_IMAGE": name,
        "PYTHON": f"python{entry.python}",
        "LOCK": entry.lock,
        "ENVIRONMENT": entry.name,
        "LOCK_SHA256": lock_sha256(entry),
        "RECIPE_SHA256": recipe_sha256(entry),
    }
    build = Build(
        what=f"the image {entry.name}",
        reference=reference,
        dockerfile=entry.directory / DOCKERFILE,
        context=entry.directory,
        arguments=arguments,
        log=_log(entry),
        # Not in the recipe, because another recipe would have another digest; labels change no identity.
        labels={} if base_id is None else {LABEL_BASE_ID: base_id},
        from_scratch=from_scratch,
    )
    run_build(builder, build, address)


def _log(entry: EnvironmentEntry) -> Path:
    return entry.state_directory / "logs" / f"build-{entry.name}.log"
