"""A campaign of null trials through the real driver, row builder and store, on hosts that answer at once.

Each campaign runs in a process of its own: `python -m benchmarks.performance.driving HOSTS TRIALS DIRECTORY`, with so
many trials on each host, which are one task.
"""

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from orchestrator.campaign import CampaignRequest, ReadyHost, ResumePolicy, choose_campaign, run_campaign
from orchestrator.cli import ARROW_ALLOCATOR, GARBAGE_EVERY
from orchestrator.config import Sweep
from orchestrator.execution import FakeSettings, TaskOutcome
from orchestrator.files import ProjectFiles
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.scheduling import HostObserved, RecordPiece, SchedulingHost, TaskEnded, TaskEvent, TaskRequest
from orchestrator.store import Store
from runners.contract import (
    Begin,
    End,
    Environment,
    Interleaving,
    Line,
    Series,
    Session,
    Status,
    Trial,
    TrialRecord,
    encode_line,
)
from runners.system import collect

SAMPLES = 100
"""Of single calls, in each record."""

PIECE_BYTES = 64 * 2**10
_PIN = EnvironmentPin("cpu", Isolation.PROCESS, "for a benchmark", "0" * 64)
_PROJECT = Path(__file__).parents[2]
_CRC = b',"crc32":"'
_NAME = "0" * 32
"""Stands for the id of a trial in what is made once."""


@dataclass(frozen=True)
class Driven:
    """What a campaign cost."""

    hosts: int
    trials: int
    """Of all hosts together."""
    plan_s: float
    """Processor time of the plan, in which nothing is repeated."""
    driver_s: float
    """Processor time of the driver and the store, without that of the hosts that are pretended."""
    wall_s: float
    peak_bytes: int
    """Of the process."""


def drive(hosts: int, trials: int, repeats: int, directory: Path) -> Driven:
    """Runs the same campaign several times, each in a process of its own and into a new store; the medians.

    Args:
        hosts: how many.
        trials: of each host.
        repeats: that many.
        directory: a new one for projects and stores; it is deleted.
    """
    runs = []
    for _ in range(repeats):
        command = [sys.executable, "-m", "benchmarks.performance.driving", *map(str, (hosts, trials, directory))]
        env = {**dict([ARROW_ALLOCATOR]), **os.environ}  # as a command has
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=_PROJECT, env=env)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        shutil.rmtree(directory)
    return Driven(**{name: median(run[name] for run in runs) for name in runs[0]})


class InstantHosts:
    """A scheduler whose hosts have run a task as soon as they get it."""

    def __init__(self) -> None:
        self.own_s = 0.0
        """Processor time of what a real host would do elsewhere."""
        self._events: deque[Iterator[TaskEvent]] = deque()
        self._fingerprint = collect()
        series = Series("sync", 1, tuple(range(10**6, 10**6 + SAMPLES)), tuple(range(10**6, 10**6 + SAMPLES)))
        session = Session(_NAME, Interleaving.TURNS, 1)
        now = time.time_ns()
        self._begin = _body(Begin(_NAME, 1, now))
        self._record = _body(TrialRecord(_NAME, 1, Status.OK, None, now, now + 1, series=(series,), session=session))

    def start(self, _hosts: Sequence[SchedulingHost]) -> Mapping[str, str]:
        return {}

    def stream(self, question: Callable[[Any], Iterator[Any]], _host: str, asked: Any) -> "Said":
        return Said(list(question(asked)))

    def submit(self, request: TaskRequest) -> None:
        self._events.append(self._run(request))

    def cancel(self, task_id: str) -> None:
        raise AssertionError(f"{task_id} was given up: nothing here is ever silent")

    def take(self) -> Sequence[TaskEvent]:
        """One event of each task that has some."""
        start = time.thread_time()
        taken: list[TaskEvent] = []
        for _ in range(len(self._events)):
            events = self._events.popleft()
            event = next(events)
            taken.append(event)
            if not isinstance(event, TaskEnded):
                self._events.append(events)
        self.own_s += time.thread_time() - start
        return taken

    def stop(self) -> None:
        assert not self._events

    def _run(self, request: TaskRequest) -> Iterator[TaskEvent]:
        host, task = request.host, request.task
        yield HostObserved(host, task.task_id, self._fingerprint)
        offset = number = 0
        waiting = encode_line(Environment(task.task_id, {"python": "0"}, {}, "fake"))
        for trial in task.trials:
            waiting += _line(self._begin, trial) + _line(self._record, trial)
            while len(waiting) >= PIECE_BYTES:
                piece, waiting = waiting[:PIECE_BYTES], waiting[PIECE_BYTES:]
                yield RecordPiece(host, task.task_id, number, offset, piece)
                number, offset = number + 1, offset + len(piece)
        waiting += encode_line(End(task.task_id, len(task.trials)))
        yield RecordPiece(host, task.task_id, number, offset, waiting)
        yield TaskEnded(host, task.task_id, TaskOutcome(0, None, None, ""), None, offset + len(waiting))


@dataclass
class Said:
    """All that a host answers to a question."""

    items: Sequence[Any]
    is_over: bool = False
    problem: None = None

    def take(self) -> Sequence[Any]:
        self.is_over = True
        return self.items

    def drop(self) -> None:
        self.is_over = True


def _body(line: Line) -> bytes:
    """A line without its checksum."""
    return encode_line(line).partition(_CRC)[0]


def _line(body: bytes, trial: Trial) -> bytes:
    own = body.replace(_NAME.encode(), trial.trial_id.encode())
    return own + b'%s%08x"}\n' % (_CRC, zlib.crc32(own))


def _drive(hosts: int, trials: int, directory: Path) -> Driven:
    files, store = ProjectFiles(directory), Store.open(directory / "results")
    ready = [
        ReadyHost(PlanningHost(f"h{number}", {}, (0, 1), {"cpu": _PIN}), {"cpu": FakeSettings()}, None)
        for number in range(hosts)
    ]
    wanted = Sweep.model_validate(
        {
            "version": 1,
            "name": "bench",
            "environments": "cpu",
            "workloads": ({"name": "synthetic-null", "batch": tuple(range(1, trials + 1))},),
            "backends": ("python",),
            "rounds": 1,
        }
    )
    start, wall = time.process_time(), time.monotonic()
    continuation = choose_campaign(wanted, [host.planning for host in ready], store, ResumePolicy.NEVER)
    order = CampaignRequest(continuation, ready, wanted.name, "sweep", "inventory", None, sweep=wanted)
    planned, scheduler = time.process_time(), InstantHosts()
    run_campaign(order, scheduler, store, files, lambda _: None)
    driver_s = time.process_time() - planned - scheduler.own_s
    rows = len(store.trials(["trial_id"]))
    if rows != hosts * trials:
        raise SystemExit(f"{rows} rows of {hosts * trials} trials")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Driven(hosts, rows, planned - start, driver_s, time.monotonic() - wall, peak)


if __name__ == "__main__":
    gc.set_threshold(GARBAGE_EVERY)  # as a command does
    print(json.dumps(asdict(_drive(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))))
