"""Reads task directories that came back, by the reader of all records. What is damaged is named with its place."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.boundary import foreign_directory, load_json, read_foreign_file
from orchestrator.campaign.exchange.manifest import ExportedTask, Manifest
from orchestrator.errors import ConfigurationError, ForeignDataError
from orchestrator.execution import MAX_LINE_BYTES, RecordReader, read_pieces
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
    digest,
    repetition,
)
from runners.system import Fingerprint, system_id

_SUPERSEDED: Final = "its start ended while this trial ran; it was measured again"


@dataclass(frozen=True)
class Damage:
    """Something that cannot be imported."""

    file: Path
    """Relative to the export."""
    line: int | None
    problem: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.problem}"


@dataclass
class Start:
    """One start of a task: one process on one machine in one environment."""

    path: Path
    """Of its records, relative to the export."""
    task_id: str
    seen: Environment | None = None
    begun: dict[str, tuple[int, Begin]] = field(default_factory=dict)
    records: list[tuple[int, TrialRecord]] = field(default_factory=list)
    """Each with the number of its line; those of attempts that were made again stand at their beginnings."""


@dataclass
class TaskResults:
    """What there is of one task."""

    task: Task
    trials: dict[str, Trial]
    """By id, with the repetitions that begin."""
    starts: list[tuple[Start, Environment, Fingerprint]] = field(default_factory=list)
    """Those that have records, with what they ran in and where."""
    damages: list[Damage] = field(default_factory=list)
    begun: int = 0
    untouched: int = 0


def read_task_results(root: Path, exported: ExportedTask, manifest: Manifest) -> TaskResults | None:
    """What came back of one task; null if its directory is not there.

    Raises:
        ConfigurationError: the task is not the one that was exported.
        ForeignDataError: a directory or the file of its records is a link, or no regular file.
    """
    directory = foreign_directory(root, exported.directory)
    if directory is None:
        return None
    task = _read_task(directory, exported, manifest)
    results = TaskResults(task, {trial.trial_id: trial for trial in task.trials})
    starts = [_read_start(root, files, task.task_id, results) for files in TaskFiles(str(directory)).starts()]
    last = {trial_id: number for number, start in enumerate(starts) for trial_id in start.begun}
    done = {record.trial_id for start in starts for _, record in start.records}
    results.begun = len(last.keys() - done)
    results.untouched = len(results.trials.keys() - done - last.keys())
    seen: set[tuple[str, int]] = set()
    for number, start in enumerate(starts):
        own = {record.trial_id for _, record in start.records}
        lost = [
            (line, _superseded(begin))
            for trial_id, (line, begin) in start.begun.items()
            if trial_id not in own and last[trial_id] > number
        ]
        records, start.records = [*start.records, *lost], []
        for line, record in records:
            key = record.trial_id, record.attempt
            if key in seen:
                problem = f"a second record of trial {key[0]}, attempt {key[1]}"
                results.damages.append(Damage(start.path, line, problem))
            else:
                seen.add(key)
                start.records.append((line, record))
        fingerprint = _fingerprint(start, root, results.damages) if start.records else None
        if start.seen is not None and fingerprint is not None:
            results.starts.append((start, start.seen, fingerprint))
    return results


def _superseded(begin: Begin) -> TrialRecord:
    """Stands for the record of an attempt that a dead start did not write."""
    at = begin.started_at_ns
    return TrialRecord(begin.trial_id, begin.attempt, Status.INFRASTRUCTURE_ERROR, _SUPERSEDED, at, at)


def _read_task(directory: Path, exported: ExportedTask, manifest: Manifest) -> Task:
    path = Path(TaskFiles(str(directory)).task)
    try:
        data = read_foreign_file(path, MAX_LINE_BYTES)
    except FileNotFoundError:
        raise ConfigurationError("no such file; copy the directory again", file=path) from None
    if hashlib.sha256(data).hexdigest() != exported.task_sha256:
        raise ConfigurationError("not the task that was exported: it was changed or damaged since", file=path)
    try:
        task = decode(Task, load_json(data, str(path)), "task")
    except ContractError as error:
        problem = f"{error}; import it with taxmeter {manifest.taxmeter_version}"
        raise ConfigurationError(problem, file=path) from None
    if task.campaign_id != manifest.campaign_id or task.task_id != exported.task_id:
        raise ConfigurationError("it belongs to another campaign than export.json", file=path)
    return task


def _read_start(root: Path, files: TaskFiles, task_id: str, results: TaskResults) -> Start:
    foreign_directory(root, str(Path(files.directory).relative_to(root)))
    path = Path(files.records)
    again = path.parent.name if path.parent.name.startswith("again-") else ""
    start = Start(path.relative_to(root), f"{task_id}-{again}" if again else task_id)
    reader = RecordReader()
    number = 0
    for read in (read for piece in read_pieces(path) for read in reader.feed(piece)):
        number = read.number
        repeat = repetition(read.line, results.task) if isinstance(read.line, Begin) else None
        if repeat is not None:
            results.trials.setdefault(repeat.trial_id, repeat)
        problem = read.problem or _misplaced(read.line, start, results.trials)
        if problem:
            results.damages.append(Damage(start.path, number, problem))
        elif isinstance(read.line, Environment):
            start.seen = read.line
        elif isinstance(read.line, Begin):
            start.begun[read.line.trial_id] = number, read.line
        elif isinstance(read.line, TrialRecord):
            start.records.append((number, read.line))
    if reader.is_cut:
        results.damages.append(Damage(start.path, number + 1, "the line is cut off"))
    return start


def _misplaced(line: Line | None, start: Start, trials: Mapping[str, Trial]) -> str:
    """Why a line that can be read cannot stand where it stands; empty if it can."""
    assert line is not None
    if isinstance(line, Environment | End):
        if line.task_id != start.task_id:
            return f"a line of task {line.task_id} among those of {start.task_id}"
        if isinstance(line, End):
            return ""
        return "a second environment" if start.seen is not None else _unidentifiable(line)
    if line.trial_id not in trials:
        return f"trial {line.trial_id} is not part of this task"
    return f"attempt {line.attempt}, the first is 1" if line.attempt < 1 else ""


def _unidentifiable(seen: Environment) -> str:
    """Why an environment has no identity; empty if it has one."""
    try:
        digest(seen.versions)
    except ValueError as error:
        return str(error)
    return ""


def _fingerprint(start: Start, root: Path, damages: list[Damage]) -> Fingerprint | None:
    """Where a start ran; null if that or its environment is not known: then its records give no rows."""
    left_out = f"{len(start.records)} records are left out"
    if start.seen is None:
        damages.append(Damage(start.path, None, f"no environment can be read; {left_out}"))
        return None
    path = Path(TaskFiles(str(root / start.path.parent)).system)
    try:
        document = load_json(read_foreign_file(path, MAX_LINE_BYTES), path.name)
        if not isinstance(document, dict) or set(document) != {"fingerprint"}:
            raise ContractError("expected an object with the key fingerprint")
        fingerprint = decode(Fingerprint, document["fingerprint"], "fingerprint")
        system_id(fingerprint)  # what has no identity cannot be stored
    except (FileNotFoundError, ForeignDataError, ValueError) as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else error
        damages.append(Damage(path.relative_to(root), None, f"{problem}; {left_out}"))
        return None
    return fingerprint
