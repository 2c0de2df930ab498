"""Which columns there are, what they mean together, and how Parquet stores them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from orchestrator.store.schema.columns import (
    COUNTS,
    GUARD_RESULTS,
    HOT_SYSTEM,
    INTEGER,
    NUMBER,
    SERIES,
    TEXT,
    TEXTS,
    TIME,
    TRIAL_COLUMNS,
    Column,
    Sharing,
    Stage,
    public,
    texts,
)
from runners.contract import Status

SCHEMA_VERSION: Final = 1
"""Stands in the metadata of each file, and in `STORE.json`: a store of another one is refused."""


def total_column(status: Status) -> str:
    """The column of `campaigns` that counts the trials that ended with `status`."""
    return f"trials_{status.value}"


def _schema(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([column.field() for column in columns], metadata={"schema_version": str(SCHEMA_VERSION)})


COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "trials": TRIAL_COLUMNS,
    "systems": (
        *public(Column("system_id", TEXT, required=True), Column("hw_id", TEXT, required=True)),
        *HOT_SYSTEM,
        Column("fingerprint", TEXT, required=True, sharing=Sharing.DOCUMENT),
    ),
    "environments": (
        *public(Column("environment_id", TEXT, required=True), Column("environment", TEXT, required=True)),
        *public(*texts("image_digest", "lock_sha256"), Column("versions", TEXT, required=True)),
        Column("facts", TEXT, required=True, sharing=Sharing.DOCUMENT),
        *public(Column("image_layers", TEXTS), *texts("image_config_sha256")),
    ),
    "campaigns": (
        Column("campaign_id", TEXT, required=True, sharing=Sharing.CAMPAIGN),
        *public(Column("origin", TEXT, required=True)),
        # Of the store that it was written into first; which lab that is stays in the lab.
        *texts("origin_store"),
        *public(Column("started_at", TIME, required=True)),
        Column("sweep", TEXT, required=True, sharing=Sharing.SWEEP),
        Column("sweep_document", TEXT, required=True),
        Column("inventory_document", TEXT, required=True),
        *public(
            Column("plan_digest", TEXT, required=True),
            Column("planned_trials", INTEGER, "trials", required=True),
            Column("taxmeter_version", TEXT, required=True),
            *texts("git_commit"),
            Column("finished_at", TIME),
        ),
        *texts("plan"),
        *public(*texts("versions"), Column("rows", INTEGER, "rows")),
        *public(*(Column(total_column(status), INTEGER, "trials") for status in Status)),
        *public(*(Column(stage.value, NUMBER, "s") for stage in Stage)),
    ),
}
"""By table its columns, in their order."""
TRIALS: Final = _schema(COLUMNS["trials"])
SYSTEMS: Final = _schema(COLUMNS["systems"])
ENVIRONMENTS: Final = _schema(COLUMNS["environments"])
CAMPAIGNS: Final = _schema(COLUMNS["campaigns"])

SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "trials": TRIALS,
    "systems": SYSTEMS,
    "environments": ENVIRONMENTS,
    "campaigns": CAMPAIGNS,
}
"""What a generation holds: one directory each, with files in this schema."""

KEYS: Final[Mapping[str, str]] = {"systems": "system_id", "environments": "environment_id", "campaigns": "campaign_id"}
"""What makes a row of a small table unique."""

TOTALS: Final = ("finished_at", "rows", *map(total_column, Status), *(stage.value for stage in Stage))
"""Columns of a campaign that are written when it ends, and again when it was continued."""

ROW_KEY: Final = ("trial_id", "attempt")
"""What makes a row of `trials` unique."""

SORT_ORDER: Final = ("workload", "backend", "batch", "started_at")
"""Order of the rows in a part: what people select by comes first, so that statistics prune well."""

# What tells what was measured, with what, and where: what all that groups trials goes by.
WORK: Final = (
    *("workload", "workload_options", "batch", "sequence_length", "image_size"),
    *("dtype", "device", "threads", "seed"),
)
"""What is computed."""
EXECUTION: Final = ("backend", "backend_options")
"""How it is executed."""
PLACE: Final = ("system_id", "environment_id", "isolation", "method_version")
"""Where, in which software, and by which version of the method: numbers of two places mean different things."""
CONFIGURATION: Final = (*PLACE, "protocol", *WORK, *EXECUTION)
"""All that makes two trials repetitions of each other."""
RUN: Final = ("campaign_id", "host", *PLACE, "runner_sha256")
"""What trials share that can disturb each other alike: they are compared within it where both sides are in one."""

_DISTINCT_TEXT: Final = (
    *("trial_id", "reason", "log_tail", "facts", "dispatch_floor_problem"),
    *("conditions_before", "conditions_after"),
)
_NESTED: Final = {f.name for f in TRIALS if f.type in (GUARD_RESULTS, TEXTS, COUNTS)}
_NESTED_TEXTS: Final = [
    *(f"guards.list.element.{f.name}" for f in GUARD_RESULTS.value_type if f.type == TEXT),
    "guard_flags.list.element",
]
SHARED_TEXTS: Final = [f.name for f in TRIALS if f.type == TEXT and f.name not in _DISTINCT_TEXT]
"""Texts that are nearly constant within a part."""
# A dictionary of anything else costs more than it saves.
DICTIONARY_COLUMNS: Final = [*SHARED_TEXTS, *_NESTED_TEXTS]
SPLIT_COLUMNS: Final = [
    f.name + (".list.element" if f.type == SERIES else "") for f in TRIALS if f.type in (NUMBER, SERIES)
]
"""Parquet paths of the floating-point columns, stored as BYTE_STREAM_SPLIT."""


def parquet_options() -> dict[str, Any]:
    """How a part of `trials` is written, as keyword arguments of `pyarrow.parquet.write_table`.

    A sample is a whole number of nanoseconds divided by 10⁹: its mantissa looks random, and of the encodings that every
    reader knows none does better than to put equal bytes beside each other. Higher levels of zstd save 1 %.
    """
    unranked = {*_DISTINCT_TEXT, *_NESTED, *(path for path in SPLIT_COLUMNS if path.endswith(".list.element"))}
    paths = {path.partition(".")[0]: path for path in SPLIT_COLUMNS}
    return {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": DICTIONARY_COLUMNS,
        "column_encoding": {
            **dict.fromkeys(SPLIT_COLUMNS, "BYTE_STREAM_SPLIT"),
            **dict.fromkeys(_DISTINCT_TEXT, "DELTA_LENGTH_BYTE_ARRAY"),
        },
        # Nobody prunes by a sample or by a text that differs in each row, and small parts are mostly footer.
        "write_statistics": [path for name in TRIALS.names if (path := paths.get(name, name)) not in unranked],
        "write_page_index": True,
    }
