"""What was built on this machine: `images.lock.yaml` beside the catalogue."""

import io
from pathlib import Path

from ruamel.yaml import YAML

from orchestrator.documents import StrictModel, load_yaml
from orchestrator.images.catalogue import EnvironmentEntry
from orchestrator.images.locking import exclusive, write_atomically

RECORD = "images.lock.yaml"
_HEADER = "# Written by `taxmeter images build`: what this machine's engine has. Not for editing.\n"


class BuiltImage(StrictModel):
    """An image of an environment. `repo_digest` is null until the image has been in a registry."""

    reference: str
    image_id: str
    repo_digest: str | None
    layers: tuple[str, ...]
    lock_sha256: str
    recipe_sha256: str
    base: str


class _Document(StrictModel):
    images: dict[str, BuiltImage]


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
