"""Writes a planned sweep as a directory for a machine of which nothing is known here but what a person says."""

import hashlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from orchestrator.campaign.exchange.manifest import (
    FORMAT,
    MANIFEST,
    ExportedSkip,
    ExportedTask,
    LockedEnvironment,
    Manifest,
    locked_pin,
)
from orchestrator.campaign.exchange.script import instructions, run_script
from orchestrator.config import Sweep
from orchestrator.environments import EnvironmentEntry, lock_sha256
from orchestrator.errors import ConfigurationError
from orchestrator.execution import INSTALLED, copy_code
from orchestrator.execution.base import time_limit_s
from orchestrator.planning import Plan, PlannedTask, PlanningHost
from runners.contract import CONTRACT_VERSION, METHOD_VERSION, TaskFiles, encode
from runners.system import cores_in

_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True)
class Cores:
    """The cores that trials may use there."""

    numbers: tuple[int, ...]
    text: str
    """As a person wrote them."""
    are_chosen: bool
    """Whether these very cores are meant, and not just as many."""


def parse_cores(text: str) -> Cores:
    """Reads `16` as that many cores, and `0-15`, `0,2,4` or `3-3` as these cores.

    Raises:
        ConfigurationError: it is neither.
    """
    is_number = text.isdecimal()
    try:
        # no machine has five digits of cores
        numbers = () if re.search(r"\d{5}", text) else tuple(range(int(text))) if is_number else cores_in(text)
    except ValueError:
        numbers = ()
    if not numbers:
        raise ConfigurationError(f"--cores {text}: expected a number such as 16, or a list such as 0-15 or 0,2,4")
    return Cores(numbers, text, are_chosen=not is_number)


def exported_host(
    name: str, labels: Mapping[str, str], cores: Cores, entries: Sequence[EnvironmentEntry]
) -> PlanningHost:
    """The machine as planning sees it, with the locks' environments.

    Raises:
        ConfigurationError: the name cannot be that of a host.
    """
    if not _HOST.fullmatch(name):
        raise ConfigurationError(f"--host {name}: a host name consists of a-z, 0-9, '-' and '.'")
    pins = {entry.name: locked_pin(entry.name, lock_sha256(entry)) for entry in entries}
    return PlanningHost(name, dict(labels), cores.numbers, pins)


def cores_of(sweep: Sweep, text: str | None) -> Cores:
    """The cores that a sweep is planned for: those that a person names, else as many as it has threads.

    Raises:
        ConfigurationError: what is named are no cores, or nobody names them and only a person can.
    """
    if text is not None:
        return parse_cores(text)
    numbers = [threads for threads in sweep.threads if isinstance(threads, int)]
    if len(numbers) < len(sweep.threads):
        raise sweep.error(
            "all means every core of the machine, and nobody can count them here; "
            "add --cores with their number, such as --cores 16",
            "threads",
        )
    return parse_cores(str(max(numbers)))


def write_export(
    directory: Path,
    planned: Plan,
    host: PlanningHost,
    cores: Cores,
    entries: Mapping[str, EnvironmentEntry],
    sweep: Sweep,
    campaign_id: str,
    git_commit: str | None,
    gpu: str | None = None,
) -> Manifest:
    """Writes the directory: whole, or not at all.

    Args:
        directory: must not exist, or be empty.
        planned: the tasks, all of them on `host`.
        host: the machine as it was planned for.
        cores: its cores as a person named them.
        entries: the environments of the plan, by name.
        sweep: that was planned.
        campaign_id: of the plan.
        git_commit: of this checkout, if it is one.
        gpu: UUID of the one GPU that trials see there; null for the first.

    Raises:
        ConfigurationError: something stands at `directory`, or it cannot be written, or a lock is malformed.
    """
    target = directory.absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigurationError("this exists already; name a directory that does not, or an empty one", file=directory)
    environments = {name: LockedEnvironment.of(entry) for name, entry in entries.items()}
    manifest = Manifest(
        format=FORMAT,
        campaign_id=campaign_id,
        exported_at_ns=time.time_ns(),
        host=host.name,
        labels=dict(host.labels),
        cores=cores.text,
        sweep=sweep.name,
        sweep_document=sweep.file.text,
        plan_digest=planned.digest,
        planned_trials=planned.trials,
        contract_version=CONTRACT_VERSION,
        method_version=METHOD_VERSION,
        taxmeter_version=version("taxmeter"),
        git_commit=git_commit,
        environments=environments,
        tasks=tuple(_exported(task, planned) for task in planned.tasks),
        skips=tuple(
            ExportedSkip(environment=skip.environment, reason=skip.reason, trial=encode(skip.trial))
            for skip in planned.skips
        ),
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
        try:
            _fill(partial, planned, manifest, cores, entries, gpu)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial)
            raise
    except OSError as error:
        raise ConfigurationError(f"cannot be written: {_cause(error)}", file=directory) from error
    return manifest


def _cause(error: OSError) -> str:
    if isinstance(error, shutil.Error):  # of a whole tree: source, target and reason of each file
        return str(error.args[0][0][2])
    return error.strerror or str(error)


def _exported(planned: PlannedTask, plan: Plan) -> ExportedTask:
    task = planned.task
    digits = len(str(max(entry.task.trials[0].round for entry in plan.tasks)))
    return ExportedTask(
        directory=f"tasks/r{task.trials[0].round:0{digits}d}-{task.environment}",
        task_id=task.task_id,
        environment=task.environment,
        trials=len(task.trials),
        task_sha256=hashlib.sha256(_document(planned)).hexdigest(),
    )


def _document(planned: PlannedTask) -> bytes:
    return json.dumps(encode(planned.task), indent=1).encode()


def _fill(
    root: Path,
    planned: Plan,
    manifest: Manifest,
    cores: Cores,
    entries: Mapping[str, EnvironmentEntry],
    gpu: str | None,
) -> None:
    copy_code(INSTALLED, Path(TaskFiles(str(root)).code))
    scripted = []
    for task, exported in zip(planned.tasks, manifest.tasks, strict=True):
        directory = root / exported.directory
        directory.mkdir(parents=True)
        Path(TaskFiles(str(directory)).task).write_bytes(_document(task))
        scripted.append((directory.name, exported.environment, time_limit_s(task.task)))
    locks = root / "environments"
    locks.mkdir()
    for name, entry in entries.items():
        shutil.copyfile(entry.lock_path, locks / f"{name}.lock")
    (root / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (root / "README.txt").write_text(instructions(manifest, entries, planned.estimate_s), encoding="utf-8")
    script = root / "run.sh"
    script.write_text(run_script(scripted, cores.text if cores.are_chosen else None, gpu), encoding="utf-8")
    # Whatever the umask says: others may have to read them there.
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path == script else 0o644)
