"""What an environment is on one host, as plans and rows name it. Who reads rows needs no plans: it imports neither."""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from runners.contract import digest


class Isolation(Enum):
    """What separates a task from its host."""

    DOCKER = "docker"
    PROCESS = "process"


@dataclass(frozen=True)
class EnvironmentPin:
    """One environment as one host provides it."""

    name: str
    isolation: Isolation
    reason: str
    """Why this isolation was taken."""
    lock_sha256: str | None
    """Null for an environment that has no lock, in which nothing ever runs."""
    image_id: str | None = None
    """The id that an engine gave it; engines may name equal content differently. Null without an image."""
    image_digest: str | None = None
    """Digest by which a registry knows the image; for one that was never pushed, its `image_id`."""
    image_layers: tuple[str, ...] = ()
    """Digests of the layers' content, first to last; with `image_config_sha256` what the image is on any engine."""
    image_config_sha256: str | None = None
    """Of the image's settings that change what runs. Null with `process`, and before the image is built."""

    @cached_property
    def content(self) -> str | None:
        """What runs in its image, on whatever engine it lies: of its settings and layers.

        Its `image_id` where those are not known; null where there is no image.
        """
        if self.image_config_sha256 is None or not self.image_layers:
            return self.image_id
        return digest({"config_sha256": self.image_config_sha256, "layers": list(self.image_layers)})
