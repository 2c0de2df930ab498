"""Whether an idle agent disturbs a trial beside it: a null trial's latency with the agents running, and frozen.

    python -m benchmarks.agent_beside [--rounds 20] [--inventory hostinventory.yaml] [--cores 1] [--output FILE]

The cluster must be up, with an agent on this machine, and no campaign run. Each round has one trial in each state, in
random order, as a fresh process on the cores that trials use; frozen means that the engine has paused the agents'
containers, for the seconds that a trial takes. The ratio is paired by round. An A/A pair, two trials of each round
with the agents frozen, says what the machine itself does.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from orchestrator.analysis import judge_family
from orchestrator.analysis.statistics import Estimate, mean_ratio, median_of_values
from orchestrator.config import load_inventory
from orchestrator.execution import ProcessSettings, create_executor, read_lines, stage
from orchestrator.files import ProjectFiles
from orchestrator.hosts.cluster.engines import host_engine
from orchestrator.hosts.cluster.lifecycle import load
from orchestrator.hosts.connection import Connections
from runners.contract import (
    CONTRACT_VERSION,
    BackendSpec,
    Protocol,
    Status,
    Task,
    Trial,
    TrialRecord,
    TrialSpec,
    WorkloadSpec,
)
from runners.system import cores_in

RUNNING, FROZEN, AGAIN = "running", "frozen", "frozen again"
_PROTOCOL = Protocol(
    warmup_min_calls=100,
    warmup_min_ms=200,
    warmup_max_ms=1000,
    sync_budget_ms=1000,
    floor_budget_ms=0,
)


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--inventory", type=Path, default=Path("hostinventory.yaml"))
    parser.add_argument("--project", type=Path, default=Path.cwd())
    parser.add_argument("--cores", type=cores_in, default=(1,), help="of the trial, such as 1 or 1-3")
    parser.add_argument("--output", type=Path, help="writes the medians of all trials as CSV")
    arguments = parser.parse_args()
    cluster = load(ProjectFiles(arguments.project))
    if cluster is None:
        raise SystemExit("no cluster is up; make cluster-up brings one up")
    hosts = load_inventory(arguments.inventory).hosts
    found: dict[str, list[float]] = {RUNNING: [], FROZEN: [], AGAIN: []}
    order = random.Random(2023)
    with ExitStack() as stack:
        connections = stack.enter_context(Connections(hosts))
        agents = [
            stack.enter_context(host_engine(name, hosts[name], connections)).client.containers.get(
                cluster.agent_container
            )
            for name in cluster.agents
        ]
        for number in range(arguments.rounds):
            for state in order.sample(sorted(found), len(found)):
                with _frozen([] if state == RUNNING else agents):
                    found[state].append(_median_s(arguments.cores, f"{number}-{state}"))
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    if arguments.output is not None:
        lines = ["round,state,median_s", *(f"{n},{state},{v!r}" for state in found for n, v in enumerate(found[state]))]
        arguments.output.write_text("\n".join(lines) + "\n")
    _tell(found)


def _median_s(cores: tuple[int, ...], name: str) -> float:
    """The median latency of one call of a null trial, in seconds."""
    spec = TrialSpec(WorkloadSpec("synthetic-null", 64), BackendSpec("python", {}), "float32", "cpu", 1, 1, _PROTOCOL)
    trial = Trial(name, name, 1, 0, 0, 1, 60, spec)
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "task"
        task = Task(CONTRACT_VERSION, "agent-beside", name, "none", (trial,))
        stage(task, directory)
        settings = ProcessSettings(Path(sys.executable), cores, 2**30, Path(place) / "cache")
        create_executor(settings).run(task, directory, Event())
        records = [line for line in read_lines(directory) if isinstance(line, TrialRecord)]
    for record in records:
        if record.status is not Status.OK:
            raise SystemExit(f"the null trial ended as {record.status.value}: {record.reason}")
    [sync] = [series for record in records for series in record.series if series.mode == "sync"]
    return float(np.median(sync.durations_ns)) / 1e9


@contextmanager
def _frozen(agents: list[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for agent in agents:
            agent.pause()
            stack.callback(agent.unpause)
        yield


def _tell(found: dict[str, list[float]]) -> None:
    for state, values in found.items():
        estimate = median_of_values(np.array(values), len(values))
        print(f"{state:13} median {_text(estimate, 1e6, 2)} us over {len(values)} trials")
    for name, above, below in (("running / frozen", RUNNING, FROZEN), ("A/A, frozen / frozen again", FROZEN, AGAIN)):
        ratio = mean_ratio(np.log(np.array(found[above]) / np.array(found[below])), len(found[above]))
        print(f"{name}: {_text(ratio, 1, 4)}, {judge_family([ratio])[0].verdict.value}")


def _text(estimate: Estimate, factor: float, digits: int) -> str:
    low, high = (None if end is None else end * factor for end in (estimate.low, estimate.high))
    interval = "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{estimate.value * factor:.{digits}f}{interval}"


if __name__ == "__main__":
    main()
