"""The one place that knows the names of a project's directories."""

import shutil
from dataclasses import dataclass
from pathlib import Path

CACHE = "cache"


@dataclass(frozen=True)
class WorkFiles:
    """Paths below the directory that a host keeps for us; each host has its own."""

    root: Path

    @property
    def state(self) -> Path:
        """What can be made anew, and the files of running campaigns."""
        return self.root

    @property
    def campaigns(self) -> Path:
        """One directory per campaign that is not finished."""
        return self.state / "campaigns"

    def campaign(self, campaign_id: str) -> Path:
        """Task directories, code, caches and logs of one campaign; gone once it is complete."""
        return self.campaigns / campaign_id

    def code(self, campaign_id: str) -> Path:
        """The runner's code as it was when the campaign began."""
        return self.campaign(campaign_id) / "code"

    def cache(self, campaign_id: str, environment: str, isolation: str) -> Path:
        """References and artifacts that the trials of a campaign share."""
        return self.campaign(campaign_id) / CACHE / f"{environment}-{isolation}"


@dataclass(frozen=True)
class ProjectFiles(WorkFiles):
    """Paths below the directory in which the command runs, which is also what this machine keeps as a host."""

    @property
    def catalogue(self) -> Path:
        """The environments."""
        return self.root / "docker" / "images.yaml"

    @property
    def state(self) -> Path:
        """As of a host; and virtual environments."""
        return self.root / ".taxmeter"

    @property
    def control(self) -> Path:
        """How the running campaign is seen and steered; see `campaign.control`."""
        return self.state / "control"


def drop_caches(files: ProjectFiles, keep: str | None) -> None:
    """Removes the caches of all campaigns but one. They hold gigabytes, and can be made anew.

    The caller holds the machine for itself, so that no campaign uses them.
    """
    for campaign_id in other_campaigns(files, keep):
        if (files.campaign(campaign_id) / CACHE).is_dir():
            shutil.rmtree(files.campaign(campaign_id) / CACHE)


def other_campaigns(files: ProjectFiles, keep: str | None) -> list[str]:
    """Ids of the campaigns of this project that have left something, on this machine or on hosts; of all but one."""
    left = files.campaigns.iterdir() if files.campaigns.is_dir() else ()
    return sorted(directory.name for directory in left if directory.name != keep)
