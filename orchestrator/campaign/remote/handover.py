"""A campaign on its way from the user's process, which prepared it, to the head's container, which drives it."""

import os
import pickle
from dataclasses import dataclass
from pathlib import Path

from orchestrator.campaign.files import ProjectFiles
from orchestrator.campaign.order import CampaignOrder
from orchestrator.errors import ConfigurationError
from orchestrator.hosts.cluster import Cluster


@dataclass(frozen=True)
class Handover:
    """All that a driver needs."""

    order: CampaignOrder
    cluster: Cluster
    files: ProjectFiles
    results: Path
    """The result store."""


def write_handover(handover: Handover, directory: Path) -> Path:
    """Writes it where nobody else can write or read, and returns where. It holds no secret.

    The caller holds the project for itself: what a killed command left there is removed.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for abandoned in directory.glob("order-*.pickle"):
        abandoned.unlink()
    path = directory / f"order-{handover.order.continuation.campaign_id}.pickle"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        pickle.dump(handover, file)
    return path


def read_handover(path: Path) -> Handover:
    """Reads what `write_handover` wrote, by the same code.

    Raises:
        ConfigurationError: there is none, or somebody else may have written it.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise ConfigurationError("no such order; `taxmeter sweep run` writes it", file=path) from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ConfigurationError("is not ours alone, so it is not read", file=path)
    handover: Handover = pickle.loads(path.read_bytes())  # noqa: S301 - written by us a moment ago, for us alone
    return handover


def refuse_results_elsewhere(results: Path, files: ProjectFiles) -> Path:
    """The store's place, which the head's container must see: it sees the project.

    Raises:
        ConfigurationError: it is outside of the project.
    """
    place = results.resolve()
    if not place.is_relative_to(files.root.resolve()):
        raise ConfigurationError(
            f"a sweep on hosts that are reached over SSH writes its store inside the project, {files.root}; name a "
            "directory there with --results",
            file=results,
        )
    return place
