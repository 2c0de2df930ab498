"""A writer that is killed at any moment loses no acknowledged row and repeats none."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import duckdb

from orchestrator.store import Store

KILLS = 10

ROW = {
    "trial_key": "k", "campaign_id": "c", "round": 1, "order": 1, "replicate": 0, "attempt": 1, "status": "ok",
    "workload": "bert_base", "batch": 1, "backend": "eager", "backend_options": "{}", "dtype": "float32",
    "device": "cpu", "threads": 2, "seed": 0, "protocol": "{}", "method_version": 1, "contract_version": 1,
    "environment": "cpu", "samples_sync_s": [0.25] * 100,
}  # fmt: skip

WRITE = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from orchestrator.store import Store
row = json.loads(sys.argv[3])
with Store.open(Path(sys.argv[1])).writer(seal_after_rows=7) as writer:
    for number in range(100_000):
        month = datetime(2026, 1 + number % 2, 20, tzinfo=UTC)
        names = [f"{sys.argv[2]}-{number}-{part}" for part in range(1 + number % 3)]
        writer.append([{**row, "trial_id": name, "started_at": month} for name in names])
        print(*names, flush=True)
"""


def test_kill_dash_nine_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(5)
    store = Store.open(tmp_path / "results")
    acknowledged: list[str] = []
    for kill in range(KILLS):
        command = [sys.executable, "-c", WRITE, str(store.layout.root), str(kill), json.dumps(ROW)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 25)):
                acknowledged.extend(process.stdout.readline().split())
            time.sleep(chance.random() * 0.02)
            process.kill()
            # A last line without its end was cut off, and counts as not acknowledged.
            rest = process.stdout.read()
            acknowledged.extend(rest[: rest.rfind("\n") + 1].split())
        live = store.trials(["trial_id"])["trial_id"].to_pylist()
        assert set(acknowledged) <= set(live)
        assert len(live) == len(set(live))
    store.recover()
    path = store.layout.trials
    plain = [name for (name,) in duckdb.sql(f"SELECT trial_id FROM '{path}/**/*.parquet'").fetchall()]
    assert set(acknowledged) <= set(plain)
    assert len(plain) == len(set(plain))
    # Written but not yet acknowledged: at most the one append that was under way at each kill.
    assert len(set(plain) - set(acknowledged)) <= 3 * KILLS
    assert store.layout.segments() == []
