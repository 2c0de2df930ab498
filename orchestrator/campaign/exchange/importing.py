"""Brings the results of an exported directory into the store, by the builder and the writer of all rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from orchestrator.campaign.exchange.manifest import Manifest, read_manifest
from orchestrator.campaign.exchange.reading import Damage, Start, read_task_results
from orchestrator.errors import ConfigurationError, StoreError
from orchestrator.planning import trial_key
from orchestrator.store import Answer, Ingest, Outcome, RowBuilder, Store, TaskOrigin, campaign_row, campaign_totals
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

    The files are read twice, first to refuse what is not to be imported before anything is written: the samples of a
    large sweep fill gigabytes, so only one task is held at a time.

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
    skips = _skips(manifest, directory)
    systems = _survey(directory, report, accept_versions=accept_versions)
    if not systems:
        if not report.damages:
            raise ConfigurationError(
                "no trial of this export has a record yet; ./run.sh there measures", file=directory
            )
        return report
    with store.writer() as writer:
        writer.put_campaign(_campaign(manifest))
        # A full disk is told at once; nobody makes room for a command that a person can repeat.
        with Ingest(store, writer, lambda _text: None, room_wait_s=0.0) as ingest:
            for exported in manifest.tasks:
                if (results := read_task_results(directory, exported, manifest)) is None:
                    continue
                for start, seen, fingerprint in results.starts:
                    builder = RowBuilder(manifest.origin(start.task_id, exported.environment, seen.versions))
                    builder.runs_on(fingerprint)
                    builder.saw(seen)
                    _store_records(start, results.trials, builder, report, ingest)
            for environment, records in skips.items():
                _store_skips(manifest.origin(None, environment), records, systems, report, ingest)
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


def _refuse_other_methods(manifest: Manifest, directory: Path) -> None:
    theirs = manifest.contract_version, manifest.method_version
    if theirs != (CONTRACT_VERSION, METHOD_VERSION):
        raise ConfigurationError(
            f"exported with contract {theirs[0]} and method {theirs[1]}, while this taxmeter has {CONTRACT_VERSION} "
            f"and {METHOD_VERSION}; import it with taxmeter {manifest.taxmeter_version}",
            file=directory,
        )


def _survey(directory: Path, report: ImportReport, *, accept_versions: bool) -> dict[str, Fingerprint]:
    """Looks at all tasks, and notes in the report what there is; returns the systems that they ran on.

    Raises:
        ConfigurationError: a task was changed, or an environment is not accepted.
    """
    systems: dict[str, Fingerprint] = {}
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
        for _, seen, fingerprint in results.starts:
            systems[system_id(fingerprint)] = fingerprint
            wrong = report.manifest.environments[exported.environment].differences(seen.versions)
            if wrong:
                refused[exported.environment] = wrong
                name = report.manifest.origin(None, exported.environment, seen.versions).pin.name
                report.found[name] = "; ".join(_shortened(wrong))
    if refused and not accept_versions:
        texts = [f"environment {name}:\n  " + "\n  ".join(_shortened(wrong)) for name, wrong in refused.items()]
        raise ConfigurationError(
            "measured with other versions than the lock's; --accept-versions imports them under a name of their own\n"
            + "\n".join(texts),
            file=directory,
        )
    return systems


def _shortened(texts: Sequence[str]) -> list[str]:
    more = len(texts) - _SHOWN
    return [*texts[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _store_records(
    start: Start, trials: Mapping[str, Trial], builder: RowBuilder, report: ImportReport, ingest: Ingest
) -> None:
    origin = builder.origin
    answers: SimpleQueue[tuple[int, Answer]] = SimpleQueue()
    for number, record in start.records:
        trial = replace(trials[record.trial_id], attempt=record.attempt)
        if origin.context.lock_sha256 is None:
            trial = replace(trial, trial_key=trial_key(trial.spec, origin.pin))
        try:
            rows = builder.rows([(trial, record)])
        except StoreError as error:
            answers.put((number, Answer(Outcome.REFUSED, str(error))))
        else:
            ingest.submit(rows, partial(_put, answers, number))
    ingest.hurry()
    for number, answer in (answers.get() for _ in start.records):
        if answer.outcome is Outcome.LEFT:
            raise ingest.failure or StoreError(answer.reason)
        if answer.outcome is Outcome.REFUSED:
            report.damages.append(Damage(start.path, number, f"it gives no row: {answer.reason}"))
        else:
            report.added += answer.outcome is Outcome.STORED
            report.already += answer.outcome is Outcome.DUPLICATE and not answer.reason
            report.conflicts += bool(answer.reason)


def _put(answers: "SimpleQueue[tuple[int, Answer]]", number: int, answer: Answer) -> None:
    answers.put((number, answer))


def _store_skips(
    origin: TaskOrigin,
    skips: Iterable[tuple[Trial, TrialRecord]],
    systems: Mapping[str, Fingerprint],
    report: ImportReport,
    ingest: Ingest,
) -> None:
    """Trials that ran nowhere have the system on which the others ran, if that was one and the same."""
    builder = RowBuilder(origin)
    if len(systems) == 1:
        builder.runs_on(*systems.values())
    for skip in skips:
        # one that is there already may have another system: then less was known of the others
        is_new = ingest.commit(builder.rows([skip])).outcome is Outcome.STORED
        report.added += is_new
        report.already += not is_new


def _skips(manifest: Manifest, directory: Path) -> dict[str, list[tuple[Trial, TrialRecord]]]:
    """By environment, the trials that were known to be impossible."""
    skips: dict[str, list[tuple[Trial, TrialRecord]]] = {}
    now = manifest.exported_at_ns
    for skip in manifest.skips:
        try:
            trial = decode(Trial, skip.trial, "trial")
        except ContractError as error:
            raise ConfigurationError(f"damaged: {error}; copy it again", file=directory, key="skips") from None
        record = TrialRecord(trial.trial_id, trial.attempt, Status.SKIPPED, skip.reason, now, now)
        skips.setdefault(skip.environment, []).append((trial, record))
    return skips


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
        taxmeter_version=manifest.taxmeter_version,
        git_commit=manifest.git_commit,
    )


def _time(nanoseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
