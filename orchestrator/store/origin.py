"""What the rows of a task have in common before it runs; kept with the task, so that what is left of it has rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.boundary import adapter_of, validated
from orchestrator.pin import EnvironmentPin
from runners.contract import digest
from runners.contract.record import FactValue
from runners.system import Fingerprint


@dataclass(frozen=True)
class RowContext:
    """Columns that a trial shares with the other trials of its task, by their names. Unknown is null."""

    campaign_id: str
    environment: str
    task_id: str | None = None
    host: str | None = None
    isolation: str | None = None
    executor_reason: str | None = None
    environment_id: str | None = None
    image_digest: str | None = None
    image_id: str | None = None
    lock_sha256: str | None = None
    runner_sha256: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """No column: installed distributions as seen inside, `python` included; empty if nothing was seen."""
    hw_id: str | None = None
    system_id: str | None = None
    hot: Mapping[str, FactValue] = field(default_factory=dict)
    """Values of the columns of `columns.HOT_SYSTEM`; a missing one is null."""
    trial_cores: str | None = None
    """Processors that the container or process may use, as the kernel lists them: `0-3,8`."""
    memory_limit_bytes: int | None = None
    """Limit of the container, or of a process's own data."""
    gpu_uuid: str | None = None
    """The GPU that the task was given; null on processors, and where it saw all GPUs."""
    exclusive: str | None = None
    """What ran one task at a time: `host`, or `gpu`."""
    slot: int | None = None
    """Which of the host's slots the task had, counted from 0."""
    reproduces: str | None = None
    """The campaign whose trials are run again; null for all that is new."""
    reproduces_trial_key: str | None = None
    """The key there of what this trial runs again."""
    reproduction_differs: str | None = None
    """In what the trial is known to differ from the one that it reproduces before it runs; null if in nothing."""


@dataclass(frozen=True)
class ReproducedTrial:
    """Stored trials that are run again."""

    trial_key: str
    """Of then; the key of now is another one if what is measured is."""
    differs: str | None
    """In what; null where everything that is decided before the start is as it was."""


@dataclass(frozen=True)
class Reproduces:
    """What a campaign runs again."""

    campaign_id: str
    trials: Mapping[str, Mapping[str, ReproducedTrial]]
    """By host, then by the key of a trial that runs now: orders are handed over as JSON, whose keys are no pairs."""


@dataclass(frozen=True)
class TaskOrigin:
    """What the rows of a task have in common, as far as it is known before the task runs."""

    context: RowContext
    pin: EnvironmentPin
    reproduces: str | None = None
    """The campaign whose trials are run again; null for one that measures something of its own."""
    counterparts: Mapping[str, ReproducedTrial] = field(default_factory=dict)
    """By the key of a trial of this task, what it runs again."""


@dataclass(frozen=True)
class StoredOrigin:
    """`origin.json` of a task directory."""

    store_id: str
    origin: TaskOrigin
    fingerprint: Fingerprint
    """Of the host that the task ran on."""


def origin_document(origin: TaskOrigin) -> object:
    """An origin as plain JSON data."""
    document: object = adapter_of(TaskOrigin).dump_python(origin, mode="json")
    return document


def read_origin(data: bytes) -> StoredOrigin:
    """What `origin.json` says.

    Raises:
        ForeignDataError: it is damaged, or nothing that this taxmeter wrote.
    """
    return validated(StoredOrigin, data, "its origin")


def environment_id(pin: EnvironmentPin, versions: Mapping[str, str]) -> str:
    """Identity of an environment: what it was made from and what was observed inside it; nothing if nobody looked."""
    made_of = {"image": pin.content, "lock": pin.lock_sha256, "versions": dict(versions)}
    return digest(made_of)[:32]
