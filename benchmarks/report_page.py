"""How long the page of a report takes to make and to open: `python -m benchmarks.report_page [TRIALS] [STORE]`.

Opening is measured in a headless Chromium, from the address to the moment in which every chart that is in view is
drawn; the load of the machine stands beside it, for about a second and a half of it is computing.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.report.page import make_report, render_page
from orchestrator.store import open_store
from tests.browser import browser, opened
from tests.systems import World, make_systems

TRIALS = 100_000
RUNS = 5
LIMITS = {"open_s": 3.0, "size_mb": 20.0}


def main() -> int:
    """Prints what was measured as JSON; 1 if the page is too large or opens too slowly."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    with tempfile.TemporaryDirectory() as directory:
        store = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(directory) / "results"
        if not store.exists():
            make_systems(store, World(trials=trials))
        path = Path(directory) / "report.html"
        found = _made(store, path) | _opened(path)
    print(json.dumps(found, indent=1))
    return int(any(found[name] > limit for name, limit in LIMITS.items()))


def _made(store: Path, path: Path) -> dict[str, float]:
    began = time.perf_counter()
    report = make_report(open_store(store))
    made = time.perf_counter()
    path.write_text(render_page(report), encoding="utf-8")
    return {
        "trials": sum(report.page.statuses.values()),
        "configurations": len(report.page.cells),
        "make_s": round(made - began, 1),
        "render_s": round(time.perf_counter() - made, 1),
        "size_mb": round(path.stat().st_size / 1e6, 2),
        "samples_kept": report.samples.kept,
        "samples": report.samples.total,
    }


def _opened(path: Path) -> dict[str, float]:
    walls = []
    with browser() as running:
        for _ in range(RUNS):
            with opened(running, path) as found:
                # The clock of the page starts with its navigation
                walls.append(found.page.evaluate("performance.now()") / 1000)
                assert found.said == []
    return {
        "open_s": round(statistics.median(walls), 2),
        "open_slowest_s": round(max(walls), 2),
        "load_1m": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
