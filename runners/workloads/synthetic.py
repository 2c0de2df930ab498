"""Workloads without a framework: one that computes a little, and one for each way in which a trial can fail.

They take the same path through the runner as real models, in the standard library alone, so that tests and
machines without a framework exercise everything around the measurement.
"""

import contextlib
import json
import math
import os
import signal
import subprocess
import time
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple, cast

from runners.contract import WorkloadSpec
from runners.contract.record import FactValue
from runners.workloads.base import Arithmetic, Call, Errors, Inputs, Unsupported, Workload

_ITEMS = 64
_VERIFIED_CALLS = 2
Rows = List[List[float]]


class ListArithmetic(Arithmetic):
    """Outputs are a tuple of lists of rows of floats."""

    def form(self, outputs: Tuple[Any, ...]) -> str:
        return ", ".join("float[%d, %d]" % (len(rows), len(rows[0])) for rows in outputs)

    def first_rows(self, outputs: Tuple[Any, ...], count: int) -> Tuple[Any, ...]:
        return tuple(rows[:count] for rows in outputs)

    def finite(self, outputs: Tuple[Any, ...]) -> bool:
        return all(math.isfinite(value) for rows in outputs for row in rows for value in row)

    def same(self, left: Tuple[Any, ...], right: Tuple[Any, ...]) -> bool:
        return left == right

    def errors(self, outputs: Tuple[Any, ...], reference: Tuple[Any, ...]) -> Tuple[Errors, ...]:
        return tuple(_list_errors(rows, expected) for rows, expected in zip(outputs, reference))

    def save(self, document: Dict[str, Any], path: str) -> None:
        with open(path, "w") as file:
            json.dump(document, file)

    def load(self, path: str) -> Dict[str, Any]:
        with open(path) as file:
            return cast("Dict[str, Any]", json.load(file))


class Null(Workload):
    """A short fixed computation per example, correct and deterministic."""

    arithmetic = ListArithmetic()

    def set_threads(self, threads: int) -> None:
        """Plain Python computes in one thread, whatever is asked for."""

    def build(self, attention: Optional[str] = None) -> Call:
        return self.call

    def reference_model(self) -> Any:
        # The healthy computation: a fault strikes where it is measured
        return compute

    def call(self, rows: Rows) -> Tuple[Rows]:
        """What is measured."""
        return compute(rows)

    def inputs(self, index: int) -> Inputs:
        first, batch = self.spec.seed % 1000 + index, self.spec.workload.batch
        return ([[math.sin(first + row * _ITEMS + i) for i in range(_ITEMS)] for row in range(batch)],)

    def reference(self, index: int, model: Any, double: bool) -> Tuple[Any, ...]:
        return cast("Tuple[Any, ...]", model(*self.inputs(index)))

    def facts(self, model: Any) -> Dict[str, FactValue]:
        return {"parameters": 0, "weight_bytes": 0}

    def shrunk(self) -> WorkloadSpec:
        return replace(self.spec.workload, batch=1)


class Crash(Null):
    """Dies of a segmentation fault."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return compute(rows)


class Exit(Null):
    """Ends its process without a word."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        os._exit(173)


class Hang(Null):
    """Never returns and ignores the request to end."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)


class Memory(Null):
    """Allocates without end."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        hoard = []
        while True:
            hoard.append(b"x" * (16 << 20))


class Print(Null):
    """Prints without end."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        line = b"x" * 4095 + b"\n"
        while True:
            os.write(1, line)


class Wrong(Null):
    """Computes the wrong result."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        return compute([[value + 1.0 for value in row] for row in rows])


class TurnsWrong(Null):
    """Right when it is verified first, and wrong from then on."""

    _calls = 0

    def call(self, rows: Rows) -> Tuple[Rows]:
        self._calls += 1
        return compute(rows) if self._calls <= _VERIFIED_CALLS else compute([row[::-1] for row in rows])


class Garbage(Null):
    """Writes garbage into every descriptor that it was given."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        for name in os.listdir("/proc/self/fd"):
            # The descriptor of the listing itself is closed by now
            with contextlib.suppress(OSError):
                if int(name) > 2:
                    os.write(int(name), b'\xff{"type":\n')
        return compute(rows)


class Raise(Null):
    """Raises an exception."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        raise ValueError("this workload raises on purpose")


class Sleep(Null):
    """Sleeps in each call, long enough to be interrupted."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        time.sleep(0.05)
        return compute(rows)


class KillSupervisor(Null):
    """Kills its parent, and leaves a process in a session of its own."""

    def call(self, rows: Rows) -> Tuple[Rows]:
        subprocess.Popen(["sleep", "60"], start_new_session=True)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
        return compute(rows)


class UnsupportedHere(Null):
    """Says that no environment can serve it."""

    def build(self, attention: Optional[str] = None) -> Call:
        raise Unsupported("this workload is unsupported on purpose")


def compute(rows: Rows) -> Tuple[Rows]:
    """A running sum of squares per row."""
    result = []
    for row in rows:
        total, sums = 0.0, []
        for value in row:
            total += value * value
            sums.append(total)
        result.append(sums)
    return (result,)


def _list_errors(rows: Rows, reference: Rows) -> Errors:
    got = [value for row in rows for value in row]
    expected = [value for row in reference for value in row]
    differences = [a - b for a, b in zip(got, expected)]
    norm = math.sqrt(math.fsum(b * b for b in expected))
    product = math.sqrt(math.fsum(a * a for a in got)) * norm
    distance = math.sqrt(math.fsum(d * d for d in differences))
    return Errors(
        max_abs_error=max(abs(d) for d in differences),
        relative_l2=distance / norm if norm else distance,
        cosine=math.fsum(a * b for a, b in zip(got, expected)) / product if product else 0.0,
        max_abs_reference=max(abs(b) for b in expected),
    )
