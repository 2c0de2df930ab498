"""From the records of tasks to the disk of the driver: the product's own stream, row builder and writer, over Ray.

Tasks are real ones of this machine, each in a process of its own, that make their records up at a given rate.
"""

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from orchestrator.campaign import ReadyHost, TrialRecorded
from orchestrator.campaign.driver.requests import Requests
from orchestrator.campaign.driver.task_tracker import RunningTask, TaskTracker
from orchestrator.campaign.progress import CampaignProgress
from orchestrator.execution import FakeSettings
from orchestrator.files import ProjectFiles
from orchestrator.planning import EnvironmentPin, Isolation, PlannedTask, PlanningHost
from orchestrator.scheduling import HostObserved, SchedulingHost, TaskEnded, TaskRequest
from orchestrator.scheduling.ray import Scheduler
from orchestrator.store import Store
from orchestrator.store.ingest import Ingest
from orchestrator.store.origin import origin_document
from runners.contract import CONTRACT_VERSION, BackendSpec, Protocol, Task, Trial, TrialSpec, WorkloadSpec
from runners.system import collect

SAMPLES = 200
"""In each series: a record of 6.3 kB."""

_START_S = 12.0
"""A task's process needs so long to start on a core that it shares."""

_PIN = EnvironmentPin("cpu", Isolation.PROCESS, "for a benchmark", "0" * 64)
_SPEC = TrialSpec(WorkloadSpec("synthetic-null", 1), BackendSpec("python", {}), "float32", "cpu", 1, 0, Protocol())
_PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Acknowledged:
    """What the driver saw while all tasks ran."""

    rows: int
    per_second: float
    """Of all tasks together."""
    cpu_s: float
    """Of the driver's process, per row."""
    median_s: float
    """From a record in its file to its row on the disk."""
    p95_s: float


def acknowledge(directory: Path, tasks: int, rate: float, seconds: float) -> Acknowledged:
    """Runs tasks at once, in a process of its own, which is the driver.

    Args:
        directory: for their files and the store.
        tasks: how many, all on this machine.
        rate: records per second of each.
        seconds: for which all of them run.
    """
    command = [sys.executable, "-m", "benchmarks.store.acknowledging", *map(str, (directory, tasks, rate, seconds))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=_PROJECT)
    return Acknowledged(**json.loads(done.stdout.splitlines()[-1]))


def _drive(directory: Path, tasks: int, rate: float, seconds: float) -> Acknowledged:
    place = directory / f"acknowledge-{tasks}-{uuid.uuid4().hex[:8]}"
    store = Store.open(place / "results")
    host = ReadyHost(PlanningHost("h1", {}, (0,), {"cpu": _PIN}), {"cpu": FakeSettings()}, None)
    latencies: list[float] = []

    def observe(progress: CampaignProgress) -> None:
        if isinstance(progress, TrialRecorded):
            latencies.append(time.time() - progress.record.finished_at_ns / 1e9)

    scheduler = Scheduler()
    trials = int(rate * (seconds + _START_S * tasks / len(os.sched_getaffinity(0)) + 10))
    with store.writer() as writer, Ingest(store, writer, print) as ingest:
        requests = Requests("c", {"h1": host}, ProjectFiles(place), "store", collect())
        tracker = TaskTracker(requests, ingest, observe)
        try:
            scheduler.start([SchedulingHost("h1", {}, slots=tasks)])
            running = {f"task{number}": _submit(scheduler, tracker, number, trials, rate) for number in range(tasks)}
            begun, start, cpu = 0, 0.0, 0.0
            while begun < tasks or time.monotonic() - start < seconds:
                for event in scheduler.take():
                    if isinstance(event, TaskEnded):
                        sys.exit(f"a task ended before all had run for {seconds} s: {event.problem}")
                    tracker.take(running[event.task_id], event)
                    if isinstance(event, HostObserved):
                        begun += 1
                        if begun == tasks:
                            latencies.clear()
                            start, cpu = time.monotonic(), time.process_time()
                for task in running.values():
                    tracker.confirm(task)
            elapsed_s, cpu_s = time.monotonic() - start, time.process_time() - cpu
            seen = list(latencies)
        finally:
            scheduler.stop()
    quantiles = np.quantile(seen, [0.5, 0.95])
    return Acknowledged(len(seen), len(seen) / elapsed_s, cpu_s / len(seen), float(quantiles[0]), float(quantiles[1]))


def _submit(scheduler: Scheduler, tracker: TaskTracker, number: int, trials: int, rate: float) -> RunningTask:
    # a round for each, so that each is a session of its own and its record comes at once
    several = tuple(Trial(f"t{number}-{count}", "k", count + 1, 0, 0, 1, 60, _SPEC) for count in range(trials))
    task = Task(CONTRACT_VERSION, "c", f"task{number}", "cpu", several)
    running = tracker.begin(PlannedTask("h1", task, number), 0.0)
    settings, origin = FakeSettings(1 / rate, SAMPLES), origin_document(running.origin)
    scheduler.submit(TaskRequest("h1", task, settings, running.intake.directory, "store", origin))
    return running


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(json.dumps(asdict(_drive(Path(arguments[0]), int(arguments[1]), float(arguments[2]), float(arguments[3])))))
