"""Which columns there are, what they mean, and how they are stored."""

from orchestrator.store.schema.columns import SHARED_KEYS, Sharing
from orchestrator.store.schema.definition import (
    CAMPAIGNS,
    COLUMNS,
    DICTIONARY_COLUMNS,
    ENVIRONMENTS,
    ROW_KEY,
    SCHEMA_VERSION,
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
    "PLACE",
    "ROW_KEY",
    "RUN",
    "SCHEMA_VERSION",
    "SHARED_KEYS",
    "SORT_ORDER",
    "SPLIT_COLUMNS",
    "SYSTEMS",
    "TRIALS",
    "WORK",
    "Sharing",
    "parquet_options",
    "total_column",
]
