"""The large store: written through the product's writer, campaign by campaign, as a lab would over two years."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.store.fleet import (
    HOSTS,
    ROWS_PER_CAMPAIGN,
    Campaign,
    Host,
    digest,
)
from benchmarks.store.rows import batches, campaigns
from orchestrator.store import Store, Writer, campaign_row, environment_row, system_row
from orchestrator.store.storage.compaction import compact
from orchestrator.store.storage.layout import Layout
from runners.contract import encode
from runners.system import collect

JOURNAL_ROWS = 200
"""Rows of one wait for the disk while the store is built: what some hundred hosts deliver in a second or two."""

SEAL_CAMPAIGNS = 5
"""A seal has 12,000 rows: about what fits into a segment of the journal."""

WRITER_CAMPAIGNS = 25
"""So many campaigns share a writer, at whose end compaction is automatic."""


@dataclass(frozen=True)
class Built:
    """What building it took."""

    trials: int
    journal_bytes: float
    """Per trial, as it was appended."""
    seal_s: float
    sealed_bytes: int
    """Of the parts as they were sealed, before any compaction."""
    automatic_s: float
    """Of all automatic compactions."""
    most_parts: int
    """Live at any time."""
    compact_s: float
    """Of the last, full compaction."""
    live_files: int
    """After it, of all tables."""
    live_bytes: int
    """Of `trials`, after it."""


def build(directory: Path, trials: int, say: Callable[[str], None]) -> Built:
    """Fills a new store."""
    store = Store.open(directory)
    planned = campaigns(trials)
    seal_s = automatic_s = 0.0
    sealed_bytes = journal_bytes = most_parts = 0
    for first in range(0, len(planned), WRITER_CAMPAIGNS):
        writer = store.writer(seal_after_rows=10**9)
        group = planned[first : first + WRITER_CAMPAIGNS]
        for number, campaign in enumerate(group, start=1):
            put_dimensions(writer, campaign)
            for batch in batches(campaign, JOURNAL_ROWS):
                writer.append_batches([batch])
            writer.finish_campaign(campaign.campaign_id, rows=ROWS_PER_CAMPAIGN)
            if number % SEAL_CAMPAIGNS == 0 or number == len(group):
                journal_bytes += sum(path.stat().st_size for path in store.layout.segments())
                before = {*store.layout.parts()}
                start = time.perf_counter()
                writer.seal()
                seal_s += time.perf_counter() - start
                sealed_bytes += sum(path.stat().st_size for path in {*store.layout.parts()} - before)
        most_parts = max(most_parts, len(store.layout.parts()))
        start = time.perf_counter()
        writer.close()
        automatic_s += time.perf_counter() - start
        say(f"{(first + len(group)) * ROWS_PER_CAMPAIGN:,} trials, {len(store.layout.parts())} parts")
    start = time.perf_counter()
    compact(store.layout, full=True)
    compact_s = time.perf_counter() - start
    written = len(planned) * ROWS_PER_CAMPAIGN
    return Built(
        written,
        journal_bytes / written,
        seal_s,
        sealed_bytes,
        automatic_s,
        most_parts,
        compact_s,
        live_files(store.layout),
        sum(path.stat().st_size for path in store.layout.parts()),
    )


def live_files(layout: Layout) -> int:
    """Data files that a reader opens."""
    return sum(len(files) for files in layout.snapshot().files.values())


def put_dimensions(writer: Writer, campaign: Campaign) -> None:
    """Writes what the rows of a campaign refer to."""
    for host in campaign.hosts:
        writer.put("systems", [_system(host, campaign.day)])
    writer.put("environments", [_environment(campaign.environment)])
    writer.put_campaign(
        campaign_row(
            campaign.campaign_id,
            campaign.started_at,
            campaign.sweep,
            sweep_document=f"name: {campaign.sweep}\n" + "# as the user wrote it\n" * 40,
            inventory_document="".join(f"- host: {Host(number).name}\n" for number in range(HOSTS)),
            plan_digest=digest("plan", campaign.block),
            planned_trials=ROWS_PER_CAMPAIGN,
            taxmeter_version="0.1.0",
            git_commit=digest("commit", int(campaign.day)) + "01234567",
        )
    )


def _system(host: Host, day: float) -> dict[str, object]:
    hot = {
        "cpu_model": host.cpu_model,
        "cpu_cores": host.cores,
        "cpu_threads": 2 * host.cores,
        "memory_bytes": host.memory_bytes,
        "kernel": host.kernel(day),
        "virtualisation": "none",
        "gpu_name": host.gpu,
        "gpu_count": host.gpu_count,
        "driver_version": host.driver(day),
    }
    return system_row(host.system_id(day), host.hw_id, hot, _fingerprint())


@cache
def _fingerprint() -> dict[str, object]:
    """Of this machine: as long and as nested as any."""
    return dict(encode(replace(collect(), private=None)))


def _environment(name: str) -> dict[str, object]:
    versions = {f"package-{number}": f"{number}.{number % 7}.0" for number in range(60)} | {"python": "3.11.9"}
    return environment_row(
        digest("environment", name), name, versions, {}, image_digest=None, lock_sha256=digest("lock", name) * 2
    )
