"""Takes one campaign out of the store: a new generation without it, while the old one is kept for a while."""

import math
import uuid
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from orchestrator.errors import ConfigurationError, StoreError, near_names
from orchestrator.store.schema import KEYS
from orchestrator.store.storage.compaction import alone
from orchestrator.store.storage.files import Layout, exclusive, storage_errors, sync_file
from orchestrator.store.storage.generations import OutdatedError, prepare, replace
from orchestrator.store.storage.journal import read_segment
from orchestrator.store.storage.parts import part_name, read_footer, read_trials_checked, write_trials
from orchestrator.store.storage.sealing import recover
from orchestrator.store.storage.small import known_keys, rewritten
from orchestrator.store.storage.snapshot import Snapshot


@dataclass(frozen=True)
class DropReport:
    """What was taken out."""

    rows: int
    """Of `trials`."""
    generation: int
    """The first one without them; the one before has them until it expires."""


def drop(layout: Layout, campaign_id: str) -> DropReport:
    """Takes the rows of a campaign out. Systems and environments stay, for others may have run there too.

    Args:
        layout: where the store is.
        campaign_id: the whole id.

    Raises:
        ConfigurationError: there is no such campaign.
        StoreError: it is being written, a part is damaged, or the disk refuses; all is as it was.
    """
    prepare(layout, math.inf)
    recover(layout)
    with alone(layout), storage_errors(f"cannot drop {campaign_id} from {layout.root}"):
        before = layout.snapshot()
        rows, removed, added = _without(layout, before, campaign_id)
        with exclusive(layout):
            now = layout.snapshot()
            names = set(now.names("trials")) - set(before.names("trials"))
            fresh = [path for name, path in zip(now.names("trials"), now.parts(), strict=True) if name in names]
            if any(read_footer(path).may_hold([campaign_id]) for path in fresh):
                raise OutdatedError(f"{layout.root}: rows were sealed meanwhile; do it again")
            for segment in layout.segments():
                if campaign_id in read_segment(segment).table["campaign_id"].to_pylist():
                    raise StoreError(f"campaign {campaign_id} is being written; stop its sweep first")
            known = known_keys(now, "campaigns")
            if campaign_id in known:
                gone, changed = rewritten(now, "campaigns", {campaign_id: None})
                removed, added = [*removed, *gone], added | changed
            elif not rows:
                hint = near_names(campaign_id, known)
                raise ConfigurationError(
                    f"{layout.root}: no {KEYS['campaigns']} {campaign_id}{hint}; `taxmeter results ls` lists them"
                )
            return DropReport(rows, replace(layout, removed, added))


def _without(layout: Layout, snapshot: Snapshot, campaign_id: str) -> tuple[int, list[str], dict[str, Path | bytes]]:
    """How many rows go, the parts that had them, and the parts that take their place."""
    rows = 0
    removed: list[str] = []
    added: dict[str, Path | bytes] = {}
    for name, path in zip(snapshot.names("trials"), snapshot.parts(), strict=True):
        if not read_footer(path).may_hold([campaign_id]):
            continue
        part = read_trials_checked([path])
        kept = part.filter(pc.not_equal(part["campaign_id"], campaign_id))
        if len(kept) == len(part):
            continue
        rows += len(part) - len(kept)
        removed.append(name)
        if len(kept):
            fresh = layout.merging / part_name(uuid.uuid4().hex)
            write_trials(fresh, kept)
            sync_file(fresh)
            added[f"{name.rpartition('/')[0]}/{fresh.name}"] = fresh
    return rows, removed, added
