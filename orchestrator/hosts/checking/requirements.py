"""What hosts are compared with: the images that are recorded as built, and where they could be brought from."""

from pathlib import Path

from orchestrator.environments import (
    BuiltImage,
    Catalogue,
    StoredImage,
    engine_problem,
    look_for_image,
    read_built_images,
)
from orchestrator.hosts.checking.engine import WantedImage
from orchestrator.hosts.checking.report import Requirements

_ANSWER_S = 10.0


def requirements(catalogue: Path) -> Requirements:
    """Reads them.

    Args:
        catalogue: `docker/images.yaml`.

    Raises:
        ConfigurationError: the catalogue or the record is malformed.
        InfrastructureError: this machine's engine was lost while it was asked.
    """
    entries = Catalogue.load(catalogue).entries
    built = {name: image for name, image in read_built_images(catalogue).items() if name in entries}
    answers = engine_problem() is None
    return Requirements(
        images={name: WantedImage(image, entries[name].demands) for name, image in built.items()},
        demands={name: entry.demands for name, entry in entries.items()},
        here=frozenset(
            name
            for name, image in built.items()
            if image.repo_digest is not None or (answers and _is_here(name, image))
        ),
    )


def _is_here(name: str, image: BuiltImage) -> bool:
    stored = StoredImage(name, image.image_id, image.repo_digest, image.identity)
    return look_for_image(stored, None, _ANSWER_S).found is not None
