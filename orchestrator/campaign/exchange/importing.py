"""Brings the results of an exported directory into the store, by the builder and the writer of all rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from orchestrator.campaign.exchange.manifest import MANIFEST, ExportedTask, Manifest, read_manifest
from orchestrator.campaign.exchange.reading import Damage, Start, TaskResults, read_task_results
from orchestrator.errors import ConfigurationError, StoreError, some_of
from orchestrator.planning import trial_key
from orchestrator.store import (
    Answer,
    Ingest,
    Origin,
    Outcome,
    RowBuilder,
    Rows,
    Store,
    batch_of,
    campaign_row,
    campaign_totals,
    fitting,
)
from runners.contract import (
    CONTRACT_VERSION,
    METHOD_VERSION,
    ContractError,
    Status,
    Trial,
    TrialRecord,
    decode,
    digest,
)
from runners.system import Fingerprint, system_id

_SHOWN: Final = 8
"""Differences of an environment that an error names; the others are counted."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class ImportReport:
    """What an import did."""

    manifest: Manifest
    added: int = 0
    already: int = 0
    """Rows that the store had."""
    conflicts: int = 0
    """Rows that the store has with another content: the export was run twice."""
    damages: list[Damage] = field(default_factory=list)
    begun: int = 0
    """Trials that began and have no record."""
    untouched: int = 0
    """Trials that have not begun, those of missing tasks included."""
    missing: list[str] = field(default_factory=list)
    """Tasks whose directory is not there."""
    found: dict[str, str] = field(default_factory=dict)
    """Environments that were not what their locks say, by the name that stands in the rows: how they differ."""
    notices: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether all that was there could be imported."""
        return not self.damages and not self.conflicts


def import_export(directory: Path, store: Store, *, accept_versions: bool) -> ImportReport:
    """Adds the rows of an exported directory to a store, those that it does not have.

    The files are read twice, first to judge every row and to refuse what is not to be imported before anything is
    written: the samples of a large sweep fill gigabytes, so only one task is held at a time.

    Args:
        directory: as it came back.
        store: where to.
        accept_versions: takes results of environments that are not what the locks say, under names of their own.

    Raises:
        ConfigurationError: the directory is no export or was changed, or its environments are not accepted.
        StoreError: the store cannot be written.
    """
    manifest = read_manifest(directory)
    _refuse_other_methods(manifest, directory)
    report = ImportReport(manifest)
    survey = _survey(directory, report, accept_versions=accept_versions)
    if not survey.rows:
        if not report.damages:
            raise ConfigurationError(
                "no trial of this export has a record yet; ./run.sh there measures", file=directory
            )
        return report
    campaign, skips = _campaign(manifest), _skips(manifest, directory, survey.systems)
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
            for exported in manifest.tasks:
                if (results := read_task_results(directory, exported, manifest)) is not None:
                    for judged in _judged(exported, results, manifest):
                        _store(judged, report, ingest)
            for some in skips:
                # one that is there already may have another system: then less was known of the others
                is_new = ingest.commit(some).outcome is Outcome.STORED
                report.added += is_new
                report.already += not is_new
        # The campaign's end is that of its last trial so far, not that of the import.
        ends = store.trials(["finished_at"], campaign_id=manifest.campaign_id)["finished_at"].to_pylist()
        statuses = [attempt.status for attempt in store.attempts(manifest.campaign_id).values()]
        finished_at = max(ends, default=_time(manifest.exported_at_ns))
        writer.finish_campaign(manifest.campaign_id, **campaign_totals(finished_at, statuses, rows=len(ends)))
    report.notices += [
        f"the journal of a killed run was damaged: {seal.damage}; it is kept at {seal.quarantined}"
        for seal in writer.reports
        if seal.damage is not None
    ]
    return report


@dataclass
class _Survey:
    """What the first reading found."""

    systems: dict[str, Fingerprint] = field(default_factory=dict)
    rows: int = 0
    """That can be stored, those that are stored already included."""


@dataclass
class _Judged:
    """The records of one start as rows."""

    start: Start
    rows: list[tuple[int, Rows]] = field(default_factory=list)
    """With the number of the record's line."""
    damages: list[Damage] = field(default_factory=list)


