"""Runs the checks one after the other, each in a forked process that is ended when its time is over."""

import contextlib
import importlib
import importlib.util
import json
import os
import select
import shutil
import signal
import sys
import tarfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from runners.check.rows import CAMPAIGN, new_campaign, search_path, write_manifest
from runners.supervision import preload
from runners.system import cuda_driver

FAILED, SKIPPED, PASSED = "failed", "skipped", "passed"

ALL_S = 540
"""Of all checks; a machine may be lent for ten minutes only."""
ALL_QUICK_S = 110
_REHEARSED = 4
"""Times as much for a rehearsal, which may be on a busy machine without a GPU: it has to come to its end."""
ROWS = "rows"
_LINES, _LOG, _PACKED = "check.jsonl", "check.log", ROWS + ".tar"
EXIT_FAILED, EXIT_SKIPPED = 1, 3

_MODULES = (
    "torch",
    "torch._dynamo",
    "transformers",
    "runners.workloads.torchvision_import",
    "timm",
    "onnx",
    "runners.backends.onnxruntime_import",
)

_TAR_S = 5
_TO_ANSWER_S = 3


@dataclass(frozen=True)
class Limits:
    """Seconds of a check."""

    least: int
    """Kept for it while those before it run; with less it is not begun."""
    most: int


@dataclass(frozen=True)
class Check:
    """Its seconds, by how much is done."""

    full: Limits
    quick: Limits


CHECKS: Dict[str, Check] = {
    "nvml": Check(Limits(10, 30), Limits(6, 20)),
    "fork": Check(Limits(10, 60), Limits(6, 20)),
    "cells": Check(Limits(120, 280), Limits(25, 60)),
    "profiler": Check(Limits(40, 90), Limits(12, 30)),
    "queue": Check(Limits(15, 60), Limits(8, 20)),
    "clocks": Check(Limits(25, 45), Limits(10, 20)),
    "accuracy": Check(Limits(40, 90), Limits(10, 25)),
    "transition": Check(Limits(120, 200), Limits(20, 50)),
}
"""Worst first: what would spoil most if it were wrong. The module of a check has its name and a function `check`."""

NAMES = tuple(CHECKS)


@dataclass(frozen=True)
class Size:
    """How much is done."""

    quick: bool = False
    """Within two minutes."""
    rehearse: bool = False
    """With shrunk models, where arithmetic takes no time."""

    @property
    def is_small(self) -> bool:
        """Whether less is to be done in each check."""
        return self.quick or self.rehearse

    @property
    def options(self) -> List[str]:
        """Of the command line."""
        return [name for name, on in (("--quick", self.quick), ("--rehearse", self.rehearse)) if on]


@dataclass(frozen=True)
class Context:
    """What a check is given."""

    out: str
    """Directory of all checks."""
    size: Size
    deadline: float
    """On the clock of `time.monotonic`: what is not done by then is left out, and said."""

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def within(self, seconds: float) -> float:
        """So many seconds for a process of a check, or fewer: that it gave no answer is for the check to say."""
        return max(1.0, min(seconds, self.left_s - 1))


@dataclass
class Findings:
    """What a check saw; it passed if it found no problem."""

    problems: List[str] = field(default_factory=list)
    values: Dict[str, Any] = field(default_factory=dict)
    reason: Optional[str] = None
    """Why nothing could be checked; null if something was."""

    def require(self, condition: bool, problem: str) -> None:
        """Notes a problem unless a condition holds."""
        if not condition:
            self.problems.append(problem)

    @property
    def status(self) -> str:
        """`passed`, `failed` or `skipped`."""
        if self.reason is not None:
            return SKIPPED
        return FAILED if self.problems else PASSED


