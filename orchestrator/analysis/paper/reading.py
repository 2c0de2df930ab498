"""The trials that figures are drawn from, read once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from orchestrator.analysis.axes import AXES, columns_of
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.analysis.paper.settings import Cells, Setting, by_setting
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.store import Results, Selection
from runners.contract import LEGACY

Row = dict[str, Any]

_NUMBERS: Final = (
    *("latency_sync_median_s", "latency_pipelined_median_s", "latency_legacy_s"),
    *("exposed_overhead_s", "framework_fraction", "dispatch_floor_valid", "regime"),
    *("macs", "achieved_flops_per_s", "utilisation_sm_active_share", "utilisation_sm_occupancy_share"),
)
_IDENTITY: Final = ("trial_id", "campaign_id", "round", "replicate", "attempt", "status", "reason", "host")


@dataclass(frozen=True)
class Trials:
    """What a store has for the paper's figures."""

    settings: Mapping[Setting, Cells]
    """Trials by setting and configuration: of each the attempt that counts, without the second halves of A/A pairs."""
    legacy: Mapping[Setting, Cells]
    """The same of the paper's own procedure, which is never mixed with the standard one."""
    started: Mapping[str, datetime]
    """When each campaign started."""
    sweeps: Mapping[str, str]
    """The sweep of each campaign."""
    systems: Sequence[Row]
    """The table of systems, with `details`."""


def read_trials(results: Results, where: Sequence[str] = ()) -> Trials:
    """Reads what figures need.

    Args:
        results: of `open_store`.
        where: conditions that all trials meet, such as `gpu=A100`.

    Raises:
        ConfigurationError: a condition is wrong, or no trial meets it.
        StoreError: a file cannot be read.
    """
    snapshot = Snapshot.of(results)
    columns = [*_IDENTITY, *columns_of(AXES.values()), *_NUMBERS]
    found = snapshot.rows(columns, snapshot.condition(parse_conditions(where, "--where")))
    rows = [row for row in found if row["replicate"] == 0]
    legacy = [row for row in rows if _procedure(row["protocol"]) == LEGACY]
    standard = [row for row in rows if _procedure(row["protocol"]) != LEGACY]
    systems = Selection(snapshot.view, "systems", None, ("system_id", "cpu_model", "gpu_name", "details")).arrow()
    sweeps = {row["campaign_id"]: row["sweep"] for row in snapshot.campaigns}
    return Trials(by_setting(standard), by_setting(legacy), snapshot.started, sweeps, systems.to_pylist())


@lru_cache(maxsize=1024)
def _procedure(protocol: str | None) -> str | None:
    return None if protocol is None else json.loads(protocol).get("procedure")
