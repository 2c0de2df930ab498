"""`python -m benchmarks.performance`: measures taxmeter itself; exits with 1 if a target does not hold."""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from benchmarks.performance import commands, driving
from benchmarks.store import report
from benchmarks.store.report import Figure

PROJECT = Path(__file__).parents[2]
SIZES = (1_000, 10_000, 100_000)
DRIVER_S = 3e-3
GROWTH = 1.2
COMMANDS = {("--version",): 0.25, ("--help",): 0.3, ("results", "ls"): 0.6}
"""With their limits in seconds of processor time, which neighbours change less than wall time."""


def main() -> int:
    """Measures, prints the table and JSON, and writes the JSON where it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of each command (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="trials in a task (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="a file for the figures as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taxmeter-bench-") as directory:
        figures = [*_commands(arguments.repeats, Path(directory)), *_driver(arguments.sizes, Path(directory))]
    print(report.table(figures))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps([asdict(figure) for figure in figures], indent=2), encoding="utf-8")
    return 1 if any(figure.holds is False for figure in figures) else 0


def _commands(repeats: int, directory: Path) -> list[Figure]:
    (directory / "results").mkdir()
    bare = commands.bare(repeats, directory)
    figures = []
    for arguments, limit_s in COMMANDS.items():
        took = commands.took(commands.taxmeter(*arguments), repeats, directory)
        times = f"a bare interpreter: × {took.cpu_s / bare.cpu_s:.1f}"
        name = f"taxmeter {' '.join(arguments)}, processor time"
        figures.append(report.at_most(name, took.cpu_s, limit_s, report.milliseconds, times))
    return figures


def _driver(sizes: list[int], directory: Path) -> list[Figure]:
    driven = [driving.drive(1, size, directory / f"driven-{size}") for size in sizes]
    figures = [
        report.at_most(
            f"driver's processor time, {one.trials:,} trials in one task",
            one.driver_s / one.trials,
            DRIVER_S,
            report.milliseconds,
            note=f" a trial, {one.peak_bytes / 2**20:.0f} MiB, plan {one.plan_s:.2f} s",
        )
        for one in driven
    ]
    # Without what a campaign of any size costs: each step against the one before it
    steps = [(b.driver_s - a.driver_s) / (b.trials - a.trials) for a, b in pairwise(driven)]
    if len(steps) > 1:
        times = steps[-1] / steps[0]
        figures.append(report.at_most("growth of the driver's time a trial", times, GROWTH, "× {:.2f}".format))
    return figures


if __name__ == "__main__":
    sys.exit(main())
