"""What was built: `images.lock.yaml` beside the catalogue, the labels of such images, and whether an engine has them.

Any two images are compared in the same way: the recorded one, an engine's, or one in a file.
"""

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient
from ruamel.yaml import YAML

from orchestrator.config import Document, StrictModel, load_yaml
from orchestrator.environments.build import LABEL_BASE_ID
from orchestrator.environments.catalogue import EnvironmentEntry
from orchestrator.environments.engine import attributes_of, connect, engine_address, engine_errors
from orchestrator.environments.identity import (
    ImageIdentity,
    differences,
    identity_of,
    is_archive,
    layer_differences,
    mapping_differences,
    read_archive,
    setting_differences,
    settings,
)
from orchestrator.environments.observation import FactValue, Observation, observe
from orchestrator.errors import ConfigurationError, InfrastructureError, Say, did_you_mean, some_names
from orchestrator.files import exclusive, write_atomically

RECORD = "images.lock.yaml"
LABEL_ENVIRONMENT = "org.taxmeter.environment"
LABEL_BASE = "org.taxmeter.base"
LABEL_LOCK = "org.taxmeter.lock-sha256"
LABEL_RECIPE = "org.taxmeter.recipe-sha256"
_HEADER = "# Written by `taxmeter images`: the image that each environment stands for here. Not for editing.\n"


@dataclass(frozen=True)
class StoredImage:
    """What is known of an image that trials ran in."""

    environment: str
    image_id: str | None
    """By which one engine knows it."""
    registry_digest: str | None
    """Where a registry has it, as HOST/NAME@sha256:…; null if it was never pushed."""
    identity: ImageIdentity | None
    """Null if layers and settings are not known: then the id or the digest must find it."""


class BuiltImage(StrictModel):
    """An image of an environment."""

    reference: str
    image_id: str
    """The id that the engine gave it when it was built; an engine with another image store may name it differently."""
    repo_digest: str | None
    """Where a registry has it, as HOST/NAME@sha256:…; null until it was pushed."""
    layers: tuple[str, ...]
    lock_sha256: str
    recipe_sha256: str
    base: str
    base_image_id: str | None = None
    """The id of the base on the engine that built the image: a base that was made offline has a name only."""
    config_sha256: str
    size_bytes: int | None = None
    """As the engine counts it; null if it does not."""
    versions: dict[str, str]
    """Each distribution that is installed in it, as observed inside."""
    facts: dict[str, FactValue]
    """Builds of the frameworks, as observed inside."""

    @property
    def seen(self) -> Observation:
        """What was observed inside."""
        return Observation(self.versions, self.facts)

    @property
    def identity(self) -> ImageIdentity:
        """What the image is on any engine."""
        return ImageIdentity(self.image_id, self.config_sha256, self.layers)

    def stored(self, environment: str) -> StoredImage:
        """The same as engines are asked for it."""
        return StoredImage(environment, self.image_id, self.repo_digest, self.identity)


class _Document(Document):
    images: dict[str, BuiltImage]


@dataclass(frozen=True)
class _Side:
    """One side of a comparison."""

    name: str
    attributes: Mapping[str, Any]
    seen: Observation | None
    """Null if the image is in a file and nothing is recorded about it: a file cannot be started."""


def image_lock(entry: EnvironmentEntry, say: Say) -> AbstractContextManager[None]:
    """Held by whoever makes the image of an environment or changes what is recorded about it."""
    return exclusive(
        entry.state_directory / "locks" / f"image-{entry.name}",
        lambda: say(f"waiting for another command that works on the image {entry.name}"),
    )


def read_built_images(catalogue: Path) -> dict[str, BuiltImage]:
    """The images built so far from the environments of a catalogue, by their names."""
    path = catalogue.with_name(RECORD)
    return dict(load_yaml(path, _Document).images) if path.exists() else {}


def recorded_images(names: Sequence[str], catalogue: Path) -> dict[str, BuiltImage]:
    """The recorded images of these environments, or all."""
    images = read_built_images(catalogue)
    unknown = [name for name in names if name not in images]
    if unknown or not images:
        what = f"{unknown[0]} is not recorded" if unknown else "no image is recorded"
        hint = f"; {did_you_mean(unknown[0], images)}" if images else ""
        raise ConfigurationError(f"{what}: `taxmeter images build` does so{hint}", file=catalogue.with_name(RECORD))
    return {name: images[name] for name in names} if names else images


def record_built_image(entry: EnvironmentEntry, image: BuiltImage) -> None:
    """Notes one image, and keeps what is noted about the others."""
    path = entry.directory / RECORD
    with exclusive(entry.state_directory / "locks" / "images", lambda: None):
        images = read_built_images(path)
        if images.get(entry.name) == image:
            return
        document = _Document(images=dict(sorted((images | {entry.name: image}).items())))
        text = io.StringIO()
        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = False
        yaml.width = 200
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
        yaml.dump(document.model_dump(mode="json"), text)
        write_atomically(path, _HEADER + text.getvalue())