def _judged(exported: ExportedTask, results: TaskResults, manifest: Manifest) -> Iterator[_Judged]:
    """Makes rows of the records of a task, by the builder and the validator of all rows."""
    for start, seen, fingerprint in results.starts:
        found = _Judged(start)
        try:
            builder = RowBuilder(manifest.origin(start.task_id, exported.environment, seen.versions))
            builder.runs_on(fingerprint)
            builder.saw(seen)
            shared = builder.rows([])
            batch_of(shared.systems, "systems")
            batch_of(shared.environments, "environments")
        except StoreError as error:
            found.damages.append(Damage(start.path, None, f"{error}; {len(start.records)} records are left out"))
            yield found
            continue
        for number, record in start.records:
            trial = replace(results.trials[record.trial_id], attempt=record.attempt)
            if builder.context.lock_sha256 is None:
                trial = replace(trial, trial_key=trial_key(trial.spec, builder.origin.pin))
            try:
                found.rows.append((number, builder.rows([(trial, record)])))
            except StoreError as error:
                found.damages.append(Damage(start.path, number, f"it gives no row: {error}"))
        _, problems = fitting([rows.trials[0] for _, rows in found.rows])
        for place, problem in sorted(problems.items(), reverse=True):
            number, _ = found.rows.pop(place)
            found.damages.append(Damage(start.path, number, f"it gives no row: {problem}"))
        found.damages.sort(key=lambda damage: damage.line or 0)
        yield found


def _refuse_other_methods(manifest: Manifest, directory: Path) -> None:
    theirs = manifest.contract_version, manifest.method_version
    if theirs != (CONTRACT_VERSION, METHOD_VERSION):
        raise ConfigurationError(
            f"exported with contract {theirs[0]} and method {theirs[1]}, while this taxmeter has {CONTRACT_VERSION} "
            f"and {METHOD_VERSION}; import it with taxmeter {manifest.taxmeter_version}",
            file=directory,
        )


def _survey(directory: Path, report: ImportReport, *, accept_versions: bool) -> _Survey:
    """Judges all rows of all tasks, and notes in the report what there is and what is wrong.

    Raises:
        ConfigurationError: a task was changed, or an environment is not accepted.
    """
    survey = _Survey()
    refused: dict[str, list[str]] = {}
    for exported in report.manifest.tasks:
        results = read_task_results(directory, exported, report.manifest)
        if results is None:
            report.missing.append(exported.directory)
            report.untouched += exported.trials
            continue
        report.begun += results.begun
        report.untouched += results.untouched
        report.damages += results.damages
        for judged in _judged(exported, results, report.manifest):
            survey.rows += len(judged.rows)
            report.damages += judged.damages
        for _, seen, fingerprint in results.starts:
            survey.systems[system_id(fingerprint)] = fingerprint
            wrong = report.manifest.environments[exported.environment].differences(seen.versions)
            if wrong:
                refused[exported.environment] = wrong
                name = report.manifest.origin(None, exported.environment, seen.versions).pin.name
                report.found[name] = "; ".join(some_of(wrong, _SHOWN))
    if refused and not accept_versions:
        texts = [f"environment {name}:\n  " + "\n  ".join(some_of(wrong, _SHOWN)) for name, wrong in refused.items()]
        raise ConfigurationError(
            "measured with other versions than the lock's; --accept-versions imports them under a name of their own\n"
            + "\n".join(texts),
            file=directory,
        )
    return survey


def _store(judged: _Judged, report: ImportReport, ingest: Ingest) -> None:
    answers: SimpleQueue[tuple[int, Answer]] = SimpleQueue()
    for number, rows in judged.rows:
        ingest.submit(rows, partial(_put, answers, number))
    ingest.hurry()
    for number, answer in (answers.get() for _ in judged.rows):
        if answer.outcome is Outcome.LEFT:
            raise ingest.failure or StoreError(answer.reason)
        if answer.outcome is Outcome.REFUSED:
            report.damages.append(Damage(judged.start.path, number, f"it gives no row: {answer.reason}"))
        else:
            report.added += answer.outcome is Outcome.STORED
            report.already += answer.outcome is Outcome.DUPLICATE and not answer.reason
            report.conflicts += bool(answer.reason)


def _put(answers: "SimpleQueue[tuple[int, Answer]]", number: int, answer: Answer) -> None:
    answers.put((number, answer))


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
        _time(manifest.exported_at_ns),
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


def _time(nanoseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
