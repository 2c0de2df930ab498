"""Brings the results of an exported directory into the store: what came back is taken as what is left on a host is."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from orchestrator.boundary import foreign_directory, read_foreign_file, validated
from orchestrator.campaign.driver.record_intake import RecordIntake
from orchestrator.campaign.exchange.manifest import MANIFEST, ExportedTask, Manifest, read_manifest
from orchestrator.errors import ConfigurationError, ForeignDataError, StoreError, some_of
from orchestrator.execution import MAX_LINE_BYTES, RecordReader, read_pieces
from orchestrator.planning import trial_key
from orchestrator.store import Origin, Store, batch_of, campaign_row, campaign_totals, fitting
from orchestrator.store.ingest import Answer, Ingest, Outcome
from orchestrator.store.rows import RowBuilder, Rows, time_of
from runners.contract import (
    CONTRACT_VERSION,
    METHOD_VERSION,
    Begin,
    ContractError,
    Environment,
    Status,
    Task,
    TaskFiles,
    Trial,
    TrialRecord,
    decode,
    digest,
    encode_line,
)
from runners.system import Fingerprint, system_id

_SHOWN: Final = 8
"""Differences of an environment that an error names; the others are counted."""

_SUPERSEDED: Final = "its start ended while this trial ran; it was measured again"


@dataclass
class ImportReport:
    """What an import did."""

    manifest: Manifest
    added: int = 0
    already: int = 0
    """Rows that the store had."""
    conflicts: int = 0
    """Rows that the store has with another content: the export was run twice."""
    damages: list[str] = field(default_factory=list)
    """What cannot be imported, with its file and line."""
    begun: int = 0
    """Trials that began and have no record."""
    untouched: int = 0
    """Trials that have not begun, those of missing tasks included."""
    missing: list[str] = field(default_factory=list)
    """Tasks whose directory is not there."""
    found: dict[str, list[str]] = field(default_factory=dict)
    """Environments that were not what their locks say, by the name that stands in the rows: how they differ."""
    notices: list[str] = field(default_factory=list)
    systems: dict[str, Fingerprint] = field(default_factory=dict)
    """Of the starts that have rows."""

    @property
    def is_whole(self) -> bool:
        """Whether all that was there could be imported."""
        return not self.damages and not self.conflicts


@dataclass(frozen=True)
class _Start:
    """One start of a task: one process on one machine in one environment."""

    path: Path
    """Of its records, relative to the export."""
    intake: RecordIntake
    recorded: set[str]
    """Trials that have rows of it."""


@dataclass(frozen=True)
class _System:
    """`system.json` of a start."""

    fingerprint: Fingerprint


def import_export(directory: Path, store: Store, *, accept_versions: bool) -> ImportReport:
    """Adds the rows of an exported directory to a store, those that it does not have.

    The files are read twice, first to judge every row and to refuse what is not to be imported before anything is
    written: the samples of a large sweep fill gigabytes, so only one start is held at a time.

    Args:
        directory: as it came back.
        store: where to.
        accept_versions: takes results of environments that are not what the locks say, under names of their own.

    Raises:
        ConfigurationError: the directory is no export or was changed, or its environments are not accepted.
        ForeignDataError: a directory or a file of it is a link, or no regular file.
        StoreError: the store cannot be written.
    """
    manifest = read_manifest(directory)
    _refuse_other_methods(manifest, directory)
    report = ImportReport(manifest)
    judged = _take_all(directory, report, None)
    _refuse_other_versions(report, directory, accept_versions=accept_versions)
    if not judged.answered:
        if not report.damages:
            raise ConfigurationError(
                "no trial of this export has a record yet; ./run.sh there measures", file=directory
            )
        return report
    campaign, skips = _campaign(manifest), _skips(manifest, directory, report.systems)
    try:
        batch_of([campaign], "campaigns")
        for some in skips:
            batch_of(some.trials, "trials")
    except StoreError as error:
        raise ConfigurationError(f"damaged: {error}; copy it again", file=directory / MANIFEST) from None
    with store.writer() as writer:
        writer.put_campaign(campaign)
        # A full disk is told at once; nobody makes room for a command that a person can repeat.
        with Ingest(store, writer, lambda _text: None, room_wait_s=0.0) as ingest:
            second = ImportReport(manifest)
            taken = _take_all(directory, second, ingest)
            # One that is there already may have another system: then less was known of the others.
            new = sum(ingest.commit(some).outcome is Outcome.STORED for some in skips)
        report.added, report.already = taken.added + new, taken.already + len(skips) - new
        report.conflicts, report.damages = taken.conflicts, second.damages
        # The campaign's end is that of its last trial so far, not that of the import.
        ends = store.trials(["finished_at"], campaign_id=manifest.campaign_id)["finished_at"].to_pylist()
        statuses = [attempt.status for attempt in store.attempts(manifest.campaign_id).values()]
        finished_at = max(ends, default=time_of(manifest.exported_at_ns))
        writer.finish_campaign(manifest.campaign_id, **campaign_totals(finished_at, statuses, rows=len(ends)))
    report.notices += [
        f"the journal of a killed run was damaged: {seal.damage}; it is kept at {seal.quarantined}"
        for seal in writer.reports
        if seal.damage is not None
    ]
    return report


class _RowSink:
    """Has rows stored, or only judged, and counts what became of them."""

    def __init__(self, ingest: Ingest | None) -> None:
        self._ingest = ingest
        self._waiting: list[tuple[Rows, Callable[[Answer], None]]] = []
        self.added = self.already = self.conflicts = 0

    @property
    def answered(self) -> int:
        """Rows that the store takes, or has."""
        return self.added + self.already + self.conflicts

    def submit(self, rows: Rows, answer: Callable[[Answer], None]) -> None:
        """Takes rows of one trial."""

        def count(given: Answer) -> None:
            self.added += given.outcome is Outcome.STORED
            self.already += given.outcome is Outcome.DUPLICATE and not given.reason
            self.conflicts += given.outcome is Outcome.DUPLICATE and bool(given.reason)
            answer(given)

        if self._ingest is None:
            self._waiting.append((rows, count))
        else:
            self._ingest.submit(rows, count)

    def settle(self, intake: RecordIntake) -> list[tuple[Trial, TrialRecord]]:
        """Waits for the answers; the records that have rows."""
        if self._ingest is None:
            self._judge()
            return intake.answered()
        stored = []
        self._ingest.hurry()
        while not intake.is_settled:
            self._ingest.answered.wait(0.05)
            self._ingest.answered.clear()
            stored += intake.answered()
        if self._ingest.failure is not None:
            raise self._ingest.failure
        return stored

    def _judge(self) -> None:
        """Answers as the store would."""
        waiting, self._waiting = self._waiting, []
        try:
            for rows, _ in waiting[:1]:
                batch_of(rows.systems, "systems")
                batch_of(rows.environments, "environments")
            _, problems = fitting([rows.trials[0] for rows, _ in waiting])
        except StoreError as error:
            problems = dict.fromkeys(range(len(waiting)), str(error))
        for place, (_, answer) in enumerate(waiting):
            is_wrong = place in problems
            answer(Answer(Outcome.REFUSED, problems[place]) if is_wrong else Answer(Outcome.STORED))


def _take_all(root: Path, report: ImportReport, ingest: Ingest | None) -> _RowSink:
    """Takes all tasks of an export; with nothing to store in, their rows are judged."""
    sink = _RowSink(ingest)
    for exported in report.manifest.tasks:
        directory = foreign_directory(root, exported.directory)
        if directory is None:
            report.missing.append(exported.directory)
            report.untouched += exported.trials
            continue
        task = _read_task(directory, exported, report.manifest)
        files = TaskFiles(str(directory)).starts()
        starts = [start for some in files if (start := _take(root, some, task, exported, report, sink)) is not None]
        begun = [start.intake.begun.keys() | start.recorded for start in starts]
        last = {trial_id: number for number, names in enumerate(begun) for trial_id in names}
        done = {trial_id for start in starts for trial_id in start.recorded}
        report.begun += len(last.keys() - done)
        report.untouched += len({trial.trial_id for trial in task.trials} - done - last.keys())
        for number, start in enumerate(starts):
            for begin in start.intake.begun.values():
                if last[begin.trial_id] > number and begin.trial_id not in start.recorded:
                    start.intake.take(encode_line(_superseded(begin)))
            sink.settle(start.intake)
            report.damages += [f"{start.path}: {problem}" for problem in start.intake.problems]
    return sink


def _take(
    root: Path, files: TaskFiles, task: Task, exported: ExportedTask, report: ImportReport, sink: _RowSink
) -> _Start | None:
    """Takes one start of a task; null if it did not begin, or if it is not known where."""
    foreign_directory(root, str(Path(files.directory).relative_to(root)))
    path, system = Path(files.records), Path(files.system)
    reader = RecordReader()
    lines = (read.line for piece in read_pieces(path) for read in reader.feed(piece))
    seen = next((line for line in lines if isinstance(line, Environment)), None)
    if not path.exists():
        return None
    again = path.parent.name if path.parent.name.startswith("again-") else ""
    task_id = f"{task.task_id}-{again}" if again else task.task_id
    place = path
    try:
        origin = report.manifest.origin(task_id, exported.environment, None if seen is None else seen.versions)
        place, builder = system, RowBuilder(origin)
        fingerprint = validated(_System, read_foreign_file(system, MAX_LINE_BYTES), "its machine").fingerprint
        builder.runs_on(fingerprint)
    except (FileNotFoundError, ForeignDataError, StoreError, ValueError) as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else error
        report.damages.append(f"{place.relative_to(root)}: {problem}; no record of this start is taken")
        return None
    if seen is not None and (wrong := report.manifest.environments[exported.environment].differences(seen.versions)):
        report.found[origin.pin.name] = some_of(wrong, _SHOWN)

    def adapted(trial: Trial, record: TrialRecord) -> Trial:
        # A runner counts the attempts of its starts itself
        key = trial.trial_key if origin.context.lock_sha256 else trial_key(trial.spec, origin.pin)
        return replace(trial, attempt=record.attempt, trial_key=key)

    intake = RecordIntake(path, task, builder, sink, adapted=adapted)
    for piece in read_pieces(path):
        intake.take(piece)
    if intake.is_cut:
        intake.take(b"\n")
    recorded = {record.trial_id for _, record in sink.settle(intake)}
    if recorded:
        report.systems[system_id(fingerprint)] = fingerprint
    return _Start(path.relative_to(root), intake, recorded)


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
    task = validated(Task, data, str(path))
    if task.campaign_id != manifest.campaign_id or task.task_id != exported.task_id:
        raise ConfigurationError("it belongs to another campaign than export.json", file=path)
    return task


def _refuse_other_methods(manifest: Manifest, directory: Path) -> None:
    theirs = manifest.contract_version, manifest.method_version
    if theirs != (CONTRACT_VERSION, METHOD_VERSION):
        raise ConfigurationError(
            f"exported with contract {theirs[0]} and method {theirs[1]}, while this taxmeter has {CONTRACT_VERSION} "
            f"and {METHOD_VERSION}; import it with taxmeter {manifest.taxmeter_version}",
            file=directory,
        )


def _refuse_other_versions(report: ImportReport, directory: Path, *, accept_versions: bool) -> None:
    if report.found and not accept_versions:
        texts = [f"environment {name}:\n  " + "\n  ".join(wrong) for name, wrong in report.found.items()]
        raise ConfigurationError(
            "measured with other versions than the lock's; --accept-versions imports them under a name of their own\n"
            + "\n".join(texts),
            file=directory,
        )


def _skips(manifest: Manifest, directory: Path, systems: Mapping[str, Fingerprint]) -> list[Rows]:
    """The rows of trials that were known to be impossible.

    They have the system on which the others ran, if that was one and the same.
    """
    rows = []
    now = manifest.exported_at_ns
    for skip in manifest.skips:
        try:
            trial = decode(Trial, skip.trial, "trial")
            builder = RowBuilder(manifest.origin(None, skip.environment))
            if len(systems) == 1:
                builder.runs_on(*systems.values())
            record = TrialRecord(trial.trial_id, trial.attempt, Status.SKIPPED, skip.reason, now, now)
            rows.append(builder.rows([(trial, record)]))
        except (ContractError, StoreError) as error:
            raise ConfigurationError(f"damaged: {error}; copy it again", file=directory, key="skips") from None
    return rows


def _campaign(manifest: Manifest) -> dict[str, object]:
    lines = [
        "# exported with `taxmeter task export`; the machine stood in no inventory",
        f"host: {manifest.host}",
        f"cores: '{manifest.cores}'",
        "labels:" if manifest.labels else "labels: {}",
        *(f"  {name}: '{value}'" for name, value in sorted(manifest.labels.items())),
    ]
    return campaign_row(
        manifest.campaign_id,
        time_of(manifest.exported_at_ns),
        manifest.sweep,
        sweep_document=manifest.sweep_document,
        inventory_document="\n".join(lines) + "\n",
        planned_trials=manifest.planned_trials,
        # Not the plan's own: no sweep that runs here may take this campaign for one of its own and continue it.
        plan_digest=digest({"exported": manifest.plan_digest}),
        origin=Origin.IMPORTED,
        taxmeter_version=manifest.taxmeter_version,
        git_commit=manifest.git_commit,
    )
