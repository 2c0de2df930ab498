"""Known slow-downs, and whether the whole path finds them: sweeps of real models whose eager calls are made slower.

    .venv/bin/python benchmarks/injected.py --campaigns 10 --workload shufflenet-v2 --budget '60 s'

Each campaign measures eager and eager with a spin after each call (option `spin_us`), in turns, with Ray, containers
where there is an engine, and a store of its own. A spin lasts as long on a slow machine as on a fast one, so the true
ratio is that of the campaign: from the 10th percentile of plain eager, because ratios are those of 10th percentiles.
A line of JSON for each slow-down: how often the truth lies in the interval, how often it was called a difference, how
wide the intervals are; and of each campaign its sessions, its half-width and whether it was called slower.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from orchestrator.analysis import Estimate
from orchestrator.analysis.summary import columns, summarise
from orchestrator.store import open_store

SWEEP = """
version: 1
name: injected
environments: [cpu]
workloads: [{{name: {workload}, batch: 1}}]
backends: [{backends}]
threads: [1]
budget: {budget}
protocol:
  {{warmup_min_calls: 1, warmup_min_ms: 500, warmup_max_ms: 1500, turn_ms: 30, cycles: 40, sync_budget_ms: 1200,
    floor_budget_ms: 0}}
"""


def main() -> int:
    """Finds the latency of a call, then runs the campaigns and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=10)
    parser.add_argument("--workload", default="shufflenet-v2")
    parser.add_argument("--percent", type=float, nargs="+", default=[2.0, 5.0, 10.0])
    parser.add_argument("--budget", default="60 s")
    parser.add_argument("--inventory", default="hostinventory.yaml")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        latency_s, _ = _swept(root / "plain", given, [0])
        spins = [0, *(round(latency_s * percent * 1e4) for percent in given.percent)]
        found = [_swept(root / str(number), given, spins) for number in range(given.campaigns)]
    for percent, spin_us in zip(given.percent, spins[1:], strict=True):
        truths = [plain_s / (plain_s + spin_us / 1e6) for plain_s, _ in found]
        ratios = [by_spin[spin_us] for _, by_spin in found]
        known = [
            (truth, *ratio)
            for truth, ratio in zip(truths, ratios, strict=True)
            if ratio is not None and ratio[0].low is not None
        ]
        print(
            json.dumps(
                {
                    "workload": given.workload,
                    "slower_percent": percent,
                    "campaigns": len(known),
                    "within_interval": sum(_holds(ratio, truth) for truth, ratio, _ in known),
                    "called_slower": sum(is_slower for _, _, is_slower in known),
                    "median_true_ratio": round(statistics.median(truth for truth, _, _ in known), 5),
                    "median_ratio": round(statistics.median(ratio.value for _, ratio, _ in known), 5),
                    "median_half_width_percent": round(statistics.median(_half(ratio) for _, ratio, _ in known), 2),
                    "by_campaign": [(ratio.processes, round(_half(ratio), 2), slower) for _, ratio, slower in known],
                }
            ),
            flush=True,
        )
    return 0


def _swept(directory: Path, given: argparse.Namespace, spins: list[int]) -> tuple[float, dict[int, tuple | None]]:
    """The 10th percentile of plain eager in seconds; by spin in microseconds the ratio to it, and if that is slower."""
    directory.mkdir()
    backends = ", ".join(f"{{name: eager, options: {{spin_us: {spin}}}}}" for spin in spins)
    sweep = directory / "sweep.yaml"
    sweep.write_text(SWEEP.format(workload=given.workload, backends=backends, budget=given.budget))
    # Inside of the project, where a cluster of ours would see it too
    results = Path("results") / f"injected-{directory.parent.name}-{directory.name}"
    command = [sys.executable, "-m", "orchestrator", "sweep", "run", str(sweep), "--inventory", given.inventory]
    # A process of its own: Ray reads its token once in each
    subprocess.run([*command, "--results", str(results)], check=True, stdout=sys.stderr)
    trials = open_store(results).trials(columns=columns()).arrow()
    [setting] = summarise(trials).settings
    cells = {cell.backend: cell for cell in setting.cells}
    found = {}
    for spin in spins[1:]:
        ratio = cells[f"eager spin_us={spin}"].ratio
        found[spin] = None if ratio is None else (ratio.estimate, ratio.verdict.direction < 0)
    plain = [row for row in trials.to_pylist() if not json.loads(row["backend_options"]).get("spin_us")]
    return statistics.median(row["latency_sync_p10_s"] for row in plain if row["status"] == "ok"), found


def _holds(ratio: Estimate, truth: float) -> bool:
    return ratio.low is not None and ratio.high is not None and ratio.low <= truth <= ratio.high


def _half(ratio: Estimate) -> float:
    assert ratio.low is not None
    assert ratio.high is not None
    return 50 * (ratio.high - ratio.low) / ratio.value


if __name__ == "__main__":
    sys.exit(main())
