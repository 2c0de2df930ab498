"""Small sweeps in containers through Ray, by the command that users give, and what their store says afterwards."""

import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.performance.commands import compiling, taxmeter
from orchestrator.store import open_store

_PROJECT = Path(__file__).parents[2]
_CORES = "0"
"""Of containers that no sweep starts: those of one thread."""

_BEFORE = (
    "reference_s",
    "artifact_s",
    "build_s",
    "load_s",
    "verify_s",
    "inputs_s",
    "first_call_s",
    "warmup_s",
)
"""Of a trial until its first timed call, but for the milliseconds of `facts_s` that are not after its last."""


@dataclass(frozen=True)
class Swept:
    """A campaign that has ended."""

    wall_s: float
    """Of the command, from its start to its table."""
    running_s: float
    """In which a task was on the host: container, imports and all trials."""
    trials: Sequence[Mapping[str, Any]]
    """In the order in which they began."""
    image: str | None
    """In which they ran, for `docker run`; null in processes."""
    asked_at: datetime
    """When the command was given."""

    @property
    def timed_s(self) -> float:
        """In calls whose time is stored."""
        return sum(sum(row["samples_sync_s"]) for row in self.trials)

    @property
    def until_timed_s(self) -> float:
        """From the command to the first timed call, at most: verification after timing counts too."""
        first = [row for row in self.trials if row["session_id"] == self.trials[0]["session_id"]]
        ready_s = sum(row[name] or 0.0 for row in first for name in _BEFORE)
        return (first[0]["started_at"] - self.asked_at).total_seconds() + float(ready_s)

    @property
    def gaps_s(self) -> list[float]:
        """From the beginning of a trial to that of the next one of the same task."""
        pairs = [(before, after) for before, after in pairwise(self.trials) if before["round"] == after["round"]]
        return [(after["started_at"] - before["started_at"]).total_seconds() for before, after in pairs]


def swept(sweep: Mapping[str, Any], directory: Path, executor: str = "docker") -> Swept:
    """Runs a sweep on this machine, by default in containers, into a new store in the directory, which is deleted.

    Raises:
        SystemExit: a trial did not end well, or there is no engine.
    """
    directory.mkdir()
    file, store = directory / "sweep.yaml", directory / "results"
    file.write_text(json.dumps({"version": 1, "environments": "cpu", **sweep}), encoding="utf-8")
    inventory = {"version": 1, "hosts": {"here": {"connection": "local", "executor": executor}}}
    (directory / "inventory.yaml").write_text(json.dumps(inventory), encoding="utf-8")
    options = ["--inventory", str(directory / "inventory.yaml"), "--results", str(store)]
    asked_at = datetime.now(UTC)
    start = time.monotonic()
    command = taxmeter("sweep", "run", str(file), *options)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=_PROJECT, env=compiling())
    wall_s = time.monotonic() - start
    results = open_store(store)
    [campaign] = results.campaigns().arrow().to_pylist()
    rows = sorted(results.trials().arrow().to_pylist(), key=lambda row: row["started_at"])
    if any(row["status"] != "ok" for row in rows):
        raise SystemExit(f"{sweep['name']}: {[(row['workload'], row['status'], row['reason']) for row in rows]}")
    shutil.rmtree(directory)
    return Swept(wall_s, campaign["running_s"], rows, rows[0]["image_id"], asked_at)


def contained(image: str, program: str, *arguments: str) -> Any:
    """What a program of `benchmarks/` prints last, which is JSON, in a container of an image on one core."""
    mounts = [f"--volume={_PROJECT / name}:/code/{name}:ro" for name in ("benchmarks", "runners")]
    options = [
        "--rm",
        "--init",
        "--network=none",
        "--tmpfs=/cache:mode=1777",
        f"--cpuset-cpus={_CORES}",
        "--env=PYTHONPATH=/code",
        *mounts,
    ]
    command = ["docker", "run", *options, image, "python", f"/code/benchmarks/{program}", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])
