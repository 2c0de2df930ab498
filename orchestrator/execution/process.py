"""Runs a task in a process of a virtual environment: for machines without a Docker engine."""

from pathlib import Path
from threading import Event

from orchestrator.errors import InfrastructureError
from orchestrator.execution.base import ProcessSettings, TaskOutcome, log_tail, make_private, time_limit_s
from orchestrator.execution.runner_process import MARK, RunnerCommand, run_runner
from orchestrator.planning import is_of_gpu
from runners.contract import Task, TaskFiles

DRIVER_PATH = "/usr/local/nvidia/lib64:/usr/local/nvidia/lib:/usr/lib/wsl/lib"
"""Where a driver may be that the linker does not find by itself; where nothing is, nothing is found."""

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Behind the directory of the interpreter; `taskset` is there."""

FITNESS = r"""
fail() { echo "$1" >&2; exit 1; }
there=$1
while [ -n "$there" ] && [ ! -d "$there" ]; do there=${there%/*}; done
[ -w "${there:-/}" ] && [ -x "${there:-/}" ] ||
  fail "its user may not write into $1: give them the directory, or name another one as \`work_directory:\`"
PATH=$2
command -v taskset >/dev/null || fail "there is no taskset in $2: install util-linux there"
"""
"""A script for a shell: what trials lack, as its last line of errors. Its arguments are a work directory and a PATH."""


class ProcessExecutor:
    """The `process` isolation."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings

    def run(self, task: Task, directory: Path, stop: Event) -> TaskOutcome:
        scratch_of(directory).mkdir(exist_ok=True)
        make_private(self._settings.cache)
        try:
            exit_code, ended_because = run_runner(runner_command(self._settings, task, directory), stop.wait)
        except OSError as error:
            raise InfrastructureError(f"{self._settings.python} cannot be started: {error}") from error
        return TaskOutcome(exit_code, None, ended_because, log_tail(directory))


def scratch_of(directory: Path) -> Path:
    """What a task's processes have for their temporary files."""
    return directory / "tmp"


def runner_command(settings: ProcessSettings, task: Task, directory: Path) -> RunnerCommand:
    """How the runner of a staged task is started."""
    files, limit_s = TaskFiles(str(directory)), time_limit_s(task)
    cores = ",".join(map(str, settings.cores))
    argv = ["taskset", "--cpu-list", cores, str(settings.python), "-m", "runners", str(directory)]
    return RunnerCommand(
        argv,
        str(directory),
        files.code,
        files.log,
        environment(settings, task, scratch_of(directory), limit_s),
        limit_s,
    )


def environment(settings: ProcessSettings, task: Task, scratch: Path, limit_s: int) -> dict[str, str]:
    """All of the runner's environment. Nothing is inherited: Ray sets OMP_NUM_THREADS=1 for its workers."""
    is_given = settings.gpu_uuid is not None and is_of_gpu(task)
    visible = {"CUDA_VISIBLE_DEVICES": str(settings.gpu_uuid)} if is_given else {}
    driver = {"LD_LIBRARY_PATH": DRIVER_PATH} if is_of_gpu(task) else {}
    return {
        **visible,
        **driver,
        "PATH": f"{settings.python.parent}:{SYSTEM_PATH}",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TAXMETER_CACHE": str(settings.cache),
        "TAXMETER_CACHE_SCOPE": settings.cache_scope,
        "TAXMETER_MEMORY_BYTES": str(settings.memory_bytes),
        "TAXMETER_LIFELINE": "stdin",
        MARK: str(scratch.parent),
        "TAXMETER_TIME_LIMIT_S": str(limit_s),
    }
