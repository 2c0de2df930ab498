"""What campaigns have left on this machine."""

import shutil

from orchestrator.files import CACHE, ProjectFiles


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
