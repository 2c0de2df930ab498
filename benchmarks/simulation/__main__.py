"""`python -m benchmarks.simulation`: simulates campaigns; exits with 1 if an interval or a verdict does not hold."""

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Final

import numpy as np

from benchmarks.simulation.coverage import INTERVALS, covered
from benchmarks.simulation.simulating import (
    BUSY,
    PRECISION_PPM,
    QUIET,
    STATES_SIGMA,
    Campaign,
    Machine,
    Noise,
    holds,
    ratios_of,
    shifted,
)
from orchestrator.analysis.verdict import Verdict, judge_family
from orchestrator.report import markdown
from runners.statistics.moderation import BETWEEN_CAMPAIGNS

COVERED: Final = (0.93, 0.97)
ALARMS: Final = 0.05
POWER: Final = 0.8
PROCESSES: Final = (3, 10)
SESSIONS: Final = (3, 10)
BUDGET: Final = 36
"""Of sessions of a campaign, three of each group first; the quickstart has 20 to 30, of twice the length."""
_BUDGET: Final = "budget"
CVS: Final = (0.01, 0.015, 0.02, 0.03, 0.1, 0.3)
SLOWER: Final = (1.05, 1.10)

Row = Sequence[str]


@dataclass(frozen=True)
class Found:
    """Of some simulated campaigns, in which nothing differs unless it is said."""

    covered: float
    """Of the intervals of all ratios."""
    alarmed: float
    """Of the campaigns in which something is called different."""
    twins: float
    """Of the A/A pairs that are called different."""
    half_width: float
    """Of the intervals, the median, relative."""
    slower: Mapping[float, float]
    """Of the campaigns in which one backend takes so many times as long and is called slower, by that factor."""


Cells = Mapping[tuple[Machine, str], Sequence[Found]]
"""By machine and design, one for each CV."""


def main() -> int:
    """Simulates, prints the page and writes it where it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="per interval without sessions (default: %(default)s)")
    parser.add_argument("--campaigns", type=int, default=1000, help="per number of a table (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--jobs", type=int, default=1, help="processes; the numbers are the same with any number")
    parser.add_argument("--output", type=Path, help="a page of Markdown, such as docs/measured/statistics.md")
    arguments = parser.parse_args()
    problems: list[str] = []
    text = page(arguments.runs, arguments.campaigns, arguments.seed, problems, arguments.jobs)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text, encoding="utf-8")
    for problem in problems:
        print(f"does not hold: {problem}", file=sys.stderr)
    return 1 if problems else 0


def page(runs: int, campaigns: int, seed: int, problems: list[str], jobs: int = 1) -> str:
    """The page; what does not hold is added to `problems`."""
    designs = {str(count): Campaign(sessions=count) for count in SESSIONS}
    designs[_BUDGET] = Campaign(budget=BUDGET)
    rows = [(machine, name) for machine in (QUIET, BUSY) for name in designs]
    asked = [(machine, Noise(cv), designs[name], campaigns) for machine, name in rows for cv in CVS]
    seeds = [[seed, number] for number in range(len(asked))]
    if jobs > 1:
        with ProcessPoolExecutor(jobs) as pool:
            every = list(pool.map(_simulated, seeds, asked))
    else:
        every = list(map(_simulated, seeds, asked))
    cells: Cells = {row: every[len(CVS) * number : len(CVS) * (number + 1)] for number, row in enumerate(rows)}
    random = np.random.default_rng(seed)
    slack = 2 * math.sqrt(ALARMS * (1 - ALARMS) / campaigns)
    for (machine, sessions), some in cells.items():
        for cv, cell in zip(CVS, some, strict=True):
            name = f"{machine.name}, {sessions} sessions, CV {cv:g}"
            problems += [] if COVERED[0] <= cell.covered <= COVERED[1] else [f"{name}: covers {cell.covered:.4f}"]
            problems += [] if cell.alarmed <= ALARMS + slack else [f"{name}: {cell.alarmed:.3f} raise an alarm"]

    def table(read: Callable[[Found], float], digits: int = 1) -> str:
        rows = ((m.name, n, *(_percent(read(cell), digits) for cell in some)) for (m, n), some in cells.items())
        return _table("machine", "sessions", rows)

    campaign = Campaign()
    return _PAGE.format(
        runs=f"{runs:,}",
        campaigns=f"{campaigns:,}",
        seed=seed,
        campaigns_plain=campaigns,
        runs_plain=runs,
        noise=Noise(0.01),
        states=STATES_SIGMA,
        between=BETWEEN_CAMPAIGNS,
        campaign=campaign,
        precision=PRECISION_PPM / 1e6,
        budget=BUDGET,
        ratios=campaign.groups * (campaign.backends - 1),
        verdict="\n".join(fill(f"- {text}", 120, subsequent_indent="  ") for text in sentences(cells, campaigns)),
        half_widths=table(lambda cell: cell.half_width),
        alarmed=table(lambda cell: cell.alarmed),
        twins=table(lambda cell: cell.twins),
        slower5=table(lambda cell: cell.slower[1.05], 0),
        slower10=table(lambda cell: cell.slower[1.10], 0),
        others=_table("interval", "processes", _coverage(random, runs, problems)),
    )


def _simulated(seed: Sequence[int], asked: tuple[Machine, Noise, Campaign, int]) -> Found:
    return simulated(np.random.default_rng(seed), *asked)


def simulated(random: np.random.Generator, machine: Machine, noise: Noise, campaign: Campaign, campaigns: int) -> Found:
    """What becomes of some campaigns."""
    held, widths, alarms, twins = [], [], 0, []
    slower = dict.fromkeys(SLOWER, 0)
    for _ in range(campaigns):
        ratios, pairs = ratios_of(random, machine, noise, campaign)
        estimates = [ratio.estimate for ratio in ratios]
        held += [holds(estimate, 1.0) for estimate in estimates]
        widths += [estimate.half_width or math.inf for estimate in estimates]
        alarms += any(ratio.verdict.is_different for ratio in ratios)
        twins += [pair.verdict.is_different for pair in pairs]
        for factor in SLOWER:
            verdicts = judge_family([shifted(estimates[0], factor), *estimates[1:]])
            slower[factor] += verdicts[0].verdict in (Verdict.SLOWER, Verdict.SLIGHTLY_SLOWER)
    return Found(
        sum(held) / len(held),
        alarms / campaigns,
        sum(twins) / max(1, len(twins)),
        float(np.median(widths)),
        {factor: count / campaigns for factor, count in slower.items()},
    )


def sentences(cells: Cells, campaigns: int) -> Iterator[str]:
    """Which targets hold, in sentences."""
    every = [cell for some in cells.values() for cell in some]
    low, high = (_percent(end(cell.covered for cell in every)) for end in (min, max))
    inside = sum(COVERED[0] <= cell.covered <= COVERED[1] for cell in every)
    yield f"Intervals: {inside} of {len(every)} numbers are within 93 to 97 %; from {low} to {high} %."
    yield f"False alarms: {_share([cell.alarmed for cell in every], campaigns)}"
    yield f"The A/A pair alone: {_share([cell.twins for cell in every], campaigns)}"
    for machine, factor in ((QUIET, SLOWER[0]), (BUSY, SLOWER[1])):
        reach = [f"{name} {_reach(some, factor)}" for (where, name), some in cells.items() if where is machine]
        head = f"{_percent(factor - 1, 0)} % longer, {machine.name} machine, found in {_percent(POWER, 0)} %"
        yield f"{head}: {', '.join(reach)}."


def _coverage(random: np.random.Generator, runs: int, problems: list[str]) -> Iterator[Row]:
    for name, interval in INTERVALS.items():
        for processes in PROCESSES:
            shares = [covered(interval, random, Noise(cv, samples=30), processes, runs) for cv in CVS]
            for cv, share in zip(CVS, shares, strict=True):
                if not COVERED[0] <= share <= COVERED[1]:
                    problems.append(f"{name}, {processes} processes, CV {cv:g}: covers {share:.4f}")
            yield (name, str(processes), *(_percent(share) for share in shares))


def _share(shares: Sequence[float], campaigns: int) -> str:
    """The mean of some shares of campaigns, and how many of them are above the target."""
    error = math.sqrt(ALARMS * (1 - ALARMS) / campaigns)
    above, far = (sum(share > ALARMS + slack for share in shares) for slack in (0, 2 * error))
    middle, own = _percent(float(np.mean(shares))), _percent(error / math.sqrt(len(shares)), 2)
    return (
        f"{middle} % on average, with a standard error of {own}; {above} of {len(shares)} numbers are above 5 %, "
        f"{far} by more than two of their own standard errors of {_percent(error)}."
    )


def _reach(some: Sequence[Found], factor: float) -> str:
    """Up to which scatter of processes a slow-down is found."""
    able = [cv for cv, cell in zip(CVS, some, strict=True) if cell.slower[factor] >= POWER]
    return f"up to a CV of {100 * max(able):g} %" if able else "at no CV"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"


def _table(first: str, second: str, rows: Iterable[Row]) -> str:
    head = [first, second, *(f"CV {100 * cv:g} %" for cv in CVS)]
    return "\n".join([*markdown.head(head), *map(markdown.row, rows)])


_PAGE: Final = """# Do the statistics hold?

