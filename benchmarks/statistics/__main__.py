"""`python -m benchmarks.statistics`: simulates campaigns; exits with 1 if an interval or a verdict does not hold."""

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.statistics.coverage import INTERVALS, covered
from benchmarks.statistics.simulating import Campaign, Noise, verdicts_of
from orchestrator.analysis.verdict import MINIMUM_EFFECT, Verdict

COVERED: Final = (0.93, 0.97)
FALSE_POSITIVES: Final = 0.05
ROUNDS: Final = (3, 5, 10)
MANY_ROUNDS: Final = (*ROUNDS, 20)
CVS: Final = (0.01, 0.03, 0.1)
ALLOWED_SLOWDOWN: Final = 0.05
_ANY: Final = 1e-9
"""A minimum effect below everything: what is judged then is the interval and Holm's correction alone."""

Row = Sequence[str]


def main() -> int:
    """Simulates, prints the page and writes it where it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=4000, help="per interval, rounds and scatter (default: %(default)s)"
    )
    parser.add_argument("--campaigns", type=int, default=1000, help="per share of verdicts (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=2023)
    parser.add_argument("--output", type=Path, help="a page of Markdown, such as docs/measured/statistics.md")
    arguments = parser.parse_args()
    problems: list[str] = []
    text = page(arguments.runs, arguments.campaigns, arguments.seed, problems)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text, encoding="utf-8")
    for problem in problems:
        print(f"does not hold: {problem}", file=sys.stderr)
    return 1 if problems else 0


def page(runs: int, campaigns: int, seed: int, problems: list[str]) -> str:
    """The page; what does not hold is added to `problems`."""
    random = np.random.default_rng(seed)
    return _PAGE.format(
        runs=f"{runs:,}",
        campaigns=f"{campaigns:,}",
        seed=seed,
        noise=Noise(0.01),
        coverage=_table("interval", _coverage(random, runs, problems)),
        alarms=_table("nothing differs", _alarms(random, campaigns, problems)),
        power=_table("one is 5 % slower", _power(random, campaigns)),
        gate=_table("one is 10 % slower", _gate(random, campaigns)),
    )


def _coverage(random: np.random.Generator, runs: int, problems: list[str]) -> Iterator[Row]:
    for name, interval in INTERVALS.items():
        for rounds in ROUNDS:
            shares = [covered(interval, random, Noise(cv), rounds, runs) for cv in CVS]
            for cv, share in zip(CVS, shares, strict=True):
                if not COVERED[0] <= share <= COVERED[1]:
                    problems.append(f"{name}, {rounds} rounds, CV {cv:g}: covers {share:.4f}")
            yield (name, str(rounds), *(f"{100 * share:.1f} %" for share in shares))


def _alarms(random: np.random.Generator, campaigns: int, problems: list[str]) -> Iterator[Row]:
    # What is exactly 5 % is counted above it every other time.
    slack = 2 * math.sqrt(FALSE_POSITIVES * (1 - FALSE_POSITIVES) / campaigns)
    for place, is_paired in (("within rounds", True), ("between two campaigns", False)):
        shape = Campaign(paired=is_paired)
        for how, effect, most in (
            ("as `compare` judges", MINIMUM_EFFECT, FALSE_POSITIVES),
            ("any difference counts", _ANY, FALSE_POSITIVES + slack),
        ):
            one = replace(shape, twins=shape.twins if effect == MINIMUM_EFFECT else 0)
            for rounds in ROUNDS:
                shares = [_alarmed(random, Noise(cv), replace(one, rounds=rounds), effect, campaigns) for cv in CVS]
                name = f"{one.ratios} ratios {place}, {how}"
                problems += [
                    f"{name}, {rounds} rounds, CV {cv:g}: {share:.3f} of the campaigns raise an alarm"
                    for cv, share in zip(CVS, shares, strict=True)
                    if share > most
                ]
                yield (name, str(rounds), *(f"{100 * share:.1f} %" for share in shares))


def _power(random: np.random.Generator, campaigns: int) -> Iterator[Row]:
    alone, family = Campaign(settings=1, compared=1, effect=1.05), Campaign(effect=1.05)
    for name, shape in (("one ratio within rounds", alone), (f"one of {family.ratios} ratios within rounds", family)):
        for rounds in MANY_ROUNDS:
            yield (name, str(rounds), *_found(random, replace(shape, rounds=rounds), MINIMUM_EFFECT, campaigns))


def _gate(random: np.random.Generator, campaigns: int) -> Iterator[Row]:
    for place, is_paired in (("within rounds", True), ("between two campaigns", False)):
        shape = Campaign(effect=1.1, paired=is_paired)
        for rounds in MANY_ROUNDS:
            name = f"one of {shape.ratios} ratios {place}"
            yield (name, str(rounds), *_found(random, replace(shape, rounds=rounds), ALLOWED_SLOWDOWN, campaigns))


def _alarmed(random: np.random.Generator, noise: Noise, campaign: Campaign, effect: float, campaigns: int) -> float:
    """The share of campaigns without any difference in which one is found."""
    found = (verdicts_of(random, noise, campaign, effect) for _ in range(campaigns))
    return sum(any(one.is_different for one in verdicts) for verdicts in found) / campaigns


def _found(random: np.random.Generator, campaign: Campaign, effect: float, campaigns: int) -> list[str]:
    """The share of campaigns in which the one that is slower is called so, by scatter."""
    shares = []
    for cv in CVS:
        verdicts = (verdicts_of(random, Noise(cv), campaign, effect)[0] for _ in range(campaigns))
        shares.append(sum(one is Verdict.SLOWER for one in verdicts) / campaigns)
    return [f"{100 * share:.0f} %" for share in shares]


def _table(first: str, rows: Iterable[Row]) -> str:
    head = (first, "rounds", *(f"CV {100 * cv:g} %" for cv in CVS))
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_PAGE: Final = """# Do the statistics hold?

Written by

```sh
python -m benchmarks.statistics --output docs/measured/statistics.md
```

from simulated campaigns whose truth is known (seed {seed}), through the functions that judge real ones. A process has
{noise.samples} samples with a log-normal scatter of {noise.sample_sigma:.0%}, of which {noise.burst_share:.0%}
are prolonged by a Pareto tail of index {noise.burst_index:g}; rounds differ by {noise.round_sigma:.0%}, processes by
the CV of each column. [Comparing](../comparing.md) says what the words mean.

## Intervals of 95 % hold the truth

The share of {runs} campaigns whose interval has the truth in it; the target is 93 to 97 %. Below 6 rounds the
bootstrap is Student's t.

{coverage}

## False alarms

The share of {campaigns} campaigns, each with 15 ratios judged together (Holm) in which nothing differs, that call
something different; the target is at most 5 %. One A/A pair per campaign gives the noise floor.

{alarms}

## Power

The share of {campaigns} campaigns in which `compare` calls 5 % more time slower. The whole interval must lie beyond
3 %, or beyond twice the noise floor where that is more, so that what is left to find is a difference of 2 %.

{power}

The same of `gate`, with 5 % allowed, for 10 % more time:

{gate}
"""

if __name__ == "__main__":
    sys.exit(main())
