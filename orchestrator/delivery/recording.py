"""Rows from what a task says, on the host that it runs on; and on the driver, for trials that say nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.delivery.counterpart import Reproduces, with_counterpart
from orchestrator.delivery.parcels import Rows
from orchestrator.planning import EnvironmentPin
from orchestrator.store import Row, RowContext, environment_row, system_row, trial_row
from runners.contract import Environment, Trial, TrialRecord, digest, encode
from runners.contract.record import FactValue
from runners.system import Fingerprint, hot_columns, hw_id, system_id


@dataclass(frozen=True)
class Origin:
    """What the rows of a task have in common, as far as it is known before the task runs."""

    context: RowContext
    pin: EnvironmentPin
    reproduces: Reproduces | None = None
    """Null for a campaign that measures something of its own."""


@dataclass
class Recording:
    """Makes rows of a task's trials. Systems and environments come with the first rows that refer to them."""

    origin: Origin
    context: RowContext = field(init=False)
    _observed: dict[str, FactValue] = field(default_factory=dict, init=False)
    """Limits and the like, seen inside: they belong to the trials of this task, not to the environment."""
    _system: Row | None = field(default=None, init=False)
    _environment: Row | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.context = self.origin.context
        # Until somebody has looked into it, an environment is what it was declared to be.
        self._is_in({}, {})

    def runs_on(self, fingerprint: Fingerprint) -> None:
        """Takes what the host is made of."""
        identity, hardware, hot = system_id(fingerprint), hw_id(fingerprint), hot_columns(fingerprint)
        self._system = system_row(identity, hardware, hot, encode(replace(fingerprint, private=None)))
        own = _gpu_name(fingerprint, self.context.gpu_uuid)
        # A row of a host with GPUs of several kinds tells the one that it is about.
        hot = hot if own is None else {**hot, "gpu_name": own}
        self.context = replace(self.context, hw_id=hardware, system_id=identity, hot=hot)

    def saw(self, seen: Environment) -> None:
        """Takes what was seen inside the environment."""
        self._observed = {name: value for name, value in seen.facts.items() if is_of_this_run(name)}
        self._is_in(seen.versions, {name: v for name, v in seen.facts.items() if not is_of_this_run(name)})
        self.context = replace(self.context, runner_sha256=seen.runner_sha256, versions=seen.versions)

    def rows(self, trials: Sequence[tuple[Trial, TrialRecord]]) -> Rows:
        """Rows of trials, and of what they refer to until that is `delivered`.

        Raises:
            StoreError: a record belongs to another trial, or repeats a timing mode.
        """
        return Rows(
            trials=[self._row(trial, record) for trial, record in trials],
            systems=[self._system] if self._system else [],
            environments=[self._environment] if self._environment else [],
        )

    def delivered(self) -> None:
        """All rows that were made until now are stored: what they refer to need not be sent again."""
        self._system = self._environment = None

    def _row(self, trial: Trial, record: TrialRecord) -> Row:
        context = with_counterpart(self.context, trial.trial_key, self.origin.reproduces)
        return trial_row(context, trial, replace(record, facts={**self._observed, **record.facts}))

    def _is_in(self, versions: Mapping[str, str], facts: Mapping[str, FactValue]) -> None:
        pin = self.origin.pin
        identity = environment_id(pin, versions)
        self._environment = environment_row(
            identity,
            self.context.environment,
            versions,
            facts,
            image_digest=pin.image_digest,
            lock_sha256=pin.lock_sha256,
            image_layers=pin.image_layers,
            image_config_sha256=pin.image_config_sha256,
        )
        self.context = replace(self.context, environment_id=identity)


def _gpu_name(fingerprint: Fingerprint, uuid: str | None) -> str | None:
    uuids = fingerprint.private.gpu_uuids if fingerprint.private is not None else ()
    named = dict(zip(uuids, (gpu.name for gpu in fingerprint.gpus), strict=False))
    return named.get(uuid) if uuid is not None else None


def environment_id(pin: EnvironmentPin, versions: Mapping[str, str]) -> str:
    """Identity of an environment: what it was made from and what was observed inside it; nothing if nobody looked."""
    made_of = {"image": pin.content, "lock": pin.lock_sha256, "versions": dict(versions)}
    return digest(made_of)[:32]


def is_of_this_run(fact: str) -> bool:
    """Whether a fact about an environment is true on this host and in this container only."""
    return fact.startswith(("limit_", "env_", "driver_")) or fact in ("python_executable", "torch_cpu_capability")
