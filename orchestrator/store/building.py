"""From what a task says to rows that fit the store: the one way, for records that come, are left or are imported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import StoreError
from orchestrator.planning import EnvironmentPin
from orchestrator.store.rows import Row, RowContext, trial_row
from orchestrator.store.schema.tables import environment_row, system_row
from runners.contract import Environment, Trial, TrialRecord, digest, encode
from runners.contract.record import FactValue
from runners.system import Fingerprint, hot_columns, hw_id, system_id


@dataclass(frozen=True)
class Counterpart:
    """Stored trials that are run again."""

    trial_key: str
    """Of then; the key of now is another one if what is measured is."""
    differs: str | None
    """In what; null where everything that is decided before the start is as it was."""


@dataclass(frozen=True)
class Reproduces:
    """What a campaign runs again."""

    campaign_id: str
    trials: Mapping[str, Mapping[str, Counterpart]]
    """By host, then by the key of a trial that runs now: orders are handed over as JSON, whose keys are no pairs."""


@dataclass(frozen=True)
class TaskOrigin:
    """What the rows of a task have in common, as far as it is known before the task runs."""

    context: RowContext
    pin: EnvironmentPin
    reproduces: str | None = None
    """The campaign whose trials are run again; null for one that measures something of its own."""
    counterparts: Mapping[str, Counterpart] = field(default_factory=dict)
    """By the key of a trial of this task, what it runs again."""


@dataclass(frozen=True)
class StoredOrigin:
    """`origin.json` of a task directory."""

    store_id: str
    origin: TaskOrigin
    fingerprint: Fingerprint
    """Of the host that the task ran on."""


_ORIGIN = TypeAdapter(TaskOrigin)
_STORED = TypeAdapter(StoredOrigin)


def origin_document(origin: TaskOrigin) -> object:
    """An origin as plain JSON data."""
    document: object = _ORIGIN.dump_python(origin, mode="json")
    return document


def read_origin(data: bytes) -> StoredOrigin:
    """What `origin.json` says.

    Raises:
        StoreError: it is damaged, or nothing that this taxmeter wrote.
    """
    try:
        return _STORED.validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise StoreError(f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}") from None


@dataclass(frozen=True)
class Rows:
    """Rows that belong together. Systems and environments that are there already do no harm."""

    trials: Sequence[Row] = ()
    systems: Sequence[Row] = ()
    environments: Sequence[Row] = ()
    size: int = 0
    """Bytes that they were made of, for who bounds what waits."""


class RowBuilder:
    """Makes rows of a task's trials."""

    def __init__(self, origin: TaskOrigin) -> None:
        self.origin = origin
        self.context = origin.context
        self._observed: dict[str, FactValue] = {}
        self._system: Row | None = None
        # Until somebody has looked into it, an environment is what it was declared to be.
        self._environment = self._is_in({}, {})

    def runs_on(self, fingerprint: Fingerprint) -> None:
        """Takes what the host is made of.

        Raises:
            StoreError: it says what no row can hold.
        """
        try:
            identity, hardware, hot = system_id(fingerprint), hw_id(fingerprint), hot_columns(fingerprint)
        except ValueError as error:
            raise StoreError(f"its host: {error}") from error
        self._system = system_row(identity, hardware, hot, encode(replace(fingerprint, private=None)))
        own = _gpu_name(fingerprint, self.context.gpu_uuid)
        # A row of a host with GPUs of several kinds tells the one that it is about.
        hot = hot if own is None else {**hot, "gpu_name": own}
        self.context = replace(self.context, hw_id=hardware, system_id=identity, hot=hot)

    def saw(self, seen: Environment) -> None:
        """Takes what was seen inside the environment. Limits and the like belong to the trials of this task alone.

        Raises:
            StoreError: it says what no row can hold.
        """
        self._observed = {name: value for name, value in seen.facts.items() if is_of_this_run(name)}
        facts = {name: value for name, value in seen.facts.items() if not is_of_this_run(name)}
        try:
            self._environment = self._is_in(seen.versions, facts)
        except ValueError as error:
            raise StoreError(f"its environment: {error}") from error
        visible = str(seen.facts.get("env_CUDA_VISIBLE_DEVICES", ""))
        # What the runner was left with is what it measured
        gpu_uuid = visible if visible.startswith(("GPU-", "MIG-")) else self.context.gpu_uuid
        self.context = replace(
            self.context, runner_sha256=seen.runner_sha256, versions=seen.versions, gpu_uuid=gpu_uuid
        )

    def rows(self, trials: Sequence[tuple[Trial, TrialRecord]], size: int = 0) -> Rows:
        """Rows of trials, and of what they refer to.

        Raises:
            StoreError: a record belongs to another trial, repeats a timing mode, or says what no row can hold.
        """
        return Rows(
            [self._row(trial, record) for trial, record in trials],
            [self._system] if self._system else [],
            [self._environment],
            size,
        )

    def _row(self, trial: Trial, record: TrialRecord) -> Row:
        context = self.context
        if self.origin.reproduces is not None:
            counterpart = self.origin.counterparts[trial.trial_key]
            context = replace(
                context,
                reproduces=self.origin.reproduces,
                reproduces_trial_key=counterpart.trial_key,
                reproduction_differs=counterpart.differs,
            )
        try:
            return trial_row(context, trial, replace(record, facts={**self._observed, **record.facts}))
        except (ValueError, OverflowError) as error:
            raise StoreError(" ".join(str(error).split())) from error

    def _is_in(self, versions: Mapping[str, str], facts: Mapping[str, FactValue]) -> Row:
        pin = self.origin.pin
        identity = environment_id(pin, versions)
        self.context = replace(self.context, environment_id=identity)
        return environment_row(
            identity,
            self.context.environment,
            versions,
            facts,
            image_digest=pin.image_digest,
            lock_sha256=self.context.lock_sha256,
            image_layers=pin.image_layers,
            image_config_sha256=pin.image_config_sha256,
        )


def environment_id(pin: EnvironmentPin, versions: Mapping[str, str]) -> str:
    """Identity of an environment: what it was made from and what was observed inside it; nothing if nobody looked."""
    made_of = {"image": pin.content, "lock": pin.lock_sha256, "versions": dict(versions)}
    return digest(made_of)[:32]


def is_of_this_run(fact: str) -> bool:
    """Whether a fact about an environment is true on this host and in this container only."""
    return fact.startswith(("limit_", "env_", "driver_")) or fact in ("python_executable", "torch_cpu_capability")


def _gpu_name(fingerprint: Fingerprint, uuid: str | None) -> str | None:
    uuids = fingerprint.private.gpu_uuids if fingerprint.private is not None else ()
    named = dict(zip(uuids, (gpu.name for gpu in fingerprint.gpus), strict=False))
    return named.get(uuid) if uuid is not None else None
