"""Which columns there are, what they mean, and how they are stored."""

from orchestrator.store.schema.columns import GUARD_RESULTS, SHARED_KEYS, Origin, Sharing
from orchestrator.store.schema.definition import (
    CAMPAIGNS,
    COLUMNS,
    DICTIONARY_COLUMNS,
    ENVIRONMENTS,
    KEYS,
    ROW_KEY,
    SCHEMA_VERSION,
    SCHEMAS,
    SORT_ORDER,
    SPLIT_COLUMNS,
    SYSTEMS,
    TRIALS,
    parquet_options,
    total_column,
)
from orchestrator.store.schema.keys import CONFIGURATION, EXECUTION, PLACE, RUN, WORK

__all__ = [
    "CAMPAIGNS",
    "COLUMNS",
    "CONFIGURATION",
    "DICTIONARY_COLUMNS",
    "ENVIRONMENTS",
    "EXECUTION",
    "GUARD_RESULTS",
    "KEYS",
    "PLACE",
    "ROW_KEY",
    "RUN",
    "SCHEMAS",
    "SCHEMA_VERSION",
    "SHARED_KEYS",
    "SORT_ORDER",
    "SPLIT_COLUMNS",
    "SYSTEMS",
    "TRIALS",
    "WORK",
    "Origin",
    "Sharing",
    "parquet_options",
    "total_column",
]
