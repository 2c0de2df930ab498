"""How long commands take: in processes of their own, against the start of a bare interpreter."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COMPARE = ("compare", "--rows", "gpu", "--cols", "backend", "--baseline", "backend=eager", "--where", "campaign=newest")

SWEEP = f"""\
version: 1
name: bench
environments: cpu
workloads:
  - name: [bert-base, distilbert, gpt2, roberta-base]
    batch: {list(range(1, 51))}
    sequence_length: {list(range(8, 168, 8))}
backends: [eager, torchscript, onnxruntime, torch_compile, openvino]
rounds: 5
"""
"""20,000 specifications, each in five rounds."""


@dataclass(frozen=True)
class Took:
    """What a command took: medians."""

    wall_s: float
    cpu_s: float


def took(command: Sequence[str], repeats: int, directory: Path) -> Took:
    """Runs a command several times; the first run, which compiles modules and reads files, does not count.

    Args:
        command: to run; it must end with exit code 0.
        repeats: that count.
        directory: in which it runs.
    """
    walls, cpus = [], []
    with tempfile.TemporaryDirectory(prefix="taxmeter-compiled-") as compiled:
        environment = {**compiling(), "PYTHONPYCACHEPREFIX": compiled}
        for _ in range(repeats + 1):
            start, before = time.perf_counter(), _cpu_s()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=directory, env=environment)
            walls.append(time.perf_counter() - start)
            cpus.append(_cpu_s() - before)
    return Took(statistics.median(walls[1:]), statistics.median(cpus[1:]))


def compiling() -> dict[str, str]:
    """This process's environment for an installed command, whatever it says of compiled modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def bare(repeats: int, directory: Path) -> Took:
    """The interpreter itself."""
    return took([sys.executable, "-c", "pass"], repeats, directory)


_COMMAND = """\
import importlib.abc, sys
class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refused())
from orchestrator.cli import main
main()
"""


def taxmeter(*arguments: str) -> list[str]:
    """The command line as its entry point starts it, and without pandas: tests need it, users do not.

    Arrow imports it, where it is installed, as soon as it makes an array: a second of processor time.
    """
    return [sys.executable, "-c", _COMMAND, *arguments]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
