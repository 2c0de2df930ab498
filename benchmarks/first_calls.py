"""Is the first call of a turn like the later ones? Three processes stop each other, as a session's do.

It knows nothing of the runner. Run it in the measured environment, on a quiet machine:

    python benchmarks/first_calls.py --workload bert-base resnet50 --turns 60

In each turn a process makes four calls on one thread. A line of JSON for each workload and backend: the median over
turns of the first call, and of the second, over the mean of the third and the fourth, each with twice its standard
error: wall time, and processor time, which a neighbour moves less.
"""

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time

from hand_loop import BACKENDS, TOKENS, WARMUP_S, build, load, loop, said

CALLS = 4


def main() -> int:
    """Measures, or is one of the processes that take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", nargs="+", required=True)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--turns-of", choices=BACKENDS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turns_of is not None:
        take_turns(given.workload[0], given.turns_of)
        return 0
    for workload in given.workload:
        for backend, turns in session_of(workload, given.turns).items():
            told = {
                f"{name}_{clock}": against_later([turn[clock] for turn in turns], place)
                for place, name in enumerate(("first", "second"))
                for clock in ("wall", "cpu")
            }
            median_s = statistics.median(turn["wall"][1] for turn in turns)
            print(json.dumps({"workload": workload, "backend": backend, "median_s": median_s, **told}), flush=True)
    return 0


def against_later(turns: list, place: int) -> dict:
    """How many times as long the call at a place of its turn is as the two last ones."""
    logs = [math.log(turn[place] / statistics.mean(turn[-2:])) for turn in turns]
    # Of a median of normal values: a quarter more than that of their mean
    spread = 1.4826 * statistics.median(abs(log - statistics.median(logs)) for log in logs)
    error = 1.25 * spread / math.sqrt(len(logs))
    return {"ratio": round(math.exp(statistics.median(logs)), 4), "twice_standard_error": round(2 * error, 4)}


def session_of(workload: str, turns: int) -> dict:
    """The turns of each backend's process; all others are stopped meanwhile."""
    processes = {}
    try:
        for backend in BACKENDS:
            command = [sys.executable, __file__, "--workload", workload, "--turns-of", backend]
            processes[backend] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            said(processes[backend])
            processes[backend].send_signal(signal.SIGSTOP)
        taken = {backend: [] for backend in BACKENDS}
        for _ in range(turns):
            for backend in random.sample(BACKENDS, len(BACKENDS)):
                process = processes[backend]
                process.stdin.write("go\n")
                process.stdin.flush()
                process.send_signal(signal.SIGCONT)
                wall, cpu = said(process)
                process.send_signal(signal.SIGSTOP)
                taken[backend].append({"wall": wall, "cpu": cpu})
        return taken
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGCONT)
            process.communicate()


def take_turns(workload: str, backend: str) -> None:
    """Warms up, and then calls for a turn whenever it is told to."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = build(workload, 1, TOKENS)
    with torch.inference_mode():
        call = load(backend, model, inputs, 1)
        print(loop(call, 2 * WARMUP_S), flush=True)
        while os.read(0, 3):
            wall, cpu = [], []
            for _ in range(CALLS):
                start, before = time.perf_counter(), time.process_time()
                call()
                cpu.append(time.process_time() - before)
                wall.append(time.perf_counter() - start)
            print(json.dumps([wall, cpu]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
