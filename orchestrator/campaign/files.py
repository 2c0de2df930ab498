"""The one place that knows the names of a project's directories."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProjectFiles:
    """Paths below the directory in which the command runs."""

    root: Path

    @property
    def catalogue(self) -> Path:
        """The environments."""
        return self.root / "docker" / "images.yaml"

    @property
    def state(self) -> Path:
        """What can be made anew: virtual environments and the files of running campaigns."""
        return self.root / ".taxmeter"

    @property
    def environments(self) -> Path:
        """Virtual environments of the `process` isolation."""
        return self.state / "environments"

    @property
    def campaigns(self) -> Path:
        """One directory per campaign that is not finished."""
        return self.state / "campaigns"

    def campaign(self, campaign_id: str) -> Path:
        """Task directories, caches and logs of one campaign; gone once it is complete."""
        return self.campaigns / campaign_id

    def cache(self, campaign_id: str, environment: str, isolation: str) -> Path:
        """References and artifacts that the trials of a campaign share."""
        return self.campaign(campaign_id) / "cache" / f"{environment}-{isolation}"
