"""Small stores for the tests of comparisons."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.analysis import Ratio
from orchestrator.analysis.comparison import ComparisonTable, Policy, compare
from orchestrator.store import Results, Row, Store, open_store, system_row
from tests.results import CAMPAIGNS, put_dimensions, system_document, trial


def measured(latency_s: float | None, round_number: int = 1, **more: object) -> Row:
    """A row of a trial whose median latency is this; its id says what it is."""
    status = str(more.get("status", "ok"))
    names = ("campaign", "host", "backend", "workload", "batch", "dtype", "replicate", "environment_id", "trial_key")
    name = "-".join(["t", *(str(more.get(key, "")) for key in names), str(round_number)])
    if latency_s is not None and status == "ok":
        more = {
            "latency_sync_median_s": latency_s, "latency_sync_p10_s": latency_s, "latency_sync_samples": 3,
            "samples_sync_s": [0.9 * latency_s, latency_s, 1.2 * latency_s], **more,
        }  # fmt: skip
    return trial(name, **{"round": round_number, "steady": True, **more})


def rounds(latencies_s: Sequence[float], **more: object) -> list[Row]:
    """A trial in several rounds."""
    return [measured(value, number, **more) for number, value in enumerate(latencies_s, 1)]


def store_of(directory: Path, *rows: Row, systems: Iterable[Row] = ()) -> Results:
    """A store of these rows, to read."""
    with Store.open(directory).writer() as writer:
        put_dimensions(writer)
        for one in systems:
            writer.put("systems", [one])
        writer.append(rows)
    return open_store(directory)


def by_backend(directory: Path, *rows: Row, policy: Policy | None = None) -> ComparisonTable:
    """Backends of these rows against eager."""
    return compare(store_of(directory, *rows), ["backend"], baseline="backend=eager", policy=policy)


def ratios_of(table: ComparisonTable) -> list[Ratio]:
    """Those of a table, in its order."""
    return [entry.ratio for entry in table.entries if entry.ratio is not None]


def system_of(system_id: str, **changes: object) -> Row:
    """A system as this machine is, but for these fields of its fingerprint."""
    return system_row(system_id, f"hw-{system_id}", {}, json.loads(system_document(private=None, **changes)))


OLD, NEW = CAMPAIGNS
"""Two campaigns, of which the second started later."""
