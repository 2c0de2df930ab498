"""Rows from what a start of a task wrote."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from orchestrator.campaign.exchange.environments import Provided, as_found, as_locked, differences
from orchestrator.campaign.exchange.manifest import Manifest
from orchestrator.campaign.exchange.reading import Damage, Recorded, Start, TaskResults
from orchestrator.errors import StoreError
from orchestrator.store import TRIALS, Row, RowContext, environment_row, system_row, trial_row
from orchestrator.store.building import environment_id, is_of_this_run
from runners.contract import Status, Trial, TrialRecord, encode
from runners.contract.record import FactValue
from runners.system import hot_columns, hw_id, system_id


@dataclass
class Rows:
    """What a task adds to the store."""

    trials: list[Row] = field(default_factory=list)
    systems: dict[str, Row] = field(default_factory=dict)
    environments: dict[str, Row] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    """Records that give no row."""


def task_rows(manifest: Manifest, results: TaskResults) -> Rows:
    """The rows of a task: each start has its own machine and environment."""
    rows = Rows()
    for start in results.starts:
        locked = manifest.environments[start.environment]
        is_locked = not differences(locked, start.seen.versions)
        name, versions = start.environment, start.seen.versions
        _add_start(manifest, start, as_locked(name, locked) if is_locked else as_found(name, versions), rows)
    return rows


def _add_start(manifest: Manifest, start: Start, provided: Provided, rows: Rows) -> None:
    context = replace(_context(manifest, provided, start.task_id), runner_sha256=start.seen.runner_sha256)
    context = _with_system(context, start, rows)
    context = _with_environment(context, start, provided, rows)
    observed = {name: value for name, value in start.seen.facts.items() if is_of_this_run(name)}
    for recorded in start.recorded:
        try:
            rows.trials.append(_row(context, provided, recorded, observed))
        except (StoreError, ValueError, OverflowError) as error:
            rows.damages.append(Damage(recorded.file, recorded.line, f"it gives no row: {error}"))


def skip_row(manifest: Manifest, provided: Provided, trial: Trial, reason: str) -> Row:
    """The row of a trial that was known to be impossible. Its environment is the one that `declared_row` describes."""
    now = manifest.exported_at_ns
    record = TrialRecord(trial.trial_id, trial.attempt, Status.SKIPPED, reason, started_at_ns=now, finished_at_ns=now)
    context = replace(_context(manifest, provided, None), environment_id=environment_id(provided.pin, {}))
    return trial_row(context, trial, record)


def declared_row(provided: Provided) -> Row:
    """The row of an environment that nobody has looked into."""
    identity = environment_id(provided.pin, {})
    lock = provided.lock_sha256
    return environment_row(identity, provided.pin.name, {}, {}, image_digest=None, lock_sha256=lock)


def on_system(row: Row, systems: Collection[Row]) -> Row:
    """The row of a trial that ran nowhere, with the system on which the others ran, if that was one and the same."""
    if len(systems) != 1:
        return row
    (system,) = systems
    return {**row, **{name: value for name, value in system.items() if name in TRIALS.names}}


def _row(context: RowContext, provided: Provided, recorded: Recorded, observed: Mapping[str, FactValue]) -> Row:
    trial = replace(recorded.trial, trial_key=provided.key(recorded.trial))
    row = trial_row(context, trial, replace(recorded.record, facts={**observed, **recorded.record.facts}))
    try:
        pa.RecordBatch.from_pylist([row], TRIALS)
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    return row


def _context(manifest: Manifest, provided: Provided, task_id: str | None) -> RowContext:
    pin = provided.pin
    return RowContext(
        campaign_id=manifest.campaign_id,
        task_id=task_id,
        host=manifest.host,
        isolation=pin.isolation.value,
        executor_reason=pin.reason,
        environment=pin.name,
        environment_id=None,
        image_digest=None,
        image_id=None,
        lock_sha256=provided.lock_sha256,
        runner_sha256=None,
        versions={},
        hw_id=None,
        system_id=None,
        hot={},
    )


def _with_system(context: RowContext, start: Start, rows: Rows) -> RowContext:
    fingerprint = replace(start.fingerprint, private=None)
    identity, hardware, hot = system_id(fingerprint), hw_id(fingerprint), hot_columns(fingerprint)
    rows.systems[identity] = system_row(identity, hardware, hot, encode(fingerprint))
    return replace(context, hw_id=hardware, system_id=identity, hot=hot)


def _with_environment(context: RowContext, start: Start, provided: Provided, rows: Rows) -> RowContext:
    identity = environment_id(provided.pin, start.seen.versions)
    facts = {name: value for name, value in start.seen.facts.items() if not is_of_this_run(name)}
    rows.environments[identity] = environment_row(
        identity,
        context.environment,
        start.seen.versions,
        facts,
        image_digest=None,
        lock_sha256=provided.lock_sha256,
    )
    return replace(context, environment_id=identity, versions=start.seen.versions)
