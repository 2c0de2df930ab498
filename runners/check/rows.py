"""Tasks that checks run as any other task is run, kept as a directory that `taxmeter results import` takes.

The directory is that of `taxmeter task export`. Nobody locked its environment, so that the import needs
--accept-versions, and the rows stand under an environment name of their own.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import uuid
from typing import Any, Dict, List, Sequence, Tuple

import runners
from runners.contract import (
    CONTRACT_VERSION,
    METHOD_VERSION,
    Guards,
    Task,
    TaskFiles,
    Trial,
    TrialRecord,
    TrialSpec,
    compact_json,
    decode_line,
    digest,
    encode,
)

CAMPAIGN = "TAXMETER_CHECK_CAMPAIGN"
"""Variable with the id of the campaign that all rows of one run belong to."""

_ENVIRONMENT = "gpu-check"
_NO_LOCK = {"python": "0", "lock_sha256": "0" * 64, "versions": {}}
_SWEEP = "# made by python3 -m runners.check; its trials stand in runners/check and in no sweep\nversion: 1\n"


def new_campaign() -> str:
    """An id for the rows of one run."""
    return "gpu-check-%s-%s" % (time.strftime("%Y%m%dt%H%M%Sz", time.gmtime()), uuid.uuid4().hex[:6])


def run_task(
    root: str, name: str, specs: Sequence[TrialSpec], seconds: float
) -> Tuple[List[Tuple[TrialSpec, TrialRecord]], str]:
    """Runs trials as one task with all guards; those that differ in nothing but their backend are one session.

    Args:
        root: of the exported directory.
        name: of the task.
        specs: of its trials.
        seconds: after which it is ended; trials that were not reached have no record.

    Returns:
        The trials that were reached with their records, and the end of what the runner printed.
    """
    directory = os.path.join(root, "tasks", name)
    os.makedirs(directory)
    campaign = os.environ.get(CAMPAIGN) or new_campaign()
    trials = tuple(
        Trial(
            trial_id=digest([campaign, name, index])[:32],
            trial_key=digest([encode(spec), _ENVIRONMENT]),
            round=0,
            order=index,
            replicate=0,
            attempt=1,
            timeout_s=max(1, int(seconds)),
            spec=spec,
        )
        for index, spec in enumerate(specs)
    )
    task = Task(CONTRACT_VERSION, campaign, "%s-%s" % (campaign, name), _ENVIRONMENT, trials, Guards())
    files = TaskFiles(directory)
    with open(files.task, "wb") as stream:
        stream.write(compact_json(task))
    printed = _run(directory, seconds)
    by_id = {trial.trial_id: trial.spec for trial in trials}
    return [(by_id[record.trial_id], record) for record in _records(files.records)], printed


def write_manifest(root: str) -> None:
    """Describes the tasks below a directory as an export is described."""
    described: List[Dict[str, Any]] = []
    campaign = ""
    for name in sorted(os.listdir(os.path.join(root, "tasks"))):
        with open(TaskFiles(os.path.join(root, "tasks", name)).task, "rb") as stream:
            data = stream.read()
        task = json.loads(data.decode("utf-8"))
        campaign = task["campaign_id"]
        described.append(
            {
                "directory": "tasks/" + name,
                "task_id": task["task_id"],
                "environment": _ENVIRONMENT,
                "trials": len(task["trials"]),
                "task_sha256": hashlib.sha256(data).hexdigest(),
            }
        )
    manifest = {
        "format": 1,
        "campaign_id": campaign,
        "exported_at_ns": time.time_ns(),
        "host": "gpu-check",
        "labels": {},
        "cores": str(len(os.sched_getaffinity(0))),
        "sweep": "gpu-check",
        "sweep_document": _SWEEP,
        "plan_digest": digest(described),
        "planned_trials": sum(task["trials"] for task in described),
        "contract_version": CONTRACT_VERSION,
        "method_version": METHOD_VERSION,
        "taxmeter_version": "of runners.check",
        "git_commit": None,
        "environments": {_ENVIRONMENT: _NO_LOCK},
        "tasks": described,
        "skips": [],
    }
    with open(os.path.join(root, "export.json"), "w", encoding="utf-8") as stream:
        json.dump(manifest, stream, indent=1)


def search_path() -> str:
    """PYTHONPATH for a process that needs this package: where it is found now, before what was there."""
    source = os.path.dirname(os.path.dirname(os.path.abspath(runners.__file__)))
    return os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])


def _run(directory: str, seconds: float) -> str:
    environment = dict(
        os.environ,
        PYTHONPATH=search_path(),
        TAXMETER_CACHE=os.path.join(directory, "cache"),
        # The supervisor ends itself, and with it its children
        TAXMETER_TIME_LIMIT_S=str(max(1, int(seconds))),
    )
    log = os.path.join(directory, "supervisor.log")
    with open(log, "wb") as stream:
        command = [sys.executable, "-m", "runners", directory]
        subprocess.call(command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
    with open(log, errors="replace") as text:
        return text.read()[-2000:]


def _records(path: str) -> List[TrialRecord]:
    if not os.path.exists(path):
        return []
    with open(path, "rb") as stream:
        # What is cut off was being written when its time was over
        lines = stream.read().split(b"\n")[:-1]
    return [line for line in map(decode_line, lines) if isinstance(line, TrialRecord)]
