"""`python -m benchmarks.store`: measures the result store; exits with 1 if a target does not hold."""

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.store import acknowledging, building, limits, queries, report
from benchmarks.store.fleet import Campaign
from benchmarks.store.report import Figure
from benchmarks.store.rows import campaign_rows
from orchestrator.store import Store

PROJECT = Path(__file__).resolve().parent.parent.parent
TRIALS, PAIRED_TRIALS = 1_000_000, 100_000
TASKS, RATE = 64, 4.0
"""A lab of 64 hosts that each record four trials a second: more than any sweep asks for."""
FEW_TASKS, FEW_RATE = 8, 10.0
NOTES = """\
- An acknowledged row is the way of one record of 6.3 kB from its file on a host through Ray's stream to the driver,
  through its checks, into the journal and through fdatasync. The times begin when the record is in its file; up to
  100 ms of them pass until the host looks, and up to 150 ms until a group is written.
- The tasks are processes that share the machine's cores with the driver: the processor time is the driver's alone.
- A trial has 100 values in `samples_sync_s`, and a value in every other column that a trial on a GPU fills, JSON texts
  included. A series with the clock of the processor beside each sample takes that much more.
- Seals have 12,000 trials. Parts are compacted at the end of every 25 campaigns, and fully at the end of all.
- Every query opens the store anew, which is a line of its own. Warm is the median of seven; cold is the first, with
  the page cache dropped.
"""


def main() -> int:
    """Measures, prints the table and writes it where it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help="of the large store (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement of acknowledgements")
    parser.add_argument(
        "--directory",
        type=Path,
        default=PROJECT / ".taxmeter" / "bench",
        help="on the disk to be measured; needs 8 GB for a million trials (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, help="a page of Markdown, such as docs/measured/store.md")
    parser.add_argument("--keep", action="store_true", help="leave the stores for a closer look")
    arguments = parser.parse_args()
    with scratch(arguments.directory, arguments.keep) as directory:
        figures = [
            *_limits(directory),
            *_acknowledge(directory, arguments.seconds),
            *_store(directory, arguments.trials),
        ]
    print(report.table(figures))
    if arguments.output is not None:
        command = "make bench-store" + (f" TRIALS={arguments.trials}" if arguments.trials != TRIALS else "")
        arguments.output.write_text(report.page(figures, command, NOTES), encoding="utf-8")
    missed = [figure.what for figure in figures if figure.holds is False]
    for what in missed:
        print(f"missed: {what}", file=sys.stderr)
    return 1 if missed else 0


def _limits(directory: Path) -> list[Figure]:
    sync = limits.append_and_sync(directory, _journal_bytes(directory))
    return [
        report.told(
            "append the bytes of one trial + fdatasync", f"{sync.median_s * 1e3:.3f} ms, p99 {sync.p99_s * 1e3:.2f} ms"
        ),
        report.told("write 256 MiB + fsync", f"{limits.write_rate(directory) / 1e9:.2f} GB/s"),
        report.told("sum over memory, one core", f"{limits.scan_rate() / 1e9:.1f} GB/s"),
    ]


def _acknowledge(directory: Path, seconds: float) -> list[Figure]:
    figures = []
    for tasks, rate in ((FEW_TASKS, FEW_RATE), (TASKS, RATE)):
        seen = acknowledging.acknowledge(directory, tasks, rate, seconds)
        name = f"rows acknowledged, {tasks} tasks of {rate:.0f} records/s"
        figures += [
            report.at_least(name, seen.per_second, 0.95 * tasks * rate, report.per_second),
            report.at_most(f"{name}: driver's processor time", seen.cpu_s, 3e-3, report.milliseconds, note=" a row"),
            report.at_most(
                f"{name}: record to disk, p95",
                seen.p95_s,
                0.5,
                report.milliseconds,
                note=f", median {report.milliseconds(seen.median_s)}",
            ),
        ]
    return figures


def _store(directory: Path, trials: int) -> list[Figure]:
    small, large = directory / "paired", directory / "large"
    building.build(small, min(trials, PAIRED_TRIALS), _say)
    start = time.perf_counter()
    built = building.build(large, trials, _say)
    duration_s = time.perf_counter() - start
    return [*_written(built, duration_s, limits.write_rate(directory)), *_queried(small, large, built)]


def _written(built: building.Built, duration_s: float, disk_rate: float) -> list[Figure]:
    share = built.sealed_bytes / built.seal_s / disk_rate
    return [
        report.at_least(
            "seal",
            built.trials / built.seal_s,
            15_000,
            report.per_second,
            f"{share:.0%} of the disk's {disk_rate / 1e9:.2f} GB/s",
        ),
        report.at_most(
            "a trial with 100 samples, sealed and compacted", built.live_bytes / built.trials, 1100, report.bytes_each
        ),
        report.told("the same before compaction", report.bytes_each(built.sealed_bytes / built.trials)),
        report.told("the same in the journal", report.bytes_each(built.journal_bytes)),
        report.at_most(
            "live data files", built.live_files, 200, report.count, note=f", at most {built.most_parts} parts meanwhile"
        ),
        report.told(
            f"writing {built.trials:,} trials, made up included",
            f"{duration_s:.0f} s, of which compaction {built.automatic_s + built.compact_s:.0f} s",
        ),
    ]


def _queried(small: Path, large: Path, built: building.Built) -> list[Figure]:
    scan_rate = limits.scan_rate()

    def timed(what: str, question: queries.Question, target_s: float | None, directory: Path = large) -> Figure:
        asked = queries.ask(directory, question)
        what = f"{what}: {asked.rows:,} rows"
        note = f", cold {report.milliseconds(asked.cold_s)}"
        limit = f"sum over as many bytes: × {asked.median_s * scan_rate / built.live_bytes:.1f}"
        if target_s is None:
            return report.told(what, report.milliseconds(asked.median_s) + note)
        return report.at_most(what, asked.median_s, target_s, report.milliseconds, limit * (directory == large), note)

    pairs = "paired ratio of two backends by GPU"
    return [
        timed("opening the store", queries.opening, None),
        timed("median latency by GPU, backend and batch of one model", queries.median_latencies, 0.1),
        timed("all trials of one driver, headlines", queries.of_one_driver, 0.1),
        timed("all trials of one driver, all scalars but facts and protocol", queries.of_one_driver_whole, None),
        timed("latest trial of each key", queries.latest, 0.3),
        timed("latest trial of each key on each system (the view)", queries.latest_by_system, None),
        timed(f"{pairs}, {min(PAIRED_TRIALS, built.trials):,} trials", queries.paired_ratios, 0.5, small),
        timed(f"{pairs}, {built.trials:,} trials", queries.paired_ratios, None),
    ]


def _say(text: str) -> None:
    print(f"# {text}", file=sys.stderr, flush=True)


def _journal_bytes(directory: Path) -> int:
    """What the journal takes for one trial that comes alone."""
    store = Store.open(directory / "one")
    rows = campaign_rows(Campaign(0, 1))
    sizes = []
    with store.writer() as writer:
        for number in range(2):
            writer.append_batches([rows.slice(number, 1)])
            sizes.append(store.layout.segments()[0].stat().st_size)
    shutil.rmtree(store.layout.root)
    return sizes[1] - sizes[0]


@contextmanager
def scratch(parent: Path, keep: bool) -> Iterator[Path]:
    """A directory of this run."""
    directory = parent / f"{int(time.time())}"
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        if keep:
            print(f"# the stores are in {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
