"""Processes for the kill test: writers and compactors that are forked from a warm parent, and plain readers.

`python -m tests.killing nursery ROOT WORK` reads a role and a number per line, forks, and prints the child's id.
`python -m tests.killing LIBRARY ROOT WORK` reads the store with a library until the file `WORK/stop` appears, and prints
what it saw as JSON. Readers use no code of the store.
"""

import json
import mmap
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

KEEP_S = 10.0
"""Far longer than any query here, far shorter than the test."""
SEAL_ROWS = (9, 100)
"""Of every other writer: one seals most of the time, one writes."""
CHILDREN = 4096


def nursery(root: Path, work: Path) -> None:
    """Forks children as it is told. Nothing here has used Arrow's threads, which a fork would lose."""
    import orchestrator.store.storage.compaction  # noqa: F401 - so that no child imports it
    import tests.storing  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        role, number = line.split()
        child = os.fork()
        if not child:
            try:
                {"writer": write, "compactor": keep_compacting}[role](root, work, int(number))
            except BaseException:  # noqa: BLE001 - the parent reads it, whatever it is
                traceback.print_exc()
            finally:
                os._exit(1)
        print(child, flush=True)


def phases(work: Path) -> mmap.mmap:
    """One byte per child: what it is doing."""
    with (work / "phases").open("r+b") as file:
        return mmap.mmap(file.fileno(), CHILDREN)


def write(root: Path, work: Path, number: int) -> None:
    """Appends for ever; what was acknowledged goes to a file of its own."""
    from orchestrator.store import Store
    from orchestrator.store.storage import writer as writing
    from tests.storing import row

    phase = phases(work)
    seal_segment = writing.seal_segment

    def sealing(*arguments: Any) -> object:
        phase[number] = ord("s")
        report = seal_segment(*arguments)
        phase[number] = ord("w")
        return report

    writing.seal_segment = sealing
    phase[number] = ord("s")
    acknowledged = os.open(work / f"acknowledged-{number}", os.O_WRONLY | os.O_CREAT)
    writer = Store.open(root).writer(SEAL_ROWS[number % 2], keep_s=KEEP_S)
    phase[number] = ord("w")
    for count in range(10**6):
        # Some of every writer's rows are those of all writers, too: they are sent again and again.
        names = [f"{number}-{count}", f"{number}-{count}-more", f"all-{count}"][: 1 + count % 3]
        writer.append([row(name, month=1 + count % 2) for name in names])
        os.write(acknowledged, "".join(f"{name}\n" for name in names).encode())


def keep_compacting(root: Path, work: Path, number: int) -> None:
    """Compacts for ever."""
    from orchestrator.store.storage.compaction import CompactionBusyError, compact
    from orchestrator.store.storage.layout import Layout

    phase = phases(work)
    chance = random.Random(number)
    while True:
        phase[number] = ord("c")
        try:
            compact(Layout(root), full=chance.random() < 0.5, keep_s=KEEP_S)
        except CompactionBusyError:
            continue
        phase[number] = ord("-")
        time.sleep(chance.random() * 0.02)


def with_pyarrow(root: str) -> list[str]:
    import pyarrow.dataset as ds

    table = ds.dataset(f"{root}/trials", partitioning="hive").to_table(columns=["trial_id"])
    return table["trial_id"].to_pylist()


def with_duckdb(root: str) -> list[str]:
    import duckdb

    query = f"SELECT trial_id FROM read_parquet('{root}/trials/**/*.parquet', hive_partitioning = true)"
    return [name for (name,) in duckdb.sql(query).fetchall()]


def with_polars(root: str) -> list[str]:
    import polars as pl

    return pl.scan_parquet(f"{root}/trials", hive_partitioning=True).select("trial_id").collect()["trial_id"].to_list()


def read(library: Callable[[str], list[str]], root: Path, work: Path) -> None:
    """Reads until told to stop."""
    seen: set[str] = set()
    reads = 0
    problems: list[str] = []
    longest_s = 0.0
    while not (work / "stop").exists():
        started = time.monotonic()
        generation = os.path.realpath(root / "current")
        try:
            rows = library(generation)
        except Exception as error:  # noqa: BLE001 - every library has its own
            problems.append(f"{datetime.now(UTC)} {generation}: {error!r}")
            continue
        longest_s = max(longest_s, time.monotonic() - started)
        reads += 1
        now = set(rows)
        if len(now) != len(rows):
            problems.append(f"{generation}: {len(rows) - len(now)} duplicates")
        if seen - now:
            problems.append(f"{generation}: {len(seen - now)} rows are gone, such as {min(seen - now)}")
        seen = now
        time.sleep(0.1)
    print(json.dumps({"reads": reads, "rows": len(seen), "longest_s": longest_s, "problems": problems[:5]}))


if __name__ == "__main__":
    if sys.argv[1] == "nursery":
        nursery(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        read(globals()[f"with_{sys.argv[1]}"], Path(sys.argv[2]), Path(sys.argv[3]))
