"""In a measured environment: WORKLOAD BACKEND as a trial, and as a loop written by hand, in turns with each other.

The two are the processes of one session, so that what disturbs one disturbs the other. The loop is a fresh interpreter
with the model, the input and the clock of `hand_loop.py`. The last line is the 10th percentile of the trial's calls
over that of the loop's.
"""

import gc
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import hand_loop

from runners.backends import make_backend
from runners.contract import BackendSpec, Protocol, Status, Trial, TrialSpec, WorkloadSpec
from runners.protocol.answer import Answer
from runners.protocol.cache import entries
from runners.protocol.measure import measure
from runners.protocol.prepare import prepare
from runners.protocol.turns import Turns
from runners.supervision import kernel, preload
from runners.supervision.interrupts import Interrupts
from runners.supervision.process import run_child
from runners.supervision.room import Room
from runners.supervision.session import Allowance, Member, SessionRun
from runners.supervision.verdict import judge
from runners.workloads import make_workload

PROTOCOL = Protocol(warmup_min_ms=500, turn_ms=30, cycles=24, min_cycles=24, sync_budget_ms=60_000)
LIMIT_S = 600
PLACE = "/cache"
"""Not `/tmp`, which is emptied when a process has ended."""


def main() -> int:
    """Runs one session of the two."""
    name, backend = sys.argv[1:]
    sizes = (1, None, hand_loop.IMAGE_SIZE) if name == "resnet50" else (1, hand_loop.TOKENS, None)
    spec = TrialSpec(WorkloadSpec(name, *sizes), BackendSpec(backend, {}), "float32", "cpu", 1, 0, PROTOCOL)
    interrupts = Interrupts()
    interrupts.install()
    kernel.become_subreaper()
    preload.import_all(preload.modules_of([Trial("trial", "key", 1, 0, 0, 1, LIMIT_S, spec)]))
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory(dir=PLACE) as cache, tempfile.TemporaryDirectory(dir=cache) as workspace:
        cached = entries(cache, make_backend(make_workload(spec)), "benchmark", 1)
        good(run_child(partial(prepare, spec, cached, workspace), time.monotonic() + LIMIT_S, interrupts))
        functions = (partial(measure, spec, cached), partial(by_hand, name, backend))
        members = [Member(function, Allowance(LIMIT_S)) for function in functions]
        SessionRun(members, PROTOCOL, "seed", interrupts, Room(tuple)).run()
        trial, loop = (good(member.ended) for member in members)
    [calls] = [part.durations_ns for part in trial.series if part.mode == "sync"]
    print(statistics.quantiles(calls, n=10, method="inclusive")[0] / loop.facts["p10_ns"])
    return 0


def by_hand(workload: str, backend: str, turns: Turns) -> Answer:
    """Takes turns by the process of `hand_loop.py`, which is stopped with this one."""
    command = [sys.executable, hand_loop.__file__, "--workload", workload, "--batch", "1", "--threads", "1"]
    process = subprocess.Popen(
        [*command, "--turns-of", backend], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    hand_loop.said(process)
    taken = []
    for _ in turns:
        process.stdin.write("go\n")
        process.stdin.flush()
        taken.append(hand_loop.said(process))
    process.communicate()
    durations = list(itertools.chain.from_iterable(taken))
    return Answer(Status.OK, facts={"p10_ns": 1e9 * statistics.quantiles(durations, n=10, method="inclusive")[0]})


def good(ended) -> Answer:
    """What a process said that ended well."""
    answer = judge(ended, LIMIT_S)
    if answer.status is not Status.OK:
        raise SystemExit(f"{answer.status.value}: {answer.reason}\n{ended.log_tail}")
    return answer


if __name__ == "__main__":
    sys.exit(main())