def run_all(names: Sequence[str], out: str, size: Size, seconds: Optional[int] = None) -> int:
    """Runs checks in order and writes a line for each as it ends; returns the exit code.

    What is kept for the later ones no check can use up. Where all of it does not fit, the last ones are left out.

    Args:
        names: of the checks.
        out: directory; what an earlier run has left there is removed.
        size: how much is done.
        seconds: in which all is done; by default nine minutes, or two.
    """
    begin = time.monotonic()
    _clear(out)
    factor = _REHEARSED if size.rehearse else 1
    end = begin + factor * (seconds or (ALL_QUICK_S if size.quick else ALL_S)) - _TAR_S
    os.environ[CAMPAIGN] = new_campaign()
    os.environ["PYTHONPATH"] = search_path()
    lacking = nothing_to_check()
    if lacking is None:
        # Once for all: every check is a fork of this process, which is why it must not use the device
        with contextlib.redirect_stdout(sys.stderr):
            preload.import_all(_MODULES)
    limits = [CHECKS[name].quick if size.quick else CHECKS[name].full for name in names]
    statuses = []
    for number, name in enumerate(names):
        start = time.monotonic()
        own, left = limits[number], end - start
        kept = sum(later.least for later in limits[number + 1 :])
        if lacking is not None:
            found = Findings(reason=lacking)
        elif left < own.least:
            found = Findings(reason="%d s are left, and it needs %d" % (left, own.least))
        else:
            found = _run(name, out, size, min(factor * own.most, left, max(own.least, left - kept)))
        line = dict(check=name, status=found.status, seconds=round(time.monotonic() - start, 2), **asdict(found))
        _say(out, line)
        statuses.append(found.status)
    _pack(out)
    if FAILED in statuses:
        return EXIT_FAILED
    return EXIT_SKIPPED if set(statuses) == {SKIPPED} else 0


def nothing_to_check() -> Optional[str]:
    """Why no check can run here: no framework or no GPU; null if they can."""
    if importlib.util.find_spec("torch") is None:
        return "%s has no torch" % sys.executable
    code = cuda_driver.start_in_a_child()
    if code is None:
        return "there is no CUDA driver: libcuda.so.1 cannot be loaded"
    return None if code == 0 else "the CUDA driver does not start: cuInit says %s" % cuda_driver.named(code)


def _check_of(name: str) -> Callable[[Context], Findings]:
    module = importlib.import_module("runners.check." + name)
    check: Callable[[Context], Findings] = module.check
    return check


def _run(name: str, out: str, size: Size, seconds: float) -> Findings:
    def checked() -> Dict[str, Any]:
        os.setsid()
        with open(os.path.join(out, _LOG), "ab") as log:
            log.write(("== %s\n" % name).encode())
            log.flush()
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        try:
            return asdict(_check_of(name)(Context(out, size, time.monotonic() + seconds - _TO_ANSWER_S)))
        except Exception as error:  # noqa: BLE001 - what a check raises is what it found
            traceback.print_exc()
            return asdict(Findings([("%s: %s" % (type(error).__name__, " ".join(str(error).split())))[:500]]))
        finally:
            sys.stdout.flush()

    values, problem = forked(checked, seconds, with_descendants=True)
    return Findings(["%s; check.log has what it printed" % problem]) if values is None else Findings(**values)


def _say(out: str, line: Dict[str, Any]) -> None:
    text = json.dumps(line, sort_keys=False)
    print(text, flush=True)
    with open(os.path.join(out, _LINES), "a", encoding="utf-8") as stream:
        stream.write(text + "\n")


def _clear(out: str) -> None:
    """Makes the directory, without what an earlier run has left there: a killed one leaves its rows unpacked."""
    os.makedirs(out, exist_ok=True)
    shutil.rmtree(os.path.join(out, ROWS), ignore_errors=True)
    for name in (_LINES, _LOG, _PACKED):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(out, name))


def _pack(out: str) -> None:
    """Puts the rows into one file: what comes back from a machine may be few files only."""
    rows = os.path.join(out, ROWS)
    if not os.path.isdir(rows):
        return
    write_manifest(rows)
    with tarfile.open(os.path.join(out, _PACKED), "w") as archive:
        archive.add(rows, ROWS, filter=_wanted)
    shutil.rmtree(rows)


def _wanted(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
    return None if os.path.basename(member.name) in ("cache", "tmp") else member


def forked(function: Callable[[], Any], seconds: float, with_descendants: bool = False) -> Tuple[Any, Optional[str]]:
    """What a function returns in a forked process, as JSON, or why there is nothing.

    Args:
        function: may use the device; this process must not have.
        seconds: after which it is killed.
        with_descendants: ends what it has started too; it has to have made a session of its own.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            data = json.dumps(function()).encode()
            while data:
                data = data[os.write(writing, data) :]
            code = 0
        except BaseException:  # noqa: BLE001 - it must not go on as its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    answer = _read_until(reading, time.monotonic() + seconds)
    os.close(reading)
    if answer is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if with_descendants:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    if answer is None:
        return None, "no answer within %.0f s" % seconds
    return (json.loads(answer.decode()), None) if status == 0 else (None, "it failed with status %d" % status)


def _read_until(descriptor: int, deadline: float) -> Optional[bytes]:
    data = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        block = os.read(descriptor, 1 << 16)
        if not block:
            return data
        data += block
