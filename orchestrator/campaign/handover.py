"""A campaign on its way from the user's process, which prepared it, to the head's container, which drives it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.boundary import adapter_of, validated
from orchestrator.campaign.driver.campaign_run import run_campaign
from orchestrator.campaign.progress import Observer
from orchestrator.campaign.resume import CampaignRequest
from orchestrator.errors import ConfigurationError, ExitCode, ForeignDataError, InfrastructureError, Say
from orchestrator.files import MAX_PRIVATE_BYTES, ProjectFiles, read_private, write_private
from orchestrator.hosts import DriverPlace
from orchestrator.hosts.cluster import Cluster, execute_in_head
from orchestrator.scheduling import scheduler_at
from orchestrator.store import Store

_SIGNAL: Final = 128
"""An exit code above it tells of a signal."""

_GOES_ON: Final = "what was measured is in the store; run the same command again to go on"


@dataclass(frozen=True)
class Handover:
    """All that a driver needs. It holds no secret."""

    order: CampaignRequest
    cluster: Cluster
    files: ProjectFiles
    results: Path
    """The directory of the store."""


def drive_in_head(handover: Handover, say: Say) -> int:
    """Runs a campaign in the head's container, with our terminal and signals. Returns the exit code of its driver.

    Raises:
        ConfigurationError: the store is outside of the project, which is all that the head sees.
        InfrastructureError: there is no head, or it ended.
    """
    path = write_handover(handover)
    try:
        code = execute_in_head(handover.cluster, ["python", "-m", "orchestrator", "sweep", "drive", str(path)])
    except InfrastructureError as error:
        raise InfrastructureError(f"{error}; {_GOES_ON}") from error
    finally:
        path.unlink()
    if code > _SIGNAL and code != ExitCode.INTERRUPTED:
        say(f"the driver of the campaign was ended by signal {code - _SIGNAL}; {_GOES_ON}")
    return code


def drive(path: Path, observe: Observer) -> None:
    """Drives the campaign of a handover; called in the head's container.

    Raises:
        ConfigurationError: there is no such handover, or somebody else may have written it.
    """
    handover = read_handover(path)
    scheduler = scheduler_at(DriverPlace(handover.cluster))
    store = Store.open(handover.results)
    place = handover.cluster.head_container
    run_campaign(handover.order, scheduler, store, handover.files, observe, place=place)


def write_handover(handover: Handover) -> Path:
    """Writes it where nobody else can write or read, and returns where.

    The caller holds the project for itself: what a killed command left there is removed.
    """
    directory = handover.files.state / "cluster"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for abandoned in directory.glob("order-*.json"):
        abandoned.unlink()
    path = directory / f"order-{handover.order.continuation.campaign_id}.json"
    # What a sweep does not say stays unsaid: it is read by the rules for what people write.
    write_private(path, adapter_of(Handover).dump_json(handover, exclude_unset=True))
    return path


def read_handover(path: Path) -> Handover:
    """Reads what `write_handover` wrote.

    Raises:
        ConfigurationError: there is none, it is damaged, or somebody else may have written it.
    """
    try:
        return validated(Handover, read_private(path), "the order", limit_bytes=MAX_PRIVATE_BYTES)
    except FileNotFoundError:
        raise ConfigurationError("no such order; `taxmeter sweep run` writes it", file=path) from None
    except ForeignDataError as error:
        raise ConfigurationError(f"is no order of this version that we wrote: {error}", file=path) from None
