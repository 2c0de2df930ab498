"""`python -m benchmarks.performance`: measures taxmeter itself; exits with 1 if a target does not hold."""

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.performance import commands, driving, keeping, trials
from benchmarks.store import report
from benchmarks.store.report import Figure

PROJECT = Path(__file__).parents[2]
SIZES = (1_000, 10_000, 100_000)
TRIALS_OF_A_HOST = 1_000
"""In the campaign on many hosts."""
CAMPAIGNS = (250, 500, 1_000)
DRIVER_S = 3e-3
GROWTH = 1.2
LIMITS_S = {("--version",): 0.25, ("--help",): 0.3, ("results", "ls"): 0.6, commands.COMPARE: 1.0}
"""Of commands, in seconds of processor time, which neighbours change less than wall time."""
PLAN_S = 3.0
PARTS = ("commands", "driver", "stores", "null", "share", "bare", "warm", "quickstart")
PAGE = """\
# How fast taxmeter itself is

```sh
{command}
```

{day}, {machine}. Processor time, which neighbours change less than wall time: medians of {repeats} runs. \
Commands run in processes of their own, on compiled modules, without pandas, which Arrow imports where it is \
installed. A campaign is driven by the real driver into a real store, on hosts that answer at once; the trials of a \
host are one task. Stores have campaigns of {rows:,} trials in the real schema. Growth is what a trial costs at the \
largest size over what it costs at the smaller one that is cheapest. A null trial is one in a container through Ray, \
from its beginning to that of the next. The share is that of the timed calls of BERT-base, DistilBERT and ResNet-50 in \
eager and ONNX Runtime at batch 1 and 4, ten calls to warm up and thirty timed, in the time in which a task is on the \
host, with all verification; beside one process written by hand, and a fresh one for each configuration; that of the \
quickstart is in the time from the command to its table. A trial over a bare loop: 10th percentiles of calls in turns \
of one session, with the 95 % interval.

{table}
"""


def main() -> int:
    """Measures, prints the table, and writes JSON and a page where they are wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="of everything (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="trials of one host (default: %(default)s)")
    parser.add_argument(
        "--campaigns", type=int, nargs="+", default=CAMPAIGNS, help="in a store; the largest is listed and compared"
    )
    parser.add_argument("--hosts", type=int, default=100, help="of the campaign on many (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="some parts (default: all)")
    parser.add_argument("--output", type=Path, help="a file for the figures as JSON")
    parser.add_argument("--page", type=Path, help="a page of Markdown")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taxmeter-bench-") as directory:
        figures = []
        for figure in _figures(arguments, Path(directory)):
            print(f"{figure.what}: {figure.measured}", file=sys.stderr, flush=True)
            figures.append(figure)
    print(report.table(figures))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps([asdict(figure) for figure in figures], indent=2), encoding="utf-8")
    if arguments.page is not None:
        words = {
            "command": f".venv/bin/python -m benchmarks.performance {shlex.join(sys.argv[1:])}",
            "day": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": report.machine(),
            "repeats": arguments.repeats,
            "rows": keeping.ROWS,
        }
        page = PAGE.format(**words, table=report.table(figures))
        arguments.page.write_text(page, encoding="utf-8")
    return 1 if any(figure.holds is False for figure in figures) else 0


def _figures(arguments: argparse.Namespace, directory: Path) -> Iterator[Figure]:
    repeats, parts = arguments.repeats, arguments.only
    kept: list[Figure] = []
    if not {"commands", "stores"}.isdisjoint(parts):
        store, kept = _stores(arguments.campaigns, repeats, directory)
        if "commands" in parts:
            yield from _commands(repeats, directory, store)
    if "driver" in parts:
        yield from _driver(arguments.sizes, arguments.hosts, repeats, directory)
    yield from kept
    if "null" in parts:
        yield from trials.null(repeats, directory)
    if "share" in parts:
        yield from trials.share(repeats, directory)
    if "warm" in parts:
        yield from trials.warm(repeats, directory)
    if "quickstart" in parts:
        yield from trials.quickstart(repeats, directory)
    if "bare" in parts:
        yield from trials.bare(max(repeats, 3), trials.image_of_this_machine(directory))


def _commands(repeats: int, directory: Path, store: Path) -> Iterator[Figure]:
    bare = commands.bare(repeats, directory)

    def figure(name: str, arguments: Sequence[str], limit_s: float, where: Path) -> Figure:
        took = commands.took(commands.taxmeter(*arguments), repeats, where)
        times = f"a bare interpreter: × {took.cpu_s / bare.cpu_s:.1f}"
        return report.at_most(name, took.cpu_s, limit_s, report.milliseconds, times)

    for arguments, limit_s in LIMITS_S.items():
        asks = arguments[0] in ("results", "compare")
        place = ("--results", str(store)) if asks else ()
        yield figure(f"taxmeter {' '.join(arguments)}", (*arguments, *place), limit_s, directory)
    sweep = directory / "sweep.yaml"
    sweep.write_text(commands.SWEEP, encoding="utf-8")
    yield figure("taxmeter sweep plan, 100,000 trials", ("sweep", "plan", str(sweep)), PLAN_S, PROJECT)


def _driver(sizes: Sequence[int], hosts: int, repeats: int, directory: Path) -> Iterator[Figure]:
    place = directory / "driven"
    driven = [driving.drive(1, size, repeats, place) for size in sizes]
    for run in (*driven, driving.drive(hosts, TRIALS_OF_A_HOST, repeats, place)):
        yield report.at_most(
            f"driver, {run.hosts:,} hosts × {run.trials // run.hosts:,} trials",
            run.driver_s / run.trials,
            DRIVER_S,
            report.milliseconds,
            note=f" a trial, {run.peak_bytes / 2**20:.0f} MiB",
        )
    trials = [run.trials for run in driven]
    yield from _growth("driver", trials, [run.driver_s for run in driven])
    yield from _growth("plan", trials, [run.plan_s for run in driven])


def _stores(campaigns: Sequence[int], repeats: int, directory: Path) -> tuple[Path, list[Figure]]:
    """Figures of stores of several sizes, and the largest store."""
    places = [directory / f"kept-{count}" for count in campaigns]
    kept = [keeping.keep(count, repeats, place) for count, place in zip(campaigns, places, strict=True)]
    rows, figures = [size.rows for size in kept], []
    for name in ("compact_s", "verify_s", "merge_s"):
        seconds = [getattr(size, name) for size in kept]
        what = f"results {name.removesuffix('_s')}, {kept[-1].campaigns:,} campaigns, {rows[-1]:,} trials"
        figures.append(report.told(what, f"{report.milliseconds(1000 * seconds[-1] / rows[-1])} a thousand trials"))
        figures += _growth(f"results {name.removesuffix('_s')}", rows, seconds)
    return places[-1], figures


def _growth(what: str, sizes: Sequence[int], seconds: Sequence[float]) -> Iterator[Figure]:
    """How many times as much a trial costs at the largest size as at the smaller one at which it costs least."""
    costs = [spent_s / size for spent_s, size in zip(seconds, sizes, strict=True)]
    if len(costs) > 1:
        least = costs.index(min(costs[:-1]))
        name = f"{what}: growth from {sizes[least]:,} to {sizes[-1]:,} trials"
        yield report.at_most(name, costs[-1] / costs[least], GROWTH, "× {:.2f}".format)


if __name__ == "__main__":
    sys.exit(main())
