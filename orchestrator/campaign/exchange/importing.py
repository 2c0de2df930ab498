"""Brings the results of an exported directory into the store: everything is checked before the first row is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.campaign.exchange.environments import as_found, as_locked, differences
from orchestrator.campaign.exchange.manifest import ExportedTask, Manifest, read_manifest
from orchestrator.campaign.exchange.reading import Damage, read_task_results
from orchestrator.campaign.exchange.rows import Rows, declared_row, on_system, skip_row, task_rows
from orchestrator.errors import ConfigurationError
from orchestrator.store import Row, Store, Writer, campaign_row, campaign_totals
from runners.contract import CONTRACT_VERSION, METHOD_VERSION, ContractError, Trial, decode, digest

_SHOWN = 8
"""Differences of an environment that an error names; the others are counted."""

_BATCH = 64
"""Rows that are written at once."""

_Key = tuple[object, object]


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

    The files are read twice, first to check them all and then to write: the samples of a large sweep fill gigabytes, so
    only one task is held at a time.

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
    found = {_key(row): row["started_at"] for row in skips.trials}
    refused: dict[str, list[str]] = {}
    for exported in manifest.tasks:
        found.update(_survey(directory, exported, report, refused, skips.systems))
    if len(found) == len(skips.trials) and not report.damages:
        raise ConfigurationError("no trial of this export has a record yet; ./run.sh there measures", file=directory)
    if refused and not accept_versions:
        _refuse_versions(refused, directory)
    new = _new_keys(found, store, report)
    if new:
        with store.writer() as writer:
            _write(directory, manifest, skips, new, writer)
            _close_account(store, writer, manifest.campaign_id)
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


def _refuse_versions(refused: Mapping[str, Sequence[str]], directory: Path) -> None:
    texts = [f"environment {name}:\n  " + "\n  ".join(_shortened(wrong)) for name, wrong in refused.items()]
    raise ConfigurationError(
        "measured with other versions than the lock's; --accept-versions imports them under a name of their own\n"
        + "\n".join(texts),
        file=directory,
    )


def _shortened(texts: Sequence[str]) -> list[str]:
    more = len(texts) - _SHOWN
    return [*texts[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _skips(manifest: Manifest, directory: Path) -> Rows:
    rows = Rows()
    for skip in manifest.skips:
        try:
            trial = decode(Trial, skip.trial, "trial")
        except ContractError as error:
            raise ConfigurationError(f"damaged: {error}; copy it again", file=directory, key="skips") from None
        environment = as_locked(skip.environment, manifest.environments[skip.environment])
        row, declared = skip_row(manifest, environment, trial, skip.reason), declared_row(environment)
        rows.trials.append(row)
        rows.environments[str(declared["environment_id"])] = declared
    return rows


def _survey(
    directory: Path,
    exported: ExportedTask,
    report: ImportReport,
    refused: dict[str, list[str]],
    systems: dict[str, Row],
) -> dict[_Key, object]:
    """Checks one task; returns the keys of its rows, each with the time at which its trial started.

    Notes the problems in `report` and `refused`, and in `systems` where it ran.
    """
    results = read_task_results(directory, exported, report.manifest)
    if results is None:
        report.missing.append(exported.directory)
        report.untouched += exported.trials
        return {}
    report.begun += len(results.begun)
    report.untouched += len(results.untouched)
    for start in results.starts:
        locked = report.manifest.environments[start.environment]
        wrong = differences(locked, start.seen.versions)
        if wrong:
            refused[start.environment] = wrong
            report.found[as_found(start.environment, start.seen.versions).pin.name] = "; ".join(_shortened(wrong))
    rows = task_rows(report.manifest, results)
    report.damages += results.damages + rows.damages
    systems.update(rows.systems)
    return {_key(row): row["started_at"] for row in rows.trials}


def _key(row: Mapping[str, object]) -> _Key:
    return row["trial_id"], row["attempt"]


def _new_keys(found: Mapping[_Key, object], store: Store, report: ImportReport) -> set[_Key]:
    columns = ["trial_id", "attempt", "started_at"]
    stored = store.trials(columns, campaign_id=report.manifest.campaign_id).to_pylist()
    known = {_key(row): row["started_at"] for row in stored}
    new = found.keys() - known.keys()
    report.added = len(new)
    report.already = sum(known[key] == found[key] for key in found.keys() & known.keys())
    report.conflicts = len(found) - report.added - report.already
    return new


def _write(directory: Path, manifest: Manifest, skips: Rows, new: set[_Key], writer: Writer) -> None:
    writer.put_campaign(
        campaign_row(
            manifest.campaign_id,
            datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=manifest.exported_at_ns // 1000),
            manifest.sweep,
            sweep_document=manifest.sweep_document,
            inventory_document=_machine_document(manifest),
            planned_trials=manifest.planned_trials,
            # Not the plan's own: no sweep that runs here may take this campaign for one of its own and continue it.
            plan_digest=digest({"exported": manifest.plan_digest}),
            taxmeter_version=manifest.taxmeter_version,
            git_commit=manifest.git_commit,
        )
    )
    for row in skips.environments.values():
        writer.put_environment(row)
    for row in skips.systems.values():
        writer.put_system(row)
    systems = skips.systems.values()
    writer.append([on_system(row, systems) for row in skips.trials if _key(row) in new])
    for exported in manifest.tasks:
        results = read_task_results(directory, exported, manifest)
        rows = Rows() if results is None else task_rows(manifest, results)
        for row in rows.systems.values():
            writer.put_system(row)
        for row in rows.environments.values():
            writer.put_environment(row)
        chosen = [row for row in rows.trials if _key(row) in new]
        for first in range(0, len(chosen), _BATCH):
            writer.append(chosen[first : first + _BATCH])


def _close_account(store: Store, writer: Writer, campaign_id: str) -> None:
    """Writes down what there is of the campaign; its end is that of its last trial so far, not that of the import."""
    ends = store.trials(["finished_at"], campaign_id=campaign_id)["finished_at"].to_pylist()
    statuses = [attempt.status for attempt in store.attempts(campaign_id).values()]
    finished_at = max(end for end in ends if end is not None)
    writer.finish_campaign(campaign_id, **campaign_totals(finished_at, statuses, rows=len(ends)))


def _machine_document(manifest: Manifest) -> str:
    lines = [
        "# exported with `taxmeter task export`; the machine stood in no inventory",
        f"host: {manifest.host}",
        f"cores: '{manifest.cores}'",
        "labels:" if manifest.labels else "labels: {}",
        *(f"  {name}: '{value}'" for name, value in sorted(manifest.labels.items())),
    ]
    return "\n".join(lines) + "\n"
