"""What a store of many campaigns costs: compaction, verification, and being merged into another one.

Each size in a process of its own: `python -m benchmarks.performance.keeping CAMPAIGNS REPEATS DIRECTORY`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.store.building import put_dimensions
from benchmarks.store.fleet import Campaign
from benchmarks.store.rows import campaign_rows
from orchestrator.store import Store, campaign_totals
from orchestrator.store.merge import merge
from orchestrator.store.query.view import current_view
from orchestrator.store.storage.compaction import compact
from orchestrator.store.verification import verify
from runners.contract import Status

ROWS = 1000
"""Of each campaign."""

WRITER_CAMPAIGNS = 50
"""So many share a writer, at whose end compaction is automatic."""

_PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Kept:
    """Processor seconds of one size; of what is repeated the median."""

    campaigns: int
    rows: int
    compact_s: float
    """All compactions, automatic ones too."""
    verify_s: float
    merge_s: float
    """Into an empty store, sealing and compaction included."""


def keep(campaigns: int, repeats: int, directory: Path) -> Kept:
    """Measures one size, in a process of its own; the store stays in the directory."""
    command = [sys.executable, "-m", "benchmarks.performance.keeping", *map(str, (campaigns, repeats, directory))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=_PROJECT)
    return Kept(**json.loads(done.stdout.splitlines()[-1]))


def _keep(campaigns: int, repeats: int, directory: Path) -> Kept:
    store, rows = Store.open(directory), campaigns * ROWS
    automatic_s = _fill(store, campaigns)
    uncompacted = directory.with_name(f"{directory.name}-uncompacted")
    _copy(directory, uncompacted)
    compact_s, verify_s, merge_s = [], [], []
    for repeat in range(repeats):
        if repeat:
            shutil.rmtree(directory)
            _copy(uncompacted, directory)
        compact_s.append(_took(lambda: compact(store.layout, full=True))[0])
        seconds, verified = _took(lambda: verify(current_view(store.layout), store.layout))
        verify_s.append(seconds)
        copy = Store.open(directory.with_name(f"{directory.name}-copy"))
        seconds, merged = _took(partial(merge, copy, current_view(store.layout)))
        merge_s.append(seconds)
        shutil.rmtree(copy.layout.root)
        if (verified.rows["trials"], merged.added) != (rows, rows):
            said = f"{verified.rows['trials']} verified and {merged.added} merged of {rows}: {merged.refused[:3]}"
            raise SystemExit(said)
    shutil.rmtree(uncompacted)
    return Kept(campaigns, rows, automatic_s + median(compact_s), median(verify_s), median(merge_s))


def _copy(store: Path, to: Path) -> None:
    """Of links: files of a store do not change, and generations share most of theirs."""
    shutil.copytree(store, to, symlinks=True, copy_function=os.link)


def _fill(store: Store, campaigns: int) -> float:
    """Writes the campaigns; what the automatic compactions took."""
    compact_s = 0.0
    for first in range(0, campaigns, WRITER_CAMPAIGNS):
        writer = store.writer(seal_after_rows=10**9)
        for number in range(first, min(first + WRITER_CAMPAIGNS, campaigns)):
            campaign = Campaign(number, campaigns)
            put_dimensions(writer, campaign)
            rows = campaign_rows(campaign).slice(0, ROWS)
            writer.append_batches([rows])
            totals = campaign_totals(campaign.started_at, map(Status, rows["status"].to_pylist()), rows=ROWS)
            writer.finish_campaign(campaign.campaign_id, **totals)
        writer.seal()
        compact_s += _took(writer.close)[0]
    return compact_s


def _took(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    done = work()
    return time.process_time() - start, done


if __name__ == "__main__":
    print(json.dumps(asdict(_keep(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))))
