"""Runs a campaign: opens and closes its account and the store, around all that runs."""

from collections.abc import Sequence
from functools import partial

from orchestrator.campaign.control import ControlFiles
from orchestrator.campaign.driving.campaign_row import close_account, opening_row
from orchestrator.campaign.driving.campaign_run import CampaignRun
from orchestrator.campaign.driving.status import THIS_MACHINE
from orchestrator.campaign.files import ProjectFiles, drop_caches
from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.progress import Notice, Observer, one_at_a_time
from orchestrator.errors import InfrastructureError, StoreError
from orchestrator.scheduling import Scheduler, remove_directories
from orchestrator.store import Ingest, SealReport, Store


def run_campaign(
    order: CampaignOrder,
    scheduler: Scheduler,
    store: Store,
    files: ProjectFiles,
    observe: Observer,
    *,
    place: str = THIS_MACHINE,
) -> None:
    """Runs what is left of a campaign until each of its trials has a row.

    A KeyboardInterrupt ends the running trials, leaves nothing of them behind and passes on; what was recorded
    stays recorded.

    Args:
        order: what to run.
        scheduler: brings tasks to hosts.
        store: where the rows go.
        files: of the project.
        observe: told what happens; by several threads, but never by two at once.
        place: where this driver runs, for those who watch: `this machine`, or the name of its container.

    Raises:
        InfrastructureError: the cluster cannot be started.
        NoUsableHostError: a host is not part of the cluster, or another campaign of the project is driven.
        StoreError: a row cannot be written; no further trial is then run.
    """
    with ControlFiles(files.control).driving():
        _run_campaign(order, scheduler, store, files, one_at_a_time(observe), place)


def _run_campaign(
    order: CampaignOrder,
    scheduler: Scheduler,
    store: Store,
    files: ProjectFiles,
    told: Observer,
    place: str,
) -> None:
    campaign_id = order.continuation.campaign_id
    writer = store.writer()
    try:
        if order.continuation.is_new:
            writer.put_campaign(opening_row(order))
        _tell_of_damage(writer.reports, told, "of a killed run")
        earlier = len(writer.reports)
        with Ingest(store, writer, lambda text: told(Notice(text))) as ingest:
            run = CampaignRun(order, scheduler, ingest, store, files, told, place)
            run.all()
        close_account(store, writer, campaign_id)
        writer.close()
        _tell_of_damage(writer.reports[earlier:], told, "of this run")
    except BaseException:
        # What cannot be written any more must not hide why the campaign ends.
        for last in (partial(close_account, store, writer, campaign_id), writer.close):
            try:
                last()
            except StoreError as error:
                told(Notice(str(error)))
        raise
    for problem in writer.compaction_problems:
        told(Notice(problem))
    drop_caches(files, keep=None)
    directory = files.campaign(campaign_id)
    if directory.exists() and run.is_cleared:
        # else the directories of lost tasks stay, with their logs, and it tells the next campaign what hosts may have
        try:
            remove_directories([directory])
        except InfrastructureError as error:
            told(Notice(str(error)))


def _tell_of_damage(reports: Sequence[SealReport], observe: Observer, whose: str) -> None:
    for report in reports:
        if report.damage is not None:
            text = f"the journal {whose} was damaged: {report.damage}; it is kept at {report.quarantined}"
            observe(Notice(text))
