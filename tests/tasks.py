"""Task directories for tests: written, run by a runner in a process of its own, and read."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runners.contract import (
    CONTRACT_VERSION,
    NO_GUARDS,
    BackendSpec,
    Begin,
    Guards,
    Line,
    Protocol,
    Task,
    Trial,
    TrialRecord,
    TrialSpec,
    WorkloadSpec,
    decode_line,
    encode,
)
from runners.contract.spec import OptionValue
from tests.conftest import PROJECT
from tests.conftest import QUICK as SHORT

QUICK = replace(SHORT, warmup_max_ms=10_000, pipelined_block_ms=5)
"""As a synthetic workload of a session is measured."""
BRIEF = replace(
    SHORT, turn_ms=5, cycles=2, min_cycles=1, sync_budget_ms=5, sync_min_samples=10, pipelined_budget_ms=1,
    pipelined_min_samples=1, floor_budget_ms=0,
)  # fmt: skip
"""As a model is measured that is only to be right."""
ENDLESS = replace(QUICK, sync_budget_ms=600_000, turn_ms=60_000, max_samples=1_000_000)


FRAMEWORK = """
import json
from dataclasses import replace

import torch

from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.contract.catalogue import WORKLOADS
from runners.examination.calls import count_aten_calls
from runners.workloads import make_workload

torch.set_num_threads(1)
torch.set_grad_enabled(False)
seen = {}


def workload(name, batch=1, dtype="float32", sequence_length=None, image_size=None, **options):
    info = WORKLOADS[name]
    shape = WorkloadSpec(name, batch, sequence_length or info.sequence_length, image_size or info.image_size, options)
    return make_workload(TrialSpec(shape, BackendSpec("eager", {}), dtype, "cpu", 1, 3, Protocol()))


def calls(one, *attention):
    model, inputs = one.build(*attention), one.inputs(0)
    return count_aten_calls(lambda: model(*inputs))


def run(model, *inputs):
    with torch.inference_mode():
        return model(*inputs)
"""
"""What programs begin with that look into workloads with torch: they have neither pytest nor the orchestrator."""


def evaluated(python: Path, program: str, *flags: str) -> Any:
    """What a program that begins with `FRAMEWORK` prints last, which is JSON."""
    command = [python, *flags, "-c", FRAMEWORK + program]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def on_one_thread(
    shape: WorkloadSpec, backend: str, chosen: Mapping[str, OptionValue] | None = None, dtype: str = "float32",
    protocol: Protocol = BRIEF, timeout_s: int = 250,
) -> Trial:  # fmt: skip
    """A trial on a processor, named by its workload and backend."""
    spec = TrialSpec(shape, BackendSpec(backend, dict(chosen or {})), dtype, "cpu", 1, 3, protocol)
    return Trial(f"{shape.name}-{backend}", "key", 0, 0, 0, 1, timeout_s, spec)


def trial(name: str, backend: str = "python", timeout_s: int = 30, protocol: Protocol = QUICK, batch: int = 2) -> Trial:
    """A trial of a synthetic workload, or of a small model of text."""
    shape = {} if name.startswith("synthetic") else {"sequence_length": 16}
    return on_one_thread(WorkloadSpec(name, batch, **shape), backend, protocol=protocol, timeout_s=timeout_s)


def write_task(directory: Path, *trials: Trial, version: int = CONTRACT_VERSION, guards: Guards = NO_GUARDS) -> None:
    """Makes a directory one of a task."""
    task = Task(version, "campaign", "task", "none", trials, guards)
    (directory / "task.json").write_text(json.dumps(encode(task)))


def environment(**extra: str) -> dict[str, str]:
    """That of the tests without what a runner reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TAXMETER", "TORCH"))}
    return {**kept, **extra}


def start(directory: Path, python: Path = Path(sys.executable), **extra: str) -> "subprocess.Popen[bytes]":
    """Starts the runner of a task; both of its streams are read together."""
    command, pipe = [str(python), "-m", "runners", str(directory)], subprocess.PIPE
    return subprocess.Popen(
        command, cwd=PROJECT, env=environment(**extra), stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
    )


def run(directory: Path, python: Path = Path(sys.executable)) -> tuple[int, str]:
    """Exit code and output of the runner of a task."""
    with start(directory, python) as process:
        output, _ = process.communicate(timeout=280)
    return process.returncode, output.decode()


def recorded(
    directory: Path, python: Path, *trials: Trial, before: str = "", cache: Path | None = None, timeout_s: float = 280
) -> dict[str, TrialRecord]:
    """The records of a task that ran to its end, by the ids of its trials.

    Args:
        directory: becomes that of the task.
        python: has the framework.
        trials: of the task.
        before: is executed in the supervisor before it starts.
        cache: of references and artifacts; null for one of the task alone.
        timeout_s: after which the task is given up.
    """
    write_task(directory, *trials)
    code = f"import sys\n{before}\nfrom runners.supervision.supervisor import run_task\nsys.exit(run_task(sys.argv[1]))"
    variables = environment(**({} if cache is None else {"TAXMETER_CACHE": str(cache)}))
    command = [str(python), "-c", code, str(directory)]
    done = subprocess.run(
        command, cwd=PROJECT, env=variables, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {record.trial_id: record for record in records(directory)}


def named(trials: Mapping[str, Trial]) -> list[Trial]:
    """Trials whose ids are the names that they have in a table."""
    return [replace(found, trial_id=name) for name, found in trials.items()]


def lines(directory: Path) -> list[Line]:
    """All that a task has recorded, as lines."""
    return [decode_line(line) for line in (directory / "records.jsonl").read_bytes().splitlines()]


def records(directory: Path) -> list[TrialRecord]:
    """The records of a task."""
    return [line for line in lines(directory) if isinstance(line, TrialRecord)]


def lines_so_far(directory: Path) -> list[Line]:
    """The whole lines; the runner may be in the middle of the next."""
    path = directory / "records.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [decode_line(line) for line in whole.splitlines()]


def wait_for_begin(directory: Path) -> None:
    """Until a trial has begun."""
    deadline = time.monotonic() + 30
    while not any(isinstance(line, Begin) for line in lines_so_far(directory)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waited for has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
