"""Reads task directories that came back. What is damaged is named with its place; the rest is used."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.campaign.exchange.manifest import ExportedTask, Manifest
from orchestrator.errors import ConfigurationError
from runners.contract import (
    Begin,
    ContractError,
    End,
    Environment,
    Line,
    Status,
    Task,
    TaskFiles,
    Trial,
    TrialRecord,
    decode,
    decode_line,
)
from runners.system import Fingerprint

SUPERSEDED = "its start ended while this trial ran; it was measured again"


@dataclass(frozen=True)
class Damage:
    """Something that cannot be imported."""

    file: Path
    """Relative to the export."""
    line: int | None
    problem: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.problem}"


@dataclass(frozen=True)
class Recorded:
    """A record, or what stands for the one that a dead start did not write."""

    file: Path
    line: int
    trial: Trial
    """With the attempt of the record."""
    record: TrialRecord


@dataclass(frozen=True)
class Start:
    """One start of a task: one process on one machine in one environment."""

    task_id: str
    environment: str
    """As the export names it."""
    seen: Environment
    fingerprint: Fingerprint
    recorded: tuple[Recorded, ...]


@dataclass
class TaskResults:
    """What there is of one task."""

    task: Task
    starts: list[Start] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    """Trials that have a beginning, but neither a record nor a later attempt."""
    untouched: set[str] = field(default_factory=set)
    """Trials that have not begun."""


@dataclass
class _StartLines:
    files: TaskFiles
    task_id: str
    seen: Environment | None = None
    begun: dict[str, tuple[int, Begin]] = field(default_factory=dict)
    records: list[tuple[int, TrialRecord]] = field(default_factory=list)


def read_task_results(root: Path, exported: ExportedTask, manifest: Manifest) -> TaskResults | None:
    """What came back of one task; null if its directory is not there.

    Raises:
        ConfigurationError: the task is not the one that was exported.
    """
    directory = root / exported.directory
    if not directory.is_dir():
        return None
    results = TaskResults(_read_task(directory, exported, manifest))
    trials = {trial.trial_id: trial for trial in results.task.trials}
    starts = [
        _read_lines(root, files, trials, exported, results.damages)
        for files in TaskFiles(str(directory)).starts()
        if Path(files.records).exists()
    ]
    last = {
        trial_id: max(at for at, start in enumerate(starts) if trial_id in start.begun) for trial_id in _begun(starts)
    }
    done = {record.trial_id for start in starts for _, record in start.records}
    results.begun = set(last) - done
    results.untouched = set(trials) - done - set(last)
    seen: set[tuple[str, int]] = set()
    for at, start in enumerate(starts):
        path = Path(start.files.records)
        recorded = [Recorded(path.relative_to(root), line, _trial(trials, one), one) for line, one in start.records]
        own = {record.trial_id for _, record in start.records}
        for trial_id, (line, begin) in start.begun.items():
            if trial_id not in own and last[trial_id] > at:
                lost = _lost(begin)
                recorded.append(Recorded(path.relative_to(root), line, _trial(trials, lost), lost))
        recorded = [record for record in recorded if _is_first(record, seen, results.damages)]
        complete = _complete(root, start, exported.environment, tuple(recorded), results.damages)
        if complete is not None:
            results.starts.append(complete)
    return results


def _read_task(directory: Path, exported: ExportedTask, manifest: Manifest) -> Task:
    path = Path(TaskFiles(str(directory)).task)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}; copy the directory again", file=path) from None
    if hashlib.sha256(data).hexdigest() != exported.task_sha256:
        raise ConfigurationError("not the task that was exported: it was changed or damaged since", file=path)
    try:
        task = decode(Task, json.loads(data), "task")
    except ContractError as error:
        problem = f"{error}; import it with taxmeter {manifest.taxmeter_version}"
        raise ConfigurationError(problem, file=path) from None
    if task.campaign_id != manifest.campaign_id or task.task_id != exported.task_id:
        raise ConfigurationError("it belongs to another campaign than export.json", file=path)
    return task


def _read_lines(
    root: Path, files: TaskFiles, trials: dict[str, Trial], exported: ExportedTask, damages: list[Damage]
) -> _StartLines:
    number = Path(files.directory).name.removeprefix("again-")
    again = files.directory != str(root / exported.directory)
    start = _StartLines(files, f"{exported.task_id}-again-{number}" if again else exported.task_id)
    path = Path(files.records).relative_to(root)
    for number_of_line, line in _lines(Path(files.records), path, damages):
        problem = _problem(line, start, trials)
        if problem is not None:
            damages.append(Damage(path, number_of_line, problem))
        elif isinstance(line, Environment):
            start.seen = line
        elif isinstance(line, Begin):
            start.begun[line.trial_id] = number_of_line, line
        elif isinstance(line, TrialRecord):
            start.records.append((number_of_line, line))
    return start


def _problem(line: Line, start: _StartLines, trials: dict[str, Trial]) -> str | None:
    """Why a line that can be read cannot stand where it stands."""
    if isinstance(line, Environment | End):
        if line.task_id != start.task_id:
            return f"a line of task {line.task_id} among those of {start.task_id}"
        if isinstance(line, Environment) and start.seen is not None:
            return "a second environment"
        return None
    if line.trial_id not in trials:
        return f"trial {line.trial_id} is not part of this task"
    if line.attempt < 1:
        return f"attempt {line.attempt}, the first is 1"
    return None


def _lines(path: Path, shown: Path, damages: list[Damage]) -> Iterator[tuple[int, Line]]:
    pieces = path.read_bytes().split(b"\n")
    for number, raw in enumerate(pieces, start=1):
        is_last = number == len(pieces)
        if is_last and not raw:
            return
        if is_last:
            damages.append(Damage(shown, number, "the line is cut off"))
            return
        try:
            line = decode_line(raw)
        except ValueError as error:
            damages.append(Damage(shown, number, str(error)))
        else:
            yield number, line


def _complete(
    root: Path, start: _StartLines, environment: str, recorded: tuple[Recorded, ...], damages: list[Damage]
) -> Start | None:
    if not recorded:
        return None
    if start.seen is None:
        path = Path(start.files.records).relative_to(root)
        damages.append(Damage(path, None, f"no environment can be read; {len(recorded)} records are left out"))
        return None
    path = Path(start.files.system)
    try:
        document = json.loads(path.read_bytes())
        if not isinstance(document, dict) or set(document) != {"fingerprint"}:
            raise ContractError("expected an object with the key fingerprint")
        fingerprint = decode(Fingerprint, document["fingerprint"], "fingerprint")
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        damages.append(Damage(path.relative_to(root), None, f"{problem}; {len(recorded)} records are left out"))
        return None
    return Start(start.task_id, environment, start.seen, fingerprint, recorded)


def _is_first(recorded: Recorded, seen: set[tuple[str, int]], damages: list[Damage]) -> bool:
    key = recorded.record.trial_id, recorded.record.attempt
    if key in seen:
        damages.append(Damage(recorded.file, recorded.line, f"a second record of trial {key[0]}, attempt {key[1]}"))
        return False
    seen.add(key)
    return True


def _begun(starts: list[_StartLines]) -> set[str]:
    return {trial_id for start in starts for trial_id in start.begun}


def _trial(trials: dict[str, Trial], record: TrialRecord) -> Trial:
    return replace(trials[record.trial_id], attempt=record.attempt)


def _lost(begin: Begin) -> TrialRecord:
    return TrialRecord(
        trial_id=begin.trial_id,
        attempt=begin.attempt,
        status=Status.INFRASTRUCTURE_ERROR,
        reason=SUPERSEDED,
        started_at_ns=begin.started_at_ns,
        finished_at_ns=begin.started_at_ns,
    )
