"""Several campaigns of one sweep: how wide their intervals are, and whether their tables agree with each other.

    .venv/bin/python benchmarks/agreement.py --runs 3 --busy 3 --sweep sweeps/quickstart.yaml

First on the machine as it is, then beside a process that computes on one core for random seconds. Two campaigns agree
in a ratio if the difference of their logarithms is no larger than the root of the sum of the squares of their
half-widths: of independent campaigns 95 of 100 ratios do. Prints a page of Markdown.
"""

import argparse
import itertools
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis import Ratio
from orchestrator.analysis.summary import columns, summarise
from orchestrator.report.text import shape_name
from orchestrator.store import open_store

BURST_S = (0.5, 8.0)
PAUSE_S = (0.5, 12.0)
"""Of the neighbour, drawn evenly between these."""


@dataclass(frozen=True)
class Campaign:
    """One run of the sweep."""

    name: str
    seconds: float
    """With looking around and starting, without building."""
    ratios: dict[str, Ratio]
    """By what they are of."""
    twins: list[Ratio]
    trials: int


def main() -> int:
    """Runs the campaigns and prints what they say of each other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="on the machine as it is (default: %(default)s)")
    parser.add_argument("--busy", type=int, default=3, help="beside a neighbour (default: %(default)s)")
    parser.add_argument("--sweep", type=Path, default=Path("sweeps/quickstart.yaml"))
    parser.add_argument("--results", type=Path, default=Path("results/agreement"))
    given = parser.parse_args()
    found = [run(given.sweep, given.results / f"idle-{number}") for number in range(1, given.runs + 1)]
    for number in range(1, given.busy + 1):
        with neighbour(number):
            found.append(run(given.sweep, given.results / f"busy-{number}"))
    print(page(found))
    return 0


def run(sweep: Path, results: Path) -> Campaign:
    """One campaign in a store of its own."""
    start = time.monotonic()
    command = [sys.executable, "-m", "orchestrator", "sweep", "run", str(sweep), "--results", str(results)]
    subprocess.run([*command, "--resume", "never"], check=True, stdout=sys.stderr)
    seconds = time.monotonic() - start
    trials = open_store(results).trials(columns=columns()).arrow()
    summary = summarise(trials)
    ratios = {
        f"{shape_name(cell.shape)}, batch {cell.batch}, {cell.backend}": cell.ratio
        for setting in summary.settings
        for cell in setting.cells
        if cell.ratio is not None
    }
    twins = [twin.ratio for setting in summary.settings for twin in setting.twins]
    return Campaign(results.name, seconds, ratios, twins, len(trials))


@contextmanager
def neighbour(seed: int) -> Iterator[None]:
    """A process that computes on one core, now and then, while the block lasts."""
    code = (
        "import random, time\n"
        f"draw = random.Random({seed})\n"
        "while True:\n"
        f"    end = time.monotonic() + draw.uniform{BURST_S}\n"
        "    while time.monotonic() < end: pass\n"
        f"    time.sleep(draw.uniform{PAUSE_S})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()


def page(found: list[Campaign]) -> str:
    """The tables."""
    lines = ["| campaign | seconds | trials | median half-width | undecided | A/A |", "|---|---|---|---|---|---|"]
    for campaign in found:
        widths = [half for ratio in campaign.ratios.values() if (half := half_width(ratio)) is not None]
        undecided = sum(ratio.verdict.value == "undecided" for ratio in campaign.ratios.values())
        twins = "; ".join(f"x{twin.estimate.value:.3f} ({twin.verdict.value})" for twin in campaign.twins)
        width = f"±{100 * math.expm1(statistics.median(widths)):.1f} %"
        counts = f"{undecided} of {len(campaign.ratios)}"
        lines.append(f"| {campaign.name} | {campaign.seconds:.0f} | {campaign.trials} | {width} | {counts} | {twins} |")
    pairs = [
        agree(campaign.ratios[name], other.ratios[name])
        for campaign, other in itertools.combinations(found, 2)
        for name in sorted(campaign.ratios.keys() & other.ratios.keys())
    ]
    known = [pair for pair in pairs if pair is not None]
    twins = [twin for campaign in found for twin in campaign.twins]
    different = sum(twin.verdict.is_different for twin in twins)
    share = f"{100 * sum(known) / len(known):.1f} %" if known else "none"
    lines += ["", f"Pairs of campaigns agree in {sum(known)} of {len(known)} ratios ({share})."]
    lines += [f"A/A pairs called different: {different} of {len(twins)}."]
    names = sorted(set().union(*(campaign.ratios for campaign in found)))
    lines += ["", f"| ratio | {' | '.join(campaign.name for campaign in found)} |", "|---" * (len(found) + 1) + "|"]
    for name in names:
        lines.append(f"| {name} | {' | '.join(cell(campaign.ratios.get(name)) for campaign in found)} |")
    return "\n".join(lines)


def cell(ratio: Ratio | None) -> str:
    """A ratio with its half-width."""
    if ratio is None:
        return "–"
    half = half_width(ratio)
    return f"{ratio.estimate.value:.3f}" + ("" if half is None else f" ±{100 * math.expm1(half):.1f} %")


def half_width(ratio: Ratio) -> float | None:
    """Half of the interval of its logarithm."""
    low, high = ratio.estimate.low, ratio.estimate.high
    return None if low is None or high is None else math.log(high / low) / 2


def agree(first: Ratio, other: Ratio) -> bool | None:
    """Whether two estimates of one ratio differ by no more than their intervals let expect."""
    halves = half_width(first), half_width(other)
    if halves[0] is None or halves[1] is None:
        return None
    return abs(math.log(first.estimate.value / other.estimate.value)) <= math.hypot(halves[0], halves[1])


if __name__ == "__main__":
    sys.exit(main())
