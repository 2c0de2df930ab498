"""Writes a planned sweep as a directory that another machine can run."""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.campaign.exchange.environments import describe
from orchestrator.campaign.exchange.instructions import instructions
from orchestrator.campaign.exchange.machine import Cores
from orchestrator.campaign.exchange.manifest import FORMAT, MANIFEST, ExportedSkip, ExportedTask, Manifest
from orchestrator.campaign.exchange.script import ScriptTask, run_script
from orchestrator.environments import EnvironmentEntry
from orchestrator.errors import ConfigurationError
from orchestrator.execution import INSTALLED, copy_code
from orchestrator.execution.base import time_limit_s
from orchestrator.planning import Plan, PlannedTask, PlanningHost
from runners.contract import CONTRACT_VERSION, METHOD_VERSION, TaskFiles, encode


@dataclass(frozen=True)
class Origin:
    """Where a plan comes from."""

    campaign_id: str
    sweep: str
    sweep_document: str
    """The file as the user wrote it."""
    taxmeter_version: str
    git_commit: str | None


def write_export(
    directory: Path,
    planned: Plan,
    host: PlanningHost,
    cores: Cores,
    entries: Mapping[str, EnvironmentEntry],
    origin: Origin,
) -> Manifest:
    """Writes the directory: whole, or not at all.

    Args:
        directory: must not exist, or be empty.
        planned: the tasks, all of them on `host`.
        host: the machine as it was planned for.
        cores: its cores as a person named them.
        entries: the environments of the plan, by name.
        origin: where the plan comes from.

    Raises:
        ConfigurationError: something stands at `directory`, or it cannot be written, or a lock is malformed.
    """
    target = directory.absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigurationError("this exists already; name a directory that does not, or an empty one", file=directory)
    environments = {name: describe(entry) for name, entry in entries.items()}
    manifest = Manifest(
        format=FORMAT,
        campaign_id=origin.campaign_id,
        exported_at_ns=time.time_ns(),
        host=host.name,
        labels=dict(host.labels),
        cores=cores.text,
        sweep=origin.sweep,
        sweep_document=origin.sweep_document,
        plan_digest=planned.digest,
        planned_trials=planned.trials,
        contract_version=CONTRACT_VERSION,
        method_version=METHOD_VERSION,
        taxmeter_version=origin.taxmeter_version,
        git_commit=origin.git_commit,
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
            _fill(partial, planned, manifest, cores, entries)
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


def _fill(root: Path, planned: Plan, manifest: Manifest, cores: Cores, entries: Mapping[str, EnvironmentEntry]) -> None:
    copy_code(INSTALLED, Path(TaskFiles(str(root)).code))
    scripted = []
    for task, exported in zip(planned.tasks, manifest.tasks, strict=True):
        directory = root / exported.directory
        directory.mkdir(parents=True)
        Path(TaskFiles(str(directory)).task).write_bytes(_document(task))
        scripted.append(ScriptTask(directory.name, exported.environment, time_limit_s(task.task)))
    locks = root / "environments"
    locks.mkdir()
    for name, entry in entries.items():
        shutil.copyfile(entry.lock_path, locks / f"{name}.lock")
    (root / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (root / "README.txt").write_text(instructions(manifest, entries, planned.estimate_s), encoding="utf-8")
    script = root / "run.sh"
    script.write_text(run_script(scripted, cores.text if cores.are_chosen else None), encoding="utf-8")
    # Whatever the umask says: others may have to read them there.
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path == script else 0o644)