def describe(attributes: Mapping[str, Any], recorded: BuiltImage | None, client: DockerClient, say: Say) -> BuiltImage:
    """The record of an image, with what is observed inside unless that is recorded already.

    Args:
        recorded: what is known of this environment's image so far; kept if it is the same image.
    """
    labels, found, reference = labels_of(attributes), identity_of(attributes), reference_of(attributes)
    if recorded is not None and not differences(recorded.identity, found):
        # With the id of the first engine: others may call the same content differently, which is then no other image.
        return recorded
    seen = _look_into(client, reference, found.image_id, say)
    return BuiltImage(
        reference=reference,
        image_id=found.image_id,
        repo_digest=None,
        layers=found.layers,
        lock_sha256=labels[LABEL_LOCK],
        recipe_sha256=labels[LABEL_RECIPE],
        base=labels[LABEL_BASE],
        base_image_id=labels.get(LABEL_BASE_ID),
        config_sha256=found.config_sha256,
        size_bytes=attributes.get("Size"),
        versions=dict(seen.versions),
        facts=dict(seen.facts),
    )


def labels_of(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The labels by which an image of an environment is known."""
    labels = (attributes.get("Config") or {}).get("Labels") or {}
    missing = [name for name in (LABEL_ENVIRONMENT, LABEL_LOCK, LABEL_RECIPE, LABEL_BASE) if name not in labels]
    if missing:
        raise InfrastructureError(f"{attributes['Id']} is no image of an environment: it has no label {missing[0]}")
    return dict(labels)


def reference_of(attributes: Mapping[str, Any]) -> str:
    """The name that an image of an environment has on every engine."""
    labels = labels_of(attributes)
    return f"taxmeter/{labels[LABEL_ENVIRONMENT]}:{labels[LABEL_RECIPE][:12]}"


def verify_images(names: Sequence[str], catalogue: Path, engine: str | None, say: Say) -> dict[str, tuple[str, ...]]:
    """Compares recorded images, or all, with what the engine has, and looks inside each again.

    Returns:
        By environment, in what the engine's image differs: nothing if layers, settings and versions are identical.
    """
    images = recorded_images(names, catalogue)
    with closing(connect(engine)) as client, engine_errors(f"the engine at {engine_address(engine)} failed"):
        return {name: _problems(image, client, say) for name, image in images.items()}


def compare_images(expected: str, found: str, catalogue: Path, engine: str | None, say: Say) -> tuple[str, ...]:
    """In what two images differ, a line each: layers, settings, versions. Empty if in nothing.

    Args:
        expected: an environment, a reference, an id or a digest that the engine knows, or a saved file.
        engine: where images are that are not in files.
    """
    recorded = read_built_images(catalogue)
    if is_archive(expected) and is_archive(found):
        left, right = _from_file(expected, recorded), _from_file(found, recorded)
    else:
        with closing(connect(engine)) as client, engine_errors(f"the engine at {engine_address(engine)} failed"):
            left, right = (_side(name, recorded, client, say) for name in (expected, found))
    return _compare(left, right, say)


def _problems(image: BuiltImage, client: DockerClient, say: Say) -> tuple[str, ...]:
    attributes = attributes_of(client, image.reference)
    if attributes is None:
        return (f"the engine has no {image.reference}",)
    found = identity_of(attributes)
    problems = differences(image.identity, found)
    try:
        seen = _look_into(client, image.reference, found.image_id, say)
    except InfrastructureError as error:
        return (*problems, str(error))
    return (*problems, *_seen_differences(image.seen, seen))


def _side(name: str, recorded: Mapping[str, BuiltImage], client: DockerClient, say: Say) -> _Side:
    if is_archive(name):
        return _from_file(name, recorded)
    reference = recorded[name].reference if name in recorded else name
    attributes = attributes_of(client, reference)
    if attributes is None:
        raise ConfigurationError(
            f"{name} is no image of the engine, no recorded environment ({some_names(recorded) or 'there is none'}) "
            "and no file that ends in .tar"
        )
    return _Side(name, attributes, _look_into(client, reference, str(attributes["Id"]), say))


def _from_file(name: str, recorded: Mapping[str, BuiltImage]) -> _Side:
    attributes = read_archive(Path(name))
    for image in recorded.values():
        if not differences(image.identity, identity_of(attributes)):
            return _Side(name, attributes, image.seen)
    return _Side(name, attributes, None)


def _compare(left: _Side, right: _Side, say: Say) -> tuple[str, ...]:
    lines = layer_differences(identity_of(left.attributes).layers, identity_of(right.attributes).layers)
    lines += setting_differences(settings(left.attributes), settings(right.attributes))
    for side in (left, right):
        if side.seen is None and lines:
            say(f"versions are not compared: {side.name} is a file; load it to look inside")
    if left.seen is not None and right.seen is not None:
        lines += _seen_differences(left.seen, right.seen)
    return tuple(lines)


def _seen_differences(expected: Observation, found: Observation) -> list[str]:
    versions = mapping_differences(expected.versions, found.versions)
    return versions + mapping_differences(expected.facts, found.facts)


def _look_into(client: DockerClient, reference: str, image_id: str, say: Say) -> Observation:
    say(f"looking at what is installed in {reference}")
    return observe(client, image_id)
