"""Compares images: the recorded one with the engine's, or any two with each other."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient

from orchestrator.environments.engine import attributes_of, connect, engine_address, engine_errors
from orchestrator.environments.identity import (
    differences,
    identity_of,
    layer_differences,
    mapping_differences,
    setting_differences,
    settings,
)
from orchestrator.environments.observation import FactValue, observe
from orchestrator.environments.record import BuiltImage, read_built_images, recorded_images
from orchestrator.environments.transfer import is_archive, read_archive
from orchestrator.errors import ConfigurationError, InfrastructureError


@dataclass(frozen=True)
class Verified:
    """What became of one recorded image."""

    image: BuiltImage
    problems: tuple[str, ...]
    """In what the engine's image differs; empty if it is identical in layers, settings and observed versions."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    name: str
    attributes: Mapping[str, Any]
    versions: Mapping[str, str] | None
    """Null if the image is in a file and nothing is recorded about it: a file cannot be started."""
    facts: Mapping[str, FactValue] | None


def verify_images(
    names: Sequence[str], catalogue: Path, engine: str | None, say: Callable[[str], None]
) -> dict[str, Verified]:
    """Compares recorded images, or all, with what the engine has, and looks inside each again.

    Raises:
        ConfigurationError: an image is not recorded.
        InfrastructureError: the engine does not answer.
    """
    images = recorded_images(names, catalogue)
    with closing(connect(engine)) as client, engine_errors(f"the engine at {engine_address(engine)} failed"):
        return {name: Verified(image, _problems(image, client, say)) for name, image in images.items()}


def compare_images(
    expected: str, found: str, catalogue: Path, engine: str | None, say: Callable[[str], None]
) -> tuple[str, ...]:
    """In what two images differ, a line each: layers, settings, versions. Empty if in nothing.

    Args:
        expected: an environment, a reference, an id or a digest that the engine knows, or a saved file.
        found: the same.
        catalogue: the catalogue beside which images are recorded.
        engine: where images are that are not in files.
        say: told about what takes long or cannot be compared.

    Raises:
        ConfigurationError: there is no such image.
        InfrastructureError: the engine does not answer, or an image cannot be started.
    """
    recorded = read_built_images(catalogue)
    if is_archive(expected) and is_archive(found):
        left, right = _from_file(expected, recorded), _from_file(found, recorded)
    else:
        with closing(connect(engine)) as client, engine_errors(f"the engine at {engine_address(engine)} failed"):
            left, right = (_side(name, recorded, client, say) for name in (expected, found))
    return _compare(left, right, say)


def _problems(image: BuiltImage, client: DockerClient, say: Callable[[str], None]) -> tuple[str, ...]:
    attributes = attributes_of(client, image.reference)
    if attributes is None:
        return (f"the engine has no {image.reference}",)
    found = identity_of(attributes)
    problems = list(differences(image.identity, found))
    say(f"looking at what is installed in {image.reference}")
    try:
        seen = observe(client, found.image_id)
    except InfrastructureError as error:
        return (*problems, str(error))
    problems += mapping_differences(image.versions, seen.versions)
    problems += mapping_differences(image.facts, seen.facts)
    return tuple(problems)


def _side(name: str, recorded: Mapping[str, BuiltImage], client: DockerClient, say: Callable[[str], None]) -> Side:
    if is_archive(name):
        return _from_file(name, recorded)
    reference = recorded[name].reference if name in recorded else name
    attributes = attributes_of(client, reference)
    if attributes is None:
        raise ConfigurationError(
            f"{name} is no image of the engine, no recorded environment ({', '.join(recorded) or 'there is none'}) "
            "and no file that ends in .tar"
        )
    say(f"looking at what is installed in {reference}")
    seen = observe(client, str(attributes["Id"]))
    return Side(name, attributes, seen.versions, seen.facts)


def _from_file(name: str, recorded: Mapping[str, BuiltImage]) -> Side:
    attributes = read_archive(Path(name))
    for image in recorded.values():
        if not differences(image.identity, identity_of(attributes)):
            return Side(name, attributes, image.versions, image.facts)
    return Side(name, attributes, None, None)


def _compare(left: Side, right: Side, say: Callable[[str], None]) -> tuple[str, ...]:
    lines = layer_differences(identity_of(left.attributes).layers, identity_of(right.attributes).layers)
    lines += setting_differences(settings(left.attributes), settings(right.attributes))
    for side in (left, right):
        if side.versions is None and lines:
            say(f"versions are not compared: {side.name} is a file; load it to look inside")
    if left.versions is not None and right.versions is not None:
        lines += mapping_differences(left.versions, right.versions)
        lines += mapping_differences(left.facts or {}, right.facts or {})
    return tuple(lines)