Written by

```sh
python -m benchmarks.simulation --campaigns {campaigns_plain} --runs {runs_plain} --output docs/measured/statistics.md
```

from simulated campaigns whose truth is known (seed {seed}), through the functions that read and judge real rows;
{campaigns} campaigns per number. A campaign has {campaign.groups} groups of {campaign.backends} backends in sessions of
{campaign.cycles} cycles, and an A/A pair in one of them: {ratios} ratios, judged together: the quickstart,
whose turns are longer; "budget" is its way: three sessions of each group, then the next one where an interval is
widest, {budget} in all, none
once all are within {precision:.1%}. The speed of a quiet machine has noise of 7 %, correlated over 1 to 10 s; a busy
one has bursts of +42 % for 20 % of the time besides. A turn has {noise.samples} samples with a log-normal scatter of
{noise.sample_sigma:.0%}, of which {noise.burst_share:.0%} are prolonged by a Pareto tail of index
{noise.burst_index:g}. Processes differ for good, anew in each session, by the CV of each column: on the machines that
were looked at by 0.5 to 3 %. From campaign to campaign ratios of different backends differ by {states:.2%} besides,
for which the intervals have {between:.1%}. [Comparing](../comparing.md) says what the words mean.
All numbers are percentages.

## What holds

{verdict}

Three sessions say little about their scatter, and with a budget a group whose first three happen to agree gets no more
of them: an A/A pair is called different a little too often. Between backends the {between:.1%} make up for that.

## Half-width of a ratio

The median over all ratios.

{half_widths}

## False alarms

The share of campaigns in which nothing differs and something is called different; the target is 2 to 5 %.

{alarmed}

The same of the A/A pair alone:

{twins}

## Power

The share of campaigns in which the one backend that takes 5 % longer is called slower, among {ratios} ratios:

{slower5}

The same with 10 %:

{slower10}

## Intervals without sessions

The share of {runs} campaigns whose interval has the truth in it: of processes that share nothing, with 30 samples each.

{others}
"""

if __name__ == "__main__":
    sys.exit(main())
