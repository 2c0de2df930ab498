"""The ratios of a sweep beside those of a loop written by hand, taken alternately in the same image.

    .venv/bin/python benchmarks/by_hand.py --sweep sweeps/quickstart.yaml --times 3

Each time one session of each group of the sweep, without floors and twins, and then one session of `hand_loop.py` of
each of its workloads and batches, in a container without a network. Prints a table: the ratios of all those sessions
with their interval, those by hand with twice their standard error, and whether these lie in the intervals.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

from orchestrator.analysis.comparison import compare
from orchestrator.report import markdown
from orchestrator.store import open_store

CYCLES = 20
"""Of a session by hand: a call of ResNet-50 takes longer than a turn."""


def main() -> int:
    """Measures alternately and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", type=Path, default=Path("sweeps/quickstart.yaml"), help="of one environment")
    parser.add_argument("--times", type=int, default=3, help="at least two (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=Path("results/by-hand"))
    given = parser.parse_args()
    if given.times < 2:
        parser.error("--times is below 2: one session by hand has no standard error")
    sweep = lone_sessions(YAML(typ="safe").load(given.sweep))
    logs: dict[tuple, list[float]] = {}
    for _ in range(given.times):
        run(sweep, given.results)
        for found, tokens in by_hand(sweep):
            name = found["workload"], found["batch"], tokens, found["backend"]
            logs.setdefault(name, []).append(math.log(found["times_faster_than_eager"]))
    print(page(ratios(given.results), logs))
    return 0


def lone_sessions(sweep: dict) -> dict:
    """The sweep with one session of each group, and nothing but the calls that are compared."""
    left_out = ("budget", "precision", "rounds", "duplicate")
    kept = {name: value for name, value in sweep.items() if name not in left_out}
    # The loop exports for one batch, which makes ONNX Runtime up to 3 % faster than an open one
    fixed = {"name": "onnxruntime", "options": {"batch": "fixed"}}
    backends = [fixed if backend == "onnxruntime" else backend for backend in sweep["backends"]]
    return {**kept, "backends": backends, "rounds": 1, "protocol": {**sweep.get("protocol", {}), "floor_budget_ms": 0}}


def run(sweep: dict, results: Path) -> None:
    """A campaign of its own in the store."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        YAML(typ="safe").dump(sweep, file)
        file.flush()
        command = [sys.executable, "-m", "orchestrator", "sweep", "run", file.name, "--results", str(results)]
        subprocess.run([*command, "--resume", "never"], check=True, stdout=sys.stderr)


def by_hand(sweep: dict) -> list[tuple[dict, int | None]]:
    """What the loop says of each trial of a sweep, with the tokens of a text."""
    [environment], [threads] = sweep["environments"], sweep["threads"]
    image = YAML(typ="safe").load(Path("docker/images.lock.yaml"))["images"][environment]["reference"]
    mount = f"{Path(__file__).parent.resolve()}:/b:ro"
    container = ["docker", "run", "--rm", "--network", "none", "-v", mount, image, "python", "/b/hand_loop.py"]
    found = []
    for workload in sweep["workloads"]:
        tokens = workload.get("sequence_length")
        batches = workload["batch"] if isinstance(workload["batch"], list) else [workload["batch"]]
        command = [*container, "--workload", workload["name"], "--batch", *map(str, batches)]
        command += ["--sequence-length", str(tokens)] if tokens else []
        command += ["--threads", str(threads), "--sessions", "1", "--cycles", str(CYCLES)]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        found += [(json.loads(line), tokens) for line in lines]
    return found


def ratios(results: Path) -> dict[tuple, tuple[float, float, float]]:
    """Of the store, each backend but eager by what it is, with its interval."""
    table = compare(open_store(results), ["workload", "batch", "sequence_length"], ["backend"], "backend=eager")
    estimates = {entry.key: entry.ratio.estimate for entry in table.ratios if entry.ratio is not None}
    return {key: (found.value, found.low, found.high) for key, found in estimates.items()}


def page(known: dict[tuple, tuple[float, float, float]], logs: dict[tuple, list[float]]) -> str:
    """The table, and in how many of its lines both agree."""
    head = [
        "times faster than eager",
        "taxmeter, with its interval",
        "by hand, with twice its standard error",
        "within",
    ]
    lines = markdown.head(head)
    inside, alike = 0, 0
    for key, (value, low, high) in known.items():
        *what, backend = key
        hand = logs[(*what, backend.partition("(")[0])]
        centre, error = math.exp(statistics.mean(hand)), 2 * statistics.stdev(hand) / math.sqrt(len(hand))
        inside += low <= centre <= high
        alike += abs(math.log(value / centre)) <= math.hypot(math.log(high / low) / 2, error)
        workload, batch, tokens = what
        name = f"{workload}, batch {batch}{f', {tokens} tokens' if tokens else ''}, {backend}"
        within = "yes" if low <= centre <= high else "no"
        by_hand = f"{centre:.3f} ±{100 * math.expm1(error):.1f} %"
        lines.append(markdown.row([name, f"{value:.3f} [{low:.3f}, {high:.3f}]", by_hand, within]))
    verdict = f"{inside} of {len(known)} lie in the intervals; {alike} differ by no more than both let expect."
    return "\n".join([*lines, "", verdict])


if __name__ == "__main__":
    sys.exit(main())
