"""What was built on this machine: `images.lock.yaml` beside the catalogue."""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from ruamel.yaml import YAML

from orchestrator.config import Document, StrictModel, load_yaml
from orchestrator.environments.catalogue import EnvironmentEntry
from orchestrator.environments.identity import ImageIdentity
from orchestrator.files import exclusive, write_atomically

RECORD = "images.lock.yaml"
_HEADER = "# Written by `taxmeter images`: the image that each environment stands for here. Not for editing.\n"


class BuiltImage(StrictModel):
    """An image of an environment.

    What follows `base` is null in files that an earlier version wrote, until `taxmeter images build` looks again; the
    id of the base until the image is made again.
    """

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
    config_sha256: str | None = None
    size_bytes: int | None = None
    versions: dict[str, str] | None = None
    """Each distribution that is installed in it, as observed inside."""
    facts: dict[str, str | int | float | bool | None] | None = None
    """Builds of the frameworks, as observed inside."""

    @property
    def identity(self) -> ImageIdentity | None:
        """What the engine's image must be; null if an earlier version recorded too little to tell."""
        if self.config_sha256 is None:
            return None
        return ImageIdentity(self.image_id, self.config_sha256, self.layers)


class _Document(Document):
    images: dict[str, BuiltImage]


def image_lock(entry: EnvironmentEntry, say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Held by whoever makes the image of an environment or changes what is recorded about it."""
    return exclusive(
        entry.state_directory / "locks" / f"image-{entry.name}",
        lambda: say(f"waiting for another command that works on the image {entry.name}"),
    )


def read_built_images(catalogue: Path) -> dict[str, BuiltImage]:
    """The images built so far from the environments of a catalogue, by their names.

    Raises:
        ConfigurationError: the file is malformed.
    """
    path = catalogue.with_name(RECORD)
    return dict(load_yaml(path, _Document).images) if path.exists() else {}


def record_built_image(entry: EnvironmentEntry, image: BuiltImage) -> None:
    """Notes one image, and keeps what is noted about the others.

    Raises:
        ConfigurationError: the file is malformed.
    """
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
